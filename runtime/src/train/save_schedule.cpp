#include "train/save_schedule.hpp"

#include <cmath>
#include <fmt/format.h>

#include "core/checkpoint_interval.hpp"

namespace meshplan::runtime {

SaveSchedule::SaveSchedule(int every, std::optional<double> mtbf_s, int first_step)
    : every_(every), mtbf_s_(mtbf_s), next_(first_step + 2) {}

bool SaveSchedule::is_due(int steps_done) const {
  if (mtbf_s_) return !is_open_ && steps_done >= next_;
  return every_ > 0 && steps_done % every_ == 0;
}

void SaveSchedule::add_step(double seconds) {
  constexpr double kWeight = 0.1;  // of the newest
  step_s_ = step_s_ == 0 ? seconds : (1 - kWeight) * step_s_ + kWeight * seconds;
}

void SaveSchedule::begin(int step, double stall_s) {
  saved_step_ = step;
  stall_s_ = stall_s;
  is_open_ = true;
}

std::string SaveSchedule::complete(double write_s) {
  is_open_ = false;
  if (!mtbf_s_) return "";
  const int steps = checkpoint_interval_steps(
      {.stall_s = stall_s_, .complete_s = write_s, .step_s = step_s_}, *mtbf_s_);
  next_ = saved_step_ + steps;
  if (10 * std::abs(steps - said_) < said_) return "";
  said_ = steps;
  constexpr double kHour = 3600;
  return fmt::format(
      "checkpoints every {} steps ({:.3g} s): a save holds up training for {:.3g} s and takes "
      "{:.3g} s, and the job fails every {:g} h",
      steps, steps * step_s_, stall_s_, write_s, *mtbf_s_ / kHour);
}

}  // namespace meshplan::runtime
