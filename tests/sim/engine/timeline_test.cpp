#include "sim/engine/timeline.hpp"

#include <catch2/catch.hpp>

#include "program/schedule/generators.hpp"

namespace meshplan::sim {

TEST_CASE("A timeline shows the bubble of the closed forms", "[sim][timeline]") {
  // Narayanan et al. 2021, section 2.2: (pp - 1)(F + B) of m (F + B) + (pp - 1)(F + B); of a
  // chunk's with several.
  CHECK(timeline(program::one_f_one_b(4, 8)).end == 3 * (8 + 3));
  CHECK(timeline(program::one_f_one_b(4, 8)).bubble_fraction() == Approx(3.0 / 11));
  CHECK(timeline(program::interleaved(4, 8, 2)).end == 3 * (2 * 8 + 3));
  // Qi et al. 2023, table 2 and section 6.
  const TaskDurations unequal{.forward = 2, .input = 2, .weight = 1};
  CHECK(timeline(program::make_schedule(program::ScheduleKind::ZbH1, 4, 12), unequal).end ==
        5 * 12 + 3 * (2 + 2 - 1));
  CHECK(timeline(program::make_schedule(program::ScheduleKind::ZbV, 4, 8)).end == 6 * 8 + 3);
}

TEST_CASE("A timeline says when each task begins", "[sim][timeline]") {
  // By hand: two stages, two micro-batches, backward 2.
  const Timeline times = timeline(program::one_f_one_b(2, 2));
  CHECK(times.begin == std::vector<std::vector<double>>{{0, 1, 4, 7}, {1, 2, 4, 5}});
  CHECK(times.busy == std::vector<double>{6, 6});
  CHECK(times.end == 9);
}

}  // namespace meshplan::sim
