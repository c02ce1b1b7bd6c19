#include "train/save_schedule.hpp"

#include <catch2/catch.hpp>

#include "core/checkpoint_interval.hpp"

namespace meshplan::runtime {

using Catch::Matchers::Contains;

TEST_CASE("checkpoints are due every so many steps, or never", "[save_schedule]") {
  const SaveSchedule every(5, std::nullopt, 0);
  CHECK_FALSE(every.is_measured());
  CHECK_FALSE(every.is_due(4));
  CHECK(every.is_due(5));
  CHECK(every.is_due(10));
  CHECK_FALSE(SaveSchedule(0, std::nullopt, 0).is_due(5));
}

TEST_CASE("with failures the measured save decides the interval, again after each save",
          "[save_schedule]") {
  constexpr double kMtbf = 3600;
  SaveSchedule schedule(0, kMtbf, 100);
  for (int step = 0; step < 50; ++step) schedule.add_step(2);
  CHECK_FALSE(schedule.is_due(101));
  CHECK(schedule.is_due(102));
  schedule.begin(102, 0.5);
  CHECK_FALSE(schedule.is_due(1000));  // while it is written
  CHECK_THAT(schedule.complete(10),
             Contains("checkpoints every 30 steps (60 s)") && Contains("the job fails every 1 h"));
  REQUIRE(best_checkpoint_interval_s(0.5, kMtbf) / 2 == Approx(30).margin(0.7));
  CHECK_FALSE(schedule.is_due(131));
  CHECK(schedule.is_due(132));
  schedule.begin(132, 0.5);
  CHECK(schedule.complete(10).empty());  // as before: nothing to say
  schedule.begin(162, 0.5);              // writing takes longer than the best interval
  CHECK_THAT(schedule.complete(100), Contains("checkpoints every 50 steps (100 s)"));
  CHECK_FALSE(schedule.is_due(211));
  CHECK(schedule.is_due(212));
}

}  // namespace meshplan::runtime
