#include "planner/objectives/training_run.hpp"

#include <cmath>
#include <fmt/format.h>

#include "core/checkpoint_interval.hpp"
#include "core/error.hpp"
#include "failures/positive.hpp"
#include "planner/search/reasons.hpp"

namespace meshplan::planner {
namespace {

constexpr double kLongest = 1e15;  // seconds; what takes longer never ends

}  // namespace

TrainingRunAnswer training_run(const TrainingRunQuestion& question, double step_time_s,
                               double tokens_per_step, int devices, const Goodput* goodput) {
  require_positive("tokens", question.tokens);
  TrainingRunAnswer answer;
  answer.steps = std::ceil(question.tokens / tokens_per_step);
  answer.training_s = answer.elapsed_s = answer.steps * step_time_s;
  if (goodput) {
    answer.checkpoint_interval_s = goodput->interval_s;
    answer.elapsed_s = answer.training_s / goodput->goodput;
    if (!(answer.elapsed_s < kLongest))
      throw ConfigError(fmt::format(
          "a failure every {} on {} devices costs {}: the run never ends; nearest: fewer devices, "
          "or spare nodes",
          format_duration(goodput->mtbf_s), devices, format_duration(goodput->failure_s)));
    answer.failures = answer.elapsed_s / goodput->mtbf_s;
  }
  answer.goodput = answer.training_s / answer.elapsed_s;
  answer.device_hours = answer.elapsed_s / kHourSeconds * devices * (goodput ? goodput->paid : 1);
  if (question.price_per_device_hour) {
    require_positive("price of a device's hour", *question.price_per_device_hour, true);
    answer.money = *question.price_per_device_hour * answer.device_hours;
    answer.price_per_device_hour = question.price_per_device_hour;
    answer.price_of = question.price_of;
  }
  if (question.watts_per_device) {
    require_positive("watts of a device", *question.watts_per_device);
    answer.energy_kwh = *question.watts_per_device * answer.device_hours / 1000;
  }
  return answer;
}

TrainingRunAnswer training_run(const TrainingRunQuestion& question, const RankedPlan& ranked) {
  const program::Workload& workload = ranked.plan.workload;
  return training_run(question, ranked.step_time_s(),
                      static_cast<double>(workload.global_batch_size * workload.seq_len),
                      ranked.plan.parallel.world_size(),
                      ranked.goodput ? &*ranked.goodput : nullptr);
}

}  // namespace meshplan::planner
