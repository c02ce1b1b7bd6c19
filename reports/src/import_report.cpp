#include "reports/import_report.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/printable.hpp"
#include "plan_lines.hpp"
#include "planner/search/space.hpp"
#include "program/plan_file/plan_file.hpp"
#include "reports/search_report.hpp"

namespace meshplan::reports {
namespace {

std::string listed(std::string_view title, const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines)
    text += fmt::format("{:<8} {}\n", title, printable_line(line));
  return text;
}

}  // namespace

std::string to_text(const ImportReport& report) {
  const program::Plan& plan = report.plan;
  std::string text = fmt::format(
      "file     {} ({})\nmodel    {}\nstep     {}\nplan     {}, {} micro-batch{}, {} rank{}\n",
      printable_line(report.file), report.format, model_line(plan.model),
      workload_line(plan.workload), planner::describe(planner::candidate_of(plan)),
      plan.num_microbatches(), plan.num_microbatches() == 1 ? "" : "es", plan.parallel.world_size(),
      plan.parallel.world_size() == 1 ? "" : "s");
  text += fmt::format("priced   as runs of {}\n", plan.stack.software);
  text += settings_line(plan.stack);
  return text + listed("assumed", report.assumptions) + listed("ignored", report.ignored);
}

std::string to_json(const ImportReport& report) {
  return nlohmann::ordered_json(
             {{"file", report.file},
              {"format", report.format},
              {"software", report.plan.stack.software},
              {"assumptions", report.assumptions},
              {"ignored", report.ignored},
              {"plan", nlohmann::ordered_json::parse(program::to_json(report.plan))}})
             .dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) +
         "\n";
}

}  // namespace meshplan::reports
