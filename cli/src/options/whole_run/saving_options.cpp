#include "options/whole_run/saving_options.hpp"

#include <fmt/format.h>

#include "core/error.hpp"
#include "core/parse_number.hpp"
#include "options/whole_run/failure_options.hpp"

namespace meshplan::cli {

void add_saving_options(Command& command, SavingOptions& options) {
  command
      .option("--checkpoint-every", options.checkpoint_every,
              "steps between checkpoints; the last step and SIGTERM save too; auto chooses them "
              "from what a save takes and --mtbf; default: 0, only then")
      .suggests({kAutoInterval})
      .option("--memory-every", options.memory_every,
              "steps between copies of the state in the memory of the job's nodes, from which "
              "run --resume latest goes on after a failure; 1 = after each, 0 = none; default: 0, "
              "1 with run --elastic")
      .at_least(0);
}

planner::SavingIntervals saving_intervals(const SavingOptions& options,
                                          const std::optional<std::string>& mtbf) {
  constexpr int kMost = 1'000'000'000;
  planner::SavingIntervals intervals{.memory_every = options.memory_every.value_or(0)};
  if (!options.checkpoint_every) return intervals;
  const std::string& every = *options.checkpoint_every;
  if (!options.is_auto()) {
    const std::optional<int> steps = parse_integer(every, 0, kMost);
    if (!steps)
      throw ConfigError(
          fmt::format("--checkpoint-every {}: must be a number of steps from 0 to {}, "
                      "or {}",
                      every, kMost, kAutoInterval));
    intervals.checkpoint_every = *steps;
    return intervals;
  }
  if (!mtbf)
    throw ConfigError(
        "--checkpoint-every auto: needs --mtbf, how long a device runs from one failure to the "
        "next on average, for example 50000h; or give a number of steps");
  intervals.device_mtbf_hours = mtbf_hours(*mtbf);
  return intervals;
}

}  // namespace meshplan::cli
