// The progress thread by itself, on operations that move nothing.
#include "comm/progress_engine.hpp"

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <thread>

#include "comm/host_operation.hpp"

namespace meshplan::runtime {
namespace {

/// Done after some moves, or when told to; knows who moved it.
class Countdown final : public HostOperation {
 public:
  Countdown(std::shared_ptr<HostGroup> group, int moves)
      : HostOperation(std::move(group), "countdown"), left_(moves) {}

  std::atomic<int> moves_by_others{0};
  std::atomic<int> moves_by_owner{0};

 private:
  Progress advance() override {
    ++(std::this_thread::get_id() == owner_ ? moves_by_owner : moves_by_others);
    return --left_ > 0 ? Progress::Some : Progress::Done;
  }

  int left_;
  std::thread::id owner_ = std::this_thread::get_id();
};

struct Fixture {
  std::shared_ptr<HostGroup> group = std::make_shared<HostGroup>();
  std::unique_ptr<Countdown, DestroyOperation> operation;
  explicit Fixture(int moves) {
    group->engine = std::make_shared<ProgressEngine>(true, nullptr);
    operation = make_operation<Countdown>(group, moves);
  }
  ProgressEngine& engine() { return *group->engine; }
  void add() {
    const auto held = engine().lock();
    engine().add(*operation);
  }
  bool finished() {
    const auto held = engine().lock();
    return operation->finished();
  }
};

constexpr int kMostNaps = 4000;  // naps of 5 ms

TEST_CASE("A progress thread moves what is in flight while nobody calls", "[runtime][progress]") {
  const bool before = GENERATE(true, false);  // was it in flight when the thread began?
  Fixture fixture(100);
  if (!before) fixture.engine().progress_in_background(true);
  fixture.add();
  if (before) fixture.engine().progress_in_background(true);
  for (int nap = 0; nap < kMostNaps && !fixture.finished(); ++nap)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  REQUIRE(fixture.finished());
  CHECK(fixture.operation->moves_by_others == 100);
  CHECK(fixture.operation->moves_by_owner == 0);
}

TEST_CASE("Without a progress thread nothing moves by itself", "[runtime][progress]") {
  Fixture fixture(1);
  fixture.engine().progress_in_background(true);
  fixture.engine().progress_in_background(false);
  fixture.add();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK(!fixture.finished());
  fixture.operation->wait(std::nullopt);
  CHECK(fixture.operation->moves_by_others == 0);
}

// The thread would need the lock that the wait holds, so all moves but those before it are its own.
TEST_CASE("While the rank waits, it moves the operations itself", "[runtime][progress]") {
  constexpr int kMoves = 200'000;
  Fixture fixture(kMoves);
  fixture.engine().progress_in_background(true);
  fixture.add();
  fixture.operation->wait(std::nullopt);
  CHECK(fixture.finished());
  CHECK(fixture.operation->moves_by_owner > 0);
  CHECK(fixture.operation->moves_by_owner + fixture.operation->moves_by_others == kMoves);
}

TEST_CASE("An engine may end while its thread has work", "[runtime][progress]") {
  for (int i = 0; i < 20; ++i) {
    Fixture fixture(1'000'000'000);
    fixture.engine().progress_in_background(true);
    fixture.add();
  }
  SUCCEED("no thread was left behind");
}

}  // namespace
}  // namespace meshplan::runtime
