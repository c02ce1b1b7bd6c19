#include "planner/runs/training_log.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>

#include "core/error.hpp"
#include "runs/log_line.hpp"

namespace meshplan::planner {
namespace {

/// Without the escape sequences that colour it (ESC [ ... letter), and without a carriage return.
std::string plain(std::string_view line) {
  std::string text;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '\r') continue;
    if (line[i] != '\x1b') {
      text += line[i];
      continue;
    }
    if (i + 1 < line.size() && line[i + 1] == '[') ++i;
    while (i + 1 < line.size() && (line[i + 1] < '@' || line[i + 1] > '~')) ++i;
    ++i;
  }
  return text;
}

std::vector<LogLine> lines_of(std::string_view text, const std::string& file) {
  std::vector<LogLine> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back({.text = plain(text.substr(begin, end - begin)),
                     .place = fmt::format("{}:{}", file, lines.size() + 1)});
    begin = end + 1;
  }
  return lines;
}

LoggedRun read_as(const LogFormat& format, const std::vector<LogLine>& lines,
                  const program::Plan& plan) {
  LoggedRun run{.format = std::string(format.name), .step_times_s = {}};
  std::map<std::int64_t, double> steps;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto step = format.read(lines[i], plan);
    if (!step) {
      ++run.other_lines;
      continue;
    }
    if (run.step_lines++ == 0) run.first_line = static_cast<int>(i) + 1;
    double& seconds = steps[step->step];
    seconds = std::max(seconds, step->seconds);
  }
  for (const auto& [number, seconds] : steps) run.step_times_s.push_back(seconds);
  return run;
}

}  // namespace

LoggedRun parse_training_log(std::string_view text, const std::string& file,
                             const program::Plan& plan) {
  const std::vector<LogLine> lines = lines_of(text, file);
  std::vector<std::string_view> names;
  for (const LogFormat& format : log_formats()) {
    names.push_back(format.name);
    LoggedRun run = read_as(format, lines, plan);
    if (run.step_lines > 0) return run;
  }
  throw ConfigError(fmt::format(
      "{}:1: none of {} lines says the time of a step as {} print it, for example 'iteration 10/ "
      "1000 | elapsed time per iteration (ms): 14660.1 |'; a time alone is given by --step-time",
      file, lines.size(), fmt::join(names, ", ")));
}

}  // namespace meshplan::planner
