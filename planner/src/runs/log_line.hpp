// One line of a log: whose it is, and what it says of a step.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "program/plan/plan.hpp"
#include "program/trace/saving_report.hpp"

namespace meshplan::planner {

/// A line of a log, and where it stands.
struct LogLine {
  std::string text;   // without colours
  std::string place;  // "train.log:12"
};

struct LoggedStep {
  std::int64_t step = 0;
  double seconds = 0;
};

/// Peaks of PyTorch's allocator that a line states, in bytes; 0: it states none.
struct LoggedMemory {
  double allocated = 0;
  double reserved = 0;
};
/// Of lines as Megatron-LM, torchtitan, nanotron and DeepSpeed print them; what cannot be read
/// states nothing.
LoggedMemory memory_of(const LogLine& line);

/// What saving cost, of the last line of `meshplan run --log`; absent of other lines.
/// @throws ConfigError naming the place for such a line that cannot be read
std::optional<program::SavingReport> saving_of(const LogLine& line);

/// How a stack writes steps.
struct LogFormat {
  std::string_view name;
  /// Absent: the line is no step's. @throws ConfigError
  std::optional<LoggedStep> (*read)(const LogLine& line, const program::Plan& plan);
};

/// Where several match in a file, the first of these is read: it says times, later ones throughput.
const std::vector<LogFormat>& log_formats();

}  // namespace meshplan::planner
