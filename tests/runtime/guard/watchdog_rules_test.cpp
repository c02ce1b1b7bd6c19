#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "guard/watchdog.hpp"
#include "runtime/guard/status_board.hpp"

namespace meshplan::runtime {
namespace {

using Catch::Matchers::Contains;

RankView view(int rank, RankState state, double since_progress_s) {
  RankView made;
  made.rank = rank;
  made.host = "host-a";
  made.pid = 100 + rank;
  made.state = state;
  made.since_progress = {since_progress_s};
  made.status = "stage 1, micro-batch 3";
  return made;
}

constexpr Seconds kTimeout{10};

TEST_CASE("Nothing hangs while any rank makes progress", "[runtime][watchdog]") {
  const std::vector<RankView> ranks{view(0, RankState::Waiting, 50),
                                    view(1, RankState::Working, 9)};
  CHECK_FALSE(find_hang(ranks, kTimeout));
}

TEST_CASE("The rank that does not wait is to blame", "[runtime][watchdog]") {
  const std::vector<RankView> ranks{
      view(0, RankState::Waiting, 50), view(1, RankState::Working, 12),
      view(2, RankState::Working, 15), view(3, RankState::Waiting, 60)};
  const auto hang = find_hang(ranks, kTimeout);
  REQUIRE(hang);
  CHECK(hang->kind == Hang::Kind::Stuck);
  CHECK(hang->rank == 2);
}

TEST_CASE("If all wait it is a deadlock, and the longest wait is named", "[runtime][watchdog]") {
  const std::vector<RankView> ranks{view(0, RankState::Waiting, 11),
                                    view(1, RankState::Waiting, 13),
                                    view(2, RankState::Finished, 90)};
  const auto hang = find_hang(ranks, kTimeout);
  REQUIRE(hang);
  CHECK(hang->kind == Hang::Kind::Deadlock);
  CHECK(hang->rank == 1);
}

TEST_CASE("A stopped rank hangs after the timeout even while others go on", "[runtime][watchdog]") {
  std::vector<RankView> ranks{view(0, RankState::Working, 0), view(1, RankState::Working, 20)};
  ranks[1].stopped = Seconds{9};
  CHECK_FALSE(find_hang(ranks, kTimeout));
  ranks[1].stopped = Seconds{10};
  const auto hang = find_hang(ranks, kTimeout);
  REQUIRE(hang);
  CHECK(hang->kind == Hang::Kind::Stopped);
  CHECK(hang->rank == 1);
}

TEST_CASE("Of several stopped ranks the one that stopped first is named", "[runtime][watchdog]") {
  std::vector<RankView> ranks{view(0, RankState::Working, 30), view(1, RankState::Working, 40),
                              view(2, RankState::Working, 20)};
  ranks[0].stopped = Seconds{30};
  ranks[1].stopped = Seconds{40};
  ranks[2].stopped = Seconds{20};
  const auto hang = find_hang(ranks, kTimeout);
  REQUIRE(hang);
  CHECK(hang->kind == Hang::Kind::Stopped);
  CHECK(hang->rank == 1);
}

TEST_CASE("A debugger suspends the watch", "[runtime][watchdog]") {
  std::vector<RankView> ranks{view(0, RankState::Working, 99)};
  ranks[0].traced = true;
  CHECK_FALSE(find_hang(ranks, kTimeout));
}

TEST_CASE("Who has finished may wait for the others, and then has to end", "[runtime][watchdog]") {
  std::vector<RankView> ranks{view(0, RankState::Finished, 99), view(1, RankState::Working, 9)};
  CHECK_FALSE(find_hang(ranks, kTimeout));
  ranks[1].state = RankState::Finished;
  CHECK_FALSE(find_hang(ranks, kTimeout));
  ranks[1].since_progress = {12};
  const auto hang = find_hang(ranks, kTimeout);
  REQUIRE(hang);
  CHECK(hang->kind == Hang::Kind::Stuck);
  CHECK(hang->rank == 0);
  CHECK_THAT(describe(ranks[0]), Contains("; finished 99.0 s ago"));
  ranks[0].gone = true;
  CHECK(find_hang(ranks, kTimeout)->rank == 1);
  ranks[1].gone = true;
  CHECK_FALSE(find_hang(ranks, kTimeout));
}

TEST_CASE("Where nobody moves, the stopped rank is to blame", "[runtime][watchdog]") {
  std::vector<RankView> ranks{view(0, RankState::Finished, 12), view(1, RankState::Finished, 11)};
  ranks[1].stopped = Seconds{9};
  CHECK(find_hang(ranks, kTimeout)->rank == 1);
  ranks[0].state = ranks[1].state = RankState::Working;
  CHECK(find_hang(ranks, kTimeout)->rank == 1);
  ranks[0].since_progress = {0};
  CHECK_FALSE(find_hang(ranks, kTimeout));
}

TEST_CASE("Who has finished and is stopped hangs, too", "[runtime][watchdog]") {
  std::vector<RankView> ranks{view(0, RankState::Finished, 12), view(1, RankState::Working, 0)};
  ranks[0].stopped = Seconds{12};
  const auto hang = find_hang(ranks, kTimeout);
  REQUIRE(hang);
  CHECK(hang->kind == Hang::Kind::Stopped);
  CHECK(hang->rank == 0);
}

TEST_CASE("A description names rank, host, status and whom it waits for", "[runtime][watchdog]") {
  RankView waiting = view(2, RankState::Waiting, 12.34);
  waiting.awaited_rank = 1;
  CHECK(describe(waiting) ==
        "rank 2 on host-a (pid 102): stage 1, micro-batch 3; waiting for rank 1, "
        "12.3 s without progress");
  waiting.stopped = Seconds{3};
  CHECK_THAT(describe(waiting), Contains("stopped by a signal 3.0 s ago"));
}

TEST_CASE("A status is read as it was set, cut to the slot's size", "[runtime][status_board]") {
  StatusSlot slot;
  StatusBoard board(slot);
  board.set("step 12, stage 1");
  CHECK(read_text(slot) == "step 12, stage 1");
  CHECK(slot.state.load() == RankState::Working);
  board.set(std::string(1000, 'x'));
  CHECK(read_text(slot) == std::string(kStatusBytes - 1, 'x'));
  board.set_context("step 12");
  board.set("stage 1");
  CHECK(read_text(slot) == "step 12, stage 1");
  board.set(std::string(1000, 'x'));
  CHECK(read_text(slot).size() == kStatusBytes - 1);
  board.set_context("");
  board.set("stage 1");
  CHECK(read_text(slot) == "stage 1");
  const auto before = slot.progress_ns.load();
  board.wait_begins(3);
  CHECK(slot.state.load() == RankState::Waiting);
  CHECK(slot.awaited_rank.load() == 3);
  CHECK(slot.progress_ns.load() == before);
  board.wait_ends();
  CHECK(slot.state.load() == RankState::Working);
  CHECK(slot.progress_ns.load() >= before);
}

}  // namespace
}  // namespace meshplan::runtime
