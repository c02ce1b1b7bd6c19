#include "reports/explain/diff_report.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "explain/standing_json.hpp"
#include "explain/standing_text.hpp"
#include "explain/step_part_names.hpp"
#include "planner/search/reasons.hpp"
#include "planner/search/space.hpp"
#include "program/plan_file/plan_settings.hpp"
#include "reports/table.hpp"

namespace meshplan::reports {
namespace {

using Json = nlohmann::ordered_json;
using planner::ComparedPlans;
using planner::PricedPlan;

constexpr const char* kClusterFile = "cluster.";

std::string description(const PricedPlan& priced) {
  return planner::describe(planner::candidate_of(priced.plan));
}

/// Clusters of two names differ in all of their figures, which the name says shorter.
std::vector<program::SettingDifference> shown_settings(const ComparedPlans& compared) {
  const program::Plan &a = compared.a.plan, &b = compared.b.plan;
  std::vector<program::SettingDifference> settings = program::differing_settings(a, b);
  if (a.cluster_name != b.cluster_name)
    std::erase_if(settings, [](const program::SettingDifference& setting) {
      return setting.path.starts_with(kClusterFile);
    });
  return settings;
}

std::string settings_text(const ComparedPlans& compared) {
  const auto settings = shown_settings(compared);
  if (settings.empty()) return "\nthe plans say the same\n";
  Table table{.columns = {{"setting", Align::Left}, {"A"}, {"B"}}, .rows = {}};
  for (const auto& [path, a, b] : settings) table.rows.push_back({path, a, b});
  return "\n" + to_text(table, 2);
}

std::string memory_of(const PricedPlan& priced, std::size_t place) {
  return place < priced.memory.size() ? planner::format_bytes(priced.memory[place].total_bytes())
                                      : "-";
}

std::string memory_text(const ComparedPlans& compared) {
  const auto &a = compared.a.memory, &b = compared.b.memory;
  Table table{.columns = {{"memory of stage", Align::Left}, {"A"}, {"B"}, {"B - A"}}, .rows = {}};
  for (std::size_t s = 0; s < std::max(a.size(), b.size()); ++s) {
    const bool both = s < a.size() && s < b.size();
    const double more = both ? b[s].total_bytes() - a[s].total_bytes() : 0;
    table.rows.push_back({std::to_string(s < a.size() ? a[s].stage : b[s].stage),
                          memory_of(compared.a, s), memory_of(compared.b, s),
                          !both ? ""
                          : more == 0
                              ? "0"
                              : (more < 0 ? "-" : "+") + planner::format_bytes(std::abs(more))});
  }
  return "\n" + to_text(table, 2);
}

std::string parts_text(const ComparedPlans& compared) {
  const PricedPlan &a = compared.a, &b = compared.b;
  Table table{.columns = {{"where the time goes", Align::Left}, {"A"}, {"B"}, {"B - A"}},
              .rows = {}};
  const auto add = [&](std::string_view name, double of_a, double of_b) {
    table.rows.push_back({std::string(name), planner::format_seconds(of_a),
                          planner::format_seconds(of_b),
                          of_a == of_b ? "0" : planner::signed_seconds(of_b - of_a)});
  };
  for (const sim::StepPart part : sim::all_step_parts())
    if (a.parts[part] != 0 || b.parts[part] != 0)
      add(words_for(part), a.parts[part], b.parts[part]);
  add("step time", a.step.step_time_s, b.step.step_time_s);
  table.rows.push_back({"MFU", percent(a.step.mfu), percent(b.step.mfu), ""});
  table.rows.push_back(
      {"tokens/s", short_count(compared.tokens_per_s_a), short_count(compared.tokens_per_s_b), ""});
  return "\n" + to_text(table, 2);
}

std::string fits_text(const PricedPlan& priced, const char* name) {
  if (priced.step.fits()) return "";
  return fmt::format("{} does not fit: stage {} needs {}\n", name, priced.step.largest_stage,
                     planner::shortage(priced.step.peak_memory_bytes, priced.step.capacity_bytes,
                                       priced.step.of_host));
}

std::string winner_text(const ComparedPlans& compared) {
  const double apart = std::abs(compared.slower_by_s);
  const std::string told = planner::format_seconds(compared.told_apart_s);
  const char* work = compared.same_work ? "" : " for A's tokens";
  if (compared.slower_by_s == 0) return "both take as long\n";
  const char* winner = compared.slower_by_s < 0 ? "B" : "A";
  if (compared.ties())
    return fmt::format("a tie: {} is {} faster{}, and differences below {} cannot be told\n",
                       winner, planner::format_seconds(apart), work, told);
  return fmt::format("{} is {} faster{}: {} more than the {} below which it would be a tie\n",
                     winner, planner::format_seconds(apart), work,
                     planner::format_seconds(apart - compared.told_apart_s), told);
}

}  // namespace

std::string to_text(const ComparedPlans& compared) {
  std::string text =
      fmt::format("A  {}\nB  {}\n", description(compared.a), description(compared.b));
  text += settings_text(compared) + memory_text(compared) + parts_text(compared) + "\n";
  return text + verdict_text(compared);
}

std::string verdict_text(const ComparedPlans& compared) {
  std::string text;
  if (!compared.same_work) text += "the plans do different work: times are not of the same thing\n";
  text += fits_text(compared.a, "A") + fits_text(compared.b, "B");
  return text + winner_text(compared);
}

std::string to_json(const ComparedPlans& compared) {
  Json settings = Json::array(), differences = Json::object();
  for (const auto& [path, a, b] : program::differing_settings(compared.a.plan, compared.b.plan))
    settings.push_back({{"setting", path}, {"a", a}, {"b", b}});
  for (const sim::StepPart part : sim::all_step_parts())
    differences[std::string(sim::name_of(part))] = compared.b.parts[part] - compared.a.parts[part];
  return Json({{"schema_version", 1},
               {"a", priced_json(compared.a)},
               {"b", priced_json(compared.b)},
               {"settings", std::move(settings)},
               {"differences_s", std::move(differences)},
               {"same_work", compared.same_work},
               {"same_cluster", compared.same_cluster},
               {"tokens_per_s_a", compared.tokens_per_s_a},
               {"tokens_per_s_b", compared.tokens_per_s_b},
               {"slower_by_s", compared.slower_by_s},
               {"told_apart_s", compared.told_apart_s},
               {"tie", compared.ties()}})
             .dump(2) +
         "\n";
}

}  // namespace meshplan::reports
