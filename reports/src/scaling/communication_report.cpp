#include "reports/scaling/communication_report.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "core/index.hpp"
#include "core/json_text.hpp"
#include "core/units.hpp"
#include "html/step_json.hpp"
#include "planner/search/reasons.hpp"
#include "reports/table.hpp"

namespace meshplan::reports {
namespace {

/// Mean numbers of messages need not be integers: stages differ.
std::string messages_text(double messages) {
  constexpr double kRounding = 1e-9;
  const double whole = std::round(messages);
  return std::abs(messages - whole) <= kRounding * whole ? grouped(static_cast<std::int64_t>(whole))
                                                         : fmt::format("{:.1f}", messages);
}

/// As planner::format_bytes; smaller ones of single numbers, too.
std::string message_bytes(double bytes) {
  constexpr double kKib = 1024;
  if (bytes >= kMib) return planner::format_bytes(bytes);
  return bytes >= kKib ? fmt::format("{:.1f} KiB", bytes / kKib) : fmt::format("{:.0f} B", bytes);
}

std::vector<std::string> row_text(const sim::LinkTraffic& row, const std::string& level,
                                  const std::string& group, const std::string& operation) {
  return {level,
          group,
          operation,
          messages_text(row.messages),
          message_bytes(row.bytes),
          message_bytes(row.sent_bytes),
          row.messages > 0 ? message_bytes(row.bytes / row.messages) : "",
          planner::format_seconds(row.alone_s),
          planner::format_seconds(row.exposed_s)};
}

}  // namespace

std::string communication_text(const SimulationReport& report) {
  Table table{.columns = {{"link", Align::Left},
                          {"group", Align::Left},
                          {"operation", Align::Left},
                          {"messages"},
                          {"bytes"},
                          {"sent"},
                          {"a message"},
                          {"alone"},
                          {"exposed"}},
              .rows = {}};
  std::vector<sim::LinkTraffic> rows = report.traffic;
  std::ranges::stable_sort(rows, {}, [](const sim::LinkTraffic& row) { return row.level; });
  sim::LinkTraffic sum;
  for (const sim::LinkTraffic& row : rows) {
    const std::string kind(sim::name_of(row.category));
    table.rows.push_back(row_text(
        row, row.level ? report.cluster.fabric[at(*row.level)].name : "none",
        row.group == kind ? row.group : fmt::format("{} ({})", row.group, kind), row.operation));
    sum.messages += row.messages;
    sum.bytes += row.bytes;
    sum.sent_bytes += row.sent_bytes;
    sum.alone_s += row.alone_s;
    sum.exposed_s += row.exposed_s;
  }
  table.rows.push_back(row_text(sum, "all", "", ""));
  return "\ncommunication of a rank in a step, the mean over ranks\n" + to_text(table, 2) +
         "  bytes: that it passes in; sent: that it sends, where none are sent twice; alone: what "
         "they take,\n  one by one; exposed: what nothing hides, divided among a kind's rows by "
         "that\n";
}

std::string json_with_communication(const SimulationReport& report) {
  Json json = Json::parse(to_json(report));
  Json& communication = json["communication"];
  communication = {{"levels", Json::array()}, {"rows", Json::array()}};
  for (const LevelJson& level : levels_json(report.cluster))
    communication["levels"].push_back(write_json(level));
  for (const TrafficJson& row : traffic_json(report.traffic))
    communication["rows"].push_back(write_json(row));
  return json_text(json) + "\n";
}

}  // namespace meshplan::reports
