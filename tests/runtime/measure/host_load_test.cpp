#include "measure/host_load.hpp"

#include <catch2/catch.hpp>

namespace meshplan::runtime {

// proc(5): user nice system idle iowait irq softirq steal guest guest_nice, in ticks of 0.01 s.
TEST_CASE("Busy seconds of some cores are read from /proc/stat", "[runtime][host_load]") {
  constexpr std::string_view kStat =
      "cpu  9000 0 0 9000 0 0 0 0 0 0\n"
      "cpu0 100 200 300 1000 50 1 2 47 90 0\n"
      "cpu1 10 0 0 90 0 0 0 0 0 0\n"
      "cpu10 7 0 0 93 0 0 0 0 0 0\n"
      "intr 1 2 3\n";
  // Without idle and waiting for disks; guest time is part of user time.
  CHECK(parse_core_seconds(kStat, {0}, 100).busy == Approx(6.5));
  CHECK(parse_core_seconds(kStat, {0}, 100).all == Approx(17));
  const CoreSeconds two = parse_core_seconds(kStat, {1, 10}, 100);
  CHECK(two.busy == Approx(0.17));
  CHECK(two.all == Approx(2));
  CHECK(parse_core_seconds("cpu0 1 2", {0}, 100).busy == Approx(0.03));  // an old kernel
  CHECK(parse_core_seconds("", {0}, 100) == CoreSeconds{});
}

// Four cores for 10 s: 30 of 40 core seconds were busy, 20 of them the job's own. So others kept
// one core busy.
TEST_CASE("What was busy beyond the job's own time is of others", "[runtime][host_load]") {
  CHECK(other_cores({.busy = 30, .all = 40}, 20, 10, 4) == Approx(1));
  // The load is the same if two ranks that both may use all cores see it, or one of each pair.
  CHECK(other_cores({.busy = 60, .all = 80}, 20, 10, 4) == Approx(1));
  CHECK(other_cores({.busy = 15, .all = 20}, 20, 10, 4) == Approx(1));
  CHECK(other_cores({.busy = 20, .all = 40}, 21, 10, 4) == 0);    // rounding of the kernel's
  CHECK(other_cores({.busy = 0.1, .all = 0.1}, 0, 0.1, 1) == 0);  // too short to say
}

}  // namespace meshplan::runtime
