#include "planner/runs/training_log.hpp"

#include <algorithm>
#include <exception>
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

/// What a format has found so far.
struct Reading {
  const LogFormat* format;
  LoggedRun run;
  std::map<std::int64_t, double> steps;
  std::exception_ptr error = nullptr;  // at its first line that cannot be read

  bool has_ended_others() const { return error || run.step_lines > 0; }
};

void add_line(Reading& reading, const LogLine& line, std::size_t number,
              const program::Plan& plan) {
  const auto step = reading.format->read(line, plan);
  if (!step) return;
  if (reading.run.step_lines++ == 0) reading.run.first_line = static_cast<int>(number);
  double& seconds = reading.steps[step->step];
  seconds = std::max(seconds, step->seconds);
  if (reading.steps.size() > kMostLoggedSteps)
    throw ConfigError(
        fmt::format("{}: more than {} steps, the limit", line.place, kMostLoggedSteps));
}

/// What a log says beside its steps.
struct Beside {
  LoggedMemory memory;
  std::optional<program::SavingReport> saving = {};
};

/// The first format of the list that reads a step, or fails to, is the log's. So later ones are
/// dropped as soon as one does, and all are read in one pass.
std::vector<Reading> read_all(const TextBlocks& text, const std::string& file,
                              const program::Plan& plan, std::size_t& lines, Beside& beside) {
  std::vector<Reading> readings;
  for (const LogFormat& format : log_formats())
    readings.push_back({.format = &format,
                        .run = {.format = std::string(format.name), .step_times_s = {}},
                        .steps = {}});
  for_each_line(text, file, [&](std::string_view raw, std::size_t number) {
    lines = number;
    if (raw.empty()) return;
    const LogLine line{.text = plain(raw), .place = fmt::format("{}:{}", file, number)};
    const LoggedMemory stated = memory_of(line);
    beside.memory.allocated = std::max(beside.memory.allocated, stated.allocated);
    beside.memory.reserved = std::max(beside.memory.reserved, stated.reserved);
    if (const auto saving = saving_of(line)) beside.saving = saving;
    for (std::size_t i = 0; i < readings.size(); ++i) {
      if (readings[i].error) break;
      try {
        add_line(readings[i], line, number, plan);
      } catch (const ConfigError&) {
        if (i == 0) throw;
        readings[i].error = std::current_exception();
      }
      if (readings[i].has_ended_others())
        readings.erase(readings.begin() + static_cast<std::ptrdiff_t>(i) + 1, readings.end());
    }
  });
  return readings;
}

}  // namespace

LoggedRun parse_training_log(const TextBlocks& text, const std::string& file,
                             const program::Plan& plan) {
  std::size_t lines = 0;
  Beside beside;
  for (Reading& reading : read_all(text, file, plan, lines, beside)) {
    if (reading.error) std::rethrow_exception(reading.error);
    if (reading.run.step_lines == 0) continue;
    reading.run.other_lines = static_cast<int>(lines) - reading.run.step_lines;
    reading.run.allocated_bytes = beside.memory.allocated;
    reading.run.reserved_bytes = beside.memory.reserved;
    reading.run.saving = beside.saving;
    for (const auto& [number, seconds] : reading.steps) reading.run.step_times_s.push_back(seconds);
    return std::move(reading.run);
  }
  std::vector<std::string_view> names;
  for (const LogFormat& format : log_formats()) names.push_back(format.name);
  throw ConfigError(fmt::format(
      "{}:1: none of {} lines says the time of a step as {} print it, for example 'iteration 10/ "
      "1000 | elapsed time per iteration (ms): 14660.1 |'; a time alone is given by --step-time",
      file, lines, fmt::join(names, ", ")));
}

LoggedRun parse_training_log(std::string_view text, const std::string& file,
                             const program::Plan& plan) {
  return parse_training_log(one_block(text), file, plan);
}

}  // namespace meshplan::planner
