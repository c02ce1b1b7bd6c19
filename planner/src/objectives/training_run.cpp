#include "planner/objectives/training_run.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "core/error.hpp"

namespace meshplan::planner {
namespace {

constexpr double kHour = 3600;
constexpr double kLongest = 1e15;  // seconds; what takes longer never ends

void require_positive(const char* name, double value, bool zero_too = false) {
  if (std::isfinite(value) && (value > 0 || (zero_too && value == 0))) return;
  throw ConfigError(
      fmt::format("{} = {:g} must be {} 0", name, value, zero_too ? "at least" : "more than"));
}

/// Daly 2006, equation 37: exact to a few parts in a thousand.
double best_interval_s(double checkpoint_s, double mtbf_s) {
  if (checkpoint_s >= 2 * mtbf_s) return mtbf_s;
  const double x = checkpoint_s / (2 * mtbf_s);
  return std::sqrt(2 * checkpoint_s * mtbf_s) * (1 + std::sqrt(x) / 3 + x / 9) - checkpoint_s;
}

}  // namespace

TrainingRunAnswer training_run(const TrainingRunQuestion& question, double step_time_s,
                               double tokens_per_step, int devices) {
  require_positive("tokens", question.tokens);
  require_positive("checkpoint seconds", question.checkpoint_s, true);
  require_positive("restart seconds", question.restart_s, true);
  TrainingRunAnswer answer;
  answer.steps = std::ceil(question.tokens / tokens_per_step);
  answer.training_s = answer.elapsed_s = answer.steps * step_time_s;
  if (question.device_mtbf_hours) {
    require_positive("MTBF of a device in hours", *question.device_mtbf_hours);
    const double mtbf_s = *question.device_mtbf_hours * kHour / devices;
    const double checkpoint_s = question.checkpoint_s;
    double interval =
        question.checkpoint_interval_s.value_or(best_interval_s(checkpoint_s, mtbf_s));
    if (!question.checkpoint_interval_s) interval = std::max(interval, step_time_s);
    require_positive("checkpoint interval in seconds", interval);
    answer.checkpoint_interval_s = interval;
    answer.elapsed_s = mtbf_s * std::exp(question.restart_s / mtbf_s) *
                       std::expm1((interval + checkpoint_s) / mtbf_s) * answer.training_s /
                       interval;
    if (!(answer.elapsed_s < kLongest))
      throw ConfigError(fmt::format(
          "an MTBF of {:g} hours a device is {:.3g} s on {} devices: they fail before "
          "a restart of {:g} s and {:g} s of training are over; nearest: fewer devices, "
          "or a shorter checkpoint interval",
          *question.device_mtbf_hours, mtbf_s, devices, question.restart_s, interval));
    answer.failures = answer.elapsed_s / mtbf_s;
  }
  answer.goodput = answer.training_s / answer.elapsed_s;
  answer.device_hours = answer.elapsed_s / kHour * devices;
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
                      ranked.plan.parallel.world_size());
}

}  // namespace meshplan::planner
