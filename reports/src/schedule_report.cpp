#include "reports/schedule_report.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "core/json_fields.hpp"
#include "program/schedule/csv.hpp"
#include "sim/engine/timeline.hpp"

namespace meshplan::reports {
namespace {

using program::Schedule;
using program::Task;
using program::TaskKind;

char letter_of(TaskKind kind) {
  switch (kind) {
    case TaskKind::Forward:
      return 'F';
    case TaskKind::BackwardInput:
      return 'I';
    case TaskKind::BackwardWeight:
      return 'W';
    case TaskKind::BackwardFull:
    case TaskKind::Overlapped:
      return 'B';
  }
  return '?';
}

/// "F3", or "F3b" for the second of several chunks.
std::string label(const Schedule& schedule, const Task& part) {
  std::string text = fmt::format("{}{}", letter_of(part.kind), part.microbatch);
  if (schedule.num_chunks > 1) text += static_cast<char>('a' + part.chunk % 26);
  return text;
}

/// The cells of one rank, "" where it waits.
std::vector<std::string> cells(const Schedule& schedule, const sim::Timeline& times,
                               std::size_t stage) {
  std::vector<std::string> row(static_cast<std::size_t>(std::lround(times.end)));
  for (std::size_t i = 0; i < schedule.tasks[stage].size(); ++i) {
    auto cell = static_cast<std::size_t>(std::lround(times.begin[stage][i]));
    for (const Task& part : parts_of(schedule.tasks[stage][i])) {
      const int units = part.kind == TaskKind::BackwardFull ? 2 : 1;
      for (int unit = 0; unit < units; ++unit) row[cell++] = label(schedule, part);
    }
  }
  return row;
}

std::string units(double value) {
  return fmt::format("{:g} unit{}", value, value == 1 ? "" : "s");
}

}  // namespace

std::string to_text(const Schedule& schedule, const std::string& name, int num_microbatches) {
  const sim::Timeline times = sim::timeline(schedule);
  std::vector<std::vector<std::string>> rows;
  std::size_t width = 1;
  for (std::size_t stage = 0; stage < schedule.tasks.size(); ++stage) {
    rows.push_back(cells(schedule, times, stage));
    for (const std::string& cell : rows.back()) width = std::max(width, cell.size());
  }
  std::string text = fmt::format("{}: {} stages, {} chunk{} a rank, {} micro-batches\n\n", name,
                                 schedule.num_stages(), schedule.num_chunks,
                                 schedule.num_chunks == 1 ? "" : "s", num_microbatches);
  for (std::size_t stage = 0; stage < rows.size(); ++stage) {
    std::string line = fmt::format("rank {:<3}", stage);
    for (const std::string& cell : rows[stage])
      line += fmt::format(" {:<{}}", cell.empty() ? "." : cell, width);
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  text += fmt::format(
      "\nstep {} of a chunk's forward; {:.1f} % of all ranks' time is bubble\nin flight at most:",
      units(times.end), 100 * times.bubble_fraction());
  for (int stage = 0; stage < schedule.num_stages(); ++stage)
    text += fmt::format(" {}", max_in_flight(schedule, stage));
  return text + (schedule.num_chunks > 1 ? " chunks of micro-batches\n" : " micro-batches\n");
}

std::string to_json(const Schedule& schedule, const std::string& name, int num_microbatches) {
  const sim::Timeline times = sim::timeline(schedule);
  Json in_flight = Json::array();
  for (int stage = 0; stage < schedule.num_stages(); ++stage)
    in_flight.push_back(max_in_flight(schedule, stage));
  const Json root{{"schema_version", 1},
                  {"schedule", name},
                  {"pp", schedule.num_stages()},
                  {"vpp", schedule.num_chunks},
                  {"num_microbatches", num_microbatches},
                  {"step_units", times.end},
                  {"bubble_fraction", times.bubble_fraction()},
                  {"max_in_flight", std::move(in_flight)},
                  {"csv", program::to_csv(schedule)}};
  return root.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace meshplan::reports
