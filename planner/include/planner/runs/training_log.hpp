// Step times out of the log that a training run of another stack has printed.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/text_blocks.hpp"
#include "program/plan/plan.hpp"
#include "program/trace/saving_report.hpp"

namespace meshplan::planner {

/// The most steps that a log is read of.
constexpr std::size_t kMostLoggedSteps = std::size_t{1} << 21;

struct LoggedRun {
  std::string format;                // "Megatron-LM"
  std::vector<double> step_times_s;  // of each step that is logged, in its order
  int first_line = 0;                // 1 = the first of the file
  int step_lines = 0;                // which say the time of a step; ranks may repeat one
  int other_lines = 0;
  // The most that PyTorch's allocator held on a rank that says so; 0: none does.
  double allocated_bytes = 0;
  double reserved_bytes = 0;
  /// Of `meshplan run`: what the last of its summaries says.
  std::optional<program::SavingReport> saving = {};
};

/// Reads lines of Megatron-LM (also of Megatron-DeepSpeed), torchtitan, nanotron, DeepSpeed's timer
/// and `meshplan run --log`; colours and what a launcher puts before a line are skipped. A step
/// that several ranks log takes as long as the slowest of them says.
/// @param plan  of the run: its tokens and ranks turn throughput into time
/// @throws ConfigError naming file and line for a line of such a stack that cannot be read, for a
/// batch that is not the plan's, where no line says the time of a step, or more than are read do
LoggedRun parse_training_log(const TextBlocks& text, const std::string& file,
                             const program::Plan& plan);
LoggedRun parse_training_log(std::string_view text, const std::string& file,
                             const program::Plan& plan);

}  // namespace meshplan::planner
