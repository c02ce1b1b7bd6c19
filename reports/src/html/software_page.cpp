#include <nlohmann/json.hpp>
#include <sstream>

#include "html/template.hpp"
#include "plan_lines.hpp"
#include "planner/search/space.hpp"
#include "reports/software_report.hpp"
#include "sim/stacks/stack_memory.hpp"

namespace meshplan::reports {
namespace {

using Json = nlohmann::ordered_json;

/// "model    llama3-8b ..." as a name and a text, line by line.
Json header_of(const SoftwareReport& report) {
  Json lines = Json::array();
  std::istringstream text(plan_header(report.plan, report.cluster) +
                          settings_line(report.plan.stack) + assumed_line(report));
  for (std::string line; std::getline(text, line);) {
    const std::size_t space = line.find(' ');
    lines.push_back({{"name", line.substr(0, space)},
                     {"text", line.substr(line.find_first_not_of(' ', space))}});
  }
  return lines;
}

}  // namespace

std::string to_html(const SoftwareReport& report, const std::string& generator) {
  std::string verdict = memory_verdict(report.step.need(), report.step.largest_stage,
                                       report.plan.stack, report.memory_reserve) +
                        other_releases_line(report.other_releases);
  while (!verdict.empty() && verdict.back() == '\n') verdict.pop_back();
  const Json data{{"title", report.plan.model.name},
                  {"description", planner::describe(planner::candidate_of(report.plan)) + " by " +
                                      report.plan.stack.software},
                  {"generator", generator},
                  {"verdict", verdict},
                  {"header", header_of(report)},
                  {"report", Json::parse(to_json(report))}};
  return filled(software_template(), data.dump(-1, ' ', false, Json::error_handler_t::replace),
                to_text(report));
}

}  // namespace meshplan::reports
