// The contract of Communicator on staged copies over MPI, with a device that copies late: a copy
// takes effect only when its queue is asked for the third time. Run at several rank counts.
#include <catch2/catch.hpp>
#include <cstring>
#include <deque>
#include <map>

#include "comm/host_communicator.hpp"
#include "comm/staging_communicator.hpp"
#include "core/error.hpp"
#include "mpi_test_session.hpp"
#include "runtime/comm/communicator_contract.hpp"

namespace meshplan::runtime {
namespace {

/// Queues of copies that run when marks are asked for, each mark only at the third question.
class LateMemory final : public StagingMemory {
 public:
  ~LateMemory() override { CHECK(allocated_ == 0); }

  void* allocate_host(std::int64_t bytes) override {
    ++allocated_;
    ++allocations_;
    return ::operator new(static_cast<std::size_t>(bytes));
  }
  void free_host(void* memory) noexcept override {
    --allocated_;
    ::operator delete(memory);
  }
  void copy_to_host(void* to, const void* from, std::int64_t bytes, void* queue) override {
    queues_[queue].push_back({.to = to, .from = from, .bytes = bytes});
  }
  void copy_to_device(void* to, const void* from, std::int64_t bytes, void* queue) override {
    copy_to_host(to, from, bytes, queue);
  }
  int mark(void* queue) override {
    queues_[queue].push_back({.mark = ++marks_});
    questions_[marks_] = {queue, 0};
    return marks_;
  }
  bool reached(int mark) override {
    const auto found = questions_.find(mark);
    if (found == questions_.end()) return true;  // passed by a later mark of its queue
    if (++found->second.asked < 3) return false;
    run(found->second.queue, mark);
    return true;
  }
  /// What a device does in its own time.
  void run_all() {
    for (auto& [queue, entries] : queues_) run(queue, marks_ + 1);
  }
  int allocations() const { return allocations_; }

 private:
  struct Entry {
    void* to = nullptr;
    const void* from = nullptr;
    std::int64_t bytes = 0;
    int mark = 0;
  };
  struct Question {
    void* queue = nullptr;
    int asked = 0;
  };

  void run(void* queue, int until) {
    auto& entries = queues_[queue];
    while (!entries.empty()) {
      const Entry entry = entries.front();
      if (entry.mark > until) return;
      entries.pop_front();
      if (entry.mark == 0) {
        std::memcpy(entry.to, entry.from, static_cast<std::size_t>(entry.bytes));
        continue;
      }
      questions_.erase(entry.mark);
      if (entry.mark == until) return;
    }
  }

  std::map<void*, std::deque<Entry>> queues_;
  std::map<int, Question> questions_;
  int marks_ = 0;
  int allocated_ = 0;
  int allocations_ = 0;
};

struct Fixture {
  std::unique_ptr<Communicator> host = make_host_world(test::mpi_session(), {});
  std::shared_ptr<LateMemory> memory = std::make_shared<LateMemory>();
  std::unique_ptr<Communicator> world = make_staging_world(*host, memory);
};

}  // namespace

TEST_CASE("Staged reductions and movement keep the contract", "[runtime][mpi]") {
  Fixture fixture;
  for (const std::int64_t count : {0, 1, 257}) contract::check_reductions(*fixture.world, count);
  for (const DType dtype : {DType::F64, DType::BF16, DType::U8})
    for (const std::int64_t count : {0, 1, 3001})
      contract::check_movement(*fixture.world, dtype, count);
  contract::check_all_to_all_v(*fixture.world, 333);
  contract::check_determinism(*fixture.world, 1001);
}

TEST_CASE("Staged messages keep the contract", "[runtime][mpi]") {
  Fixture fixture;
  for (const std::int64_t count : {0, 1, 30'001})
    contract::check_point_to_point(*fixture.world, count);
  contract::check_message_order(*fixture.world, 5001);
  contract::check_grouped_transfers(*fixture.world, 1001);
}

TEST_CASE("Staged groups run side by side", "[runtime][mpi]") {
  Fixture fixture;
  contract::check_concurrent_groups(*fixture.world);
  contract::check_group_order(*fixture.world);
  contract::check_many_in_flight(*fixture.world);
}

TEST_CASE("Staged waits give up in time, and misuse is refused", "[runtime][mpi]") {
  Fixture fixture;
  contract::check_timeout(*fixture.world);
  contract::check_abandonment(*fixture.world);
  contract::check_count_mismatch_of_messages(*fixture.world);
  contract::check_invalid_calls(*fixture.world);
}

TEST_CASE("Staged calls that differ throw on every rank", "[runtime][mpi]") {
  HostWorldOptions options;
  options.verify_calls = true;
  const auto host = make_host_world(test::mpi_session(), options);
  const auto world = make_staging_world(*host, std::make_shared<LateMemory>());
  contract::check_mismatches(*world);
}

TEST_CASE("On a queue, what is queued after a wait sees what arrived", "[runtime][mpi]") {
  Fixture fixture;
  Communicator& world = *fixture.world;
  int queue = 0;
  world.queue_on(&queue);
  const auto run = [&](double expected) {
    // A kernel that was queued before writes the buffer only when the queue gets there.
    const contract::Elements made = contract::filled(
        DType::F32, 100, [&](std::int64_t i) { return static_cast<double>(i % 7) + expected; });
    contract::Elements buffer(DType::F32, 100);
    contract::Elements copied(DType::F32, 100);
    const auto bytes = made.count() * size_of(made.dtype());
    fixture.memory->copy_to_device(buffer.buffer().data, made.buffer().data, bytes, &queue);
    world.all_reduce(buffer.buffer(), buffer.buffer(), ReduceOp::Max).wait();
    fixture.memory->copy_to_host(copied.buffer().data, buffer.buffer().data, bytes, &queue);
    fixture.memory->run_all();
    REQUIRE(contract::first_wrong(copied, [&](std::int64_t i) {
              return static_cast<double>(i % 7) + expected;
            }) == -1);
  };
  run(1);
  const int allocations = fixture.memory->allocations();
  for (int repeat = 0; repeat < 5; ++repeat) run(2 + repeat);
  CHECK(fixture.memory->allocations() == allocations);  // pinned buffers are used again
}

}  // namespace meshplan::runtime
