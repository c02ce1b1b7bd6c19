#include "reports/check_report.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/json_text.hpp"
#include "plan_lines.hpp"
#include "planner/search/reasons.hpp"
#include "planner/search/space.hpp"
#include "reports/search_report.hpp"
#include "reports/table.hpp"

namespace meshplan::reports {
namespace {

using Json = nlohmann::ordered_json;
using planner::CheckResult;
using planner::Effect;
using planner::Judgement;
using planner::PricedChange;
using planner::StageNeed;
using planner::Verdict;

constexpr std::size_t kMostChanges = 8;

std::string stack_line(const planner::RuleSet& rules) {
  if (rules.rules.empty()) return rules.stack + " (its rules are not written down)";
  return rules.commit.empty() ? rules.stack
                              : fmt::format("{} (rules of {})", rules.stack, rules.commit);
}

std::string header(const CheckReport& report) {
  const program::Plan& plan = report.request.plan;
  std::string text =
      fmt::format("model    {}\nstep     {}\nplan     {}, {} rank{}\n", model_line(plan.model),
                  workload_line(plan.workload), planner::describe(planner::candidate_of(plan)),
                  plan.parallel.world_size(), plan.parallel.world_size() == 1 ? "" : "s");
  if (report.request.cluster) text += "cluster  " + cluster_line(*report.request.cluster) + "\n";
  text += "target   " + stack_line(planner::rules_for(report.request.target)) + "\n";
  for (const std::string& change : report.changes) text += "set      " + change + "\n";
  for (const std::string& assumption : report.assumptions) text += "assumed  " + assumption + "\n";
  for (const std::string& ignored : report.ignored) text += "ignored  " + ignored + "\n";
  return text;
}

template <class Wanted>
std::vector<const Judgement*> those(const std::vector<Judgement>& judgements, Wanted wanted) {
  std::vector<const Judgement*> found;
  for (const Judgement& judgement : judgements)
    if (wanted(judgement)) found.push_back(&judgement);
  return found;
}

/// What was judged, and where the stack's source says so. Long messages stand below their rule.
std::string judgement_lines(std::string_view title, const std::vector<const Judgement*>& listed) {
  if (listed.empty()) return "";
  std::string text = fmt::format("\n{}\n", title);
  std::size_t width = 0;
  for (const Judgement* judgement : listed) width = std::max(width, judgement->id.size());
  for (const Judgement* judgement : listed) {
    text += fmt::format("  {:<{}}  {}\n", judgement->id, width, judgement->message);
    if (!judgement->source.empty())
      text += fmt::format("  {:<{}}  [{}]\n", "", width, judgement->source);
  }
  return text;
}

bool costs(const Judgement& judgement) {
  return judgement.verdict == Verdict::Failed && judgement.effect == Effect::Costs;
}

std::string judgements_text(const std::vector<Judgement>& judgements, bool all) {
  const auto passed = those(
      judgements, [](const Judgement& judgement) { return judgement.verdict == Verdict::Passed; });
  std::string text =
      judgement_lines(
          "refused",
          those(judgements, [](const Judgement& judgement) { return judgement.refuses(); })) +
      judgement_lines("costs (it starts all the same)", those(judgements, costs)) +
      judgement_lines("undecidable from the plan",
                      those(judgements, [](const Judgement& judgement) {
                        return judgement.verdict == Verdict::Undecidable;
                      }));
  if (judgements.empty()) return text;
  if (all) return text + judgement_lines("passed", passed);
  return text + fmt::format("\n{} of {} rules passed (--all lists them)\n", passed.size(),
                            judgements.size());
}

std::string memory_text(const CheckReport& report) {
  const CheckResult& result = report.result;
  if (result.stages.empty())
    return fmt::format("\nmemory   not predicted: {}\n", result.not_predicted);
  Table table{.columns = {{"stage"}, {"needs"}, {"of"}, {"room"}, {"", Align::Right}}, .rows = {}};
  for (const StageNeed& stage : result.stages) {
    const double room = stage.room_bytes();
    table.rows.push_back({std::to_string(stage.stage), planner::format_bytes(stage.bytes),
                          planner::format_bytes(stage.capacity_bytes),
                          (room < 0 ? "-" : "") + planner::format_bytes(std::abs(room)),
                          percent(room / stage.capacity_bytes)});
  }
  const StageNeed& fullest = *result.fullest();
  std::string text = "\nmemory of each stage's fullest rank, predicted\n" + to_text(table, 2);
  if (!report.request.plan.stack.is_own()) text += "  " + shown_memory_line(fullest.shown);
  text += "  " + memory_verdict(fullest, fullest.stage, report.request.plan.stack,
                                report.request.memory_reserve);
  return text + other_releases_line(result.other_releases);
}

std::string changes_text(std::string_view title, const std::vector<PricedChange>& changes,
                         const sim::StepPrediction& now) {
  Table table{.columns = {{"", Align::Left}, {"step time"}, {""}, {"memory"}, {"", Align::Left}},
              .rows = {}};
  for (const PricedChange& change : changes) {
    if (table.rows.size() == kMostChanges) break;
    std::string set;
    for (const std::string& setting : change.settings) set += " --set " + setting;
    table.rows.push_back({change.words, planner::format_seconds(change.step.step_time_s),
                          signed_percent(change.step.step_time_s / now.step_time_s - 1),
                          planner::format_bytes(change.step.peak_memory_bytes), set.substr(1)});
  }
  return fmt::format("\n{}\n{}", title, to_text(table, 2));
}

std::string advice_text(const CheckResult& result) {
  if (!result.step) return "";
  std::string text =
      fmt::format("\nstep     {}, estimated; MFU {}\n",
                  planner::format_seconds(result.step->step_time_s), percent(result.step->mfu));
  if (!result.fits()) {
    if (result.fitting.empty())
      return text + "no change of one or two settings makes it fit; `meshplan plan` searches all\n";
    return text +
           changes_text("what would fit, fastest first (estimated)", result.fitting, *result.step);
  }
  if (result.faster.empty())
    return text + fmt::format("no single change that fits is faster by more than {:.0f} %\n",
                              100 * planner::kWorthIt);
  return text + changes_text("what would be faster and train the same (estimated)", result.faster,
                             *result.step);
}

std::string verdict_text(const CheckReport& report) {
  const planner::RuleSet& rules = planner::rules_for(report.request.target);
  const std::string& stack = rules.stack;
  const std::string fit = report.result.fits() ? "fits" : "does not fit";
  if (rules.rules.empty())
    return report.result.stages.empty()
               ? fmt::format(
                     "\nverdict  none: no rules of {} are written down, and memory is not "
                     "predicted\n",
                     stack)
               : fmt::format("\nverdict  the plan {}\n", fit);
  const auto refusing = std::ranges::count_if(report.result.judgements, &Judgement::refuses);
  if (refusing > 0)
    return fmt::format("\nverdict  {} does not start this plan: {} rule{} broken\n", stack,
                       refusing, refusing == 1 ? "" : "s");
  if (report.result.stages.empty())
    return fmt::format("\nverdict  no rule of {} is broken\n", stack);
  return fmt::format("\nverdict  no rule of {} is broken, and the plan {}\n", stack, fit);
}

std::string_view word_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::Passed:
      return "passed";
    case Verdict::Failed:
      return "failed";
    case Verdict::Undecidable:
      return "undecidable";
  }
  return "";
}

std::string_view word_of(Effect effect) {
  return effect == Effect::Refused ? "refused" : "costs";
}

Json judgement_json(const Judgement& judgement) {
  Json json{{"rule", judgement.id},
            {"name", judgement.name},
            {"verdict", word_of(judgement.verdict)},
            {"effect", word_of(judgement.effect)},
            {"applies", judgement.applies},
            {"message", judgement.message},
            {"source", judgement.source}};
  if (judgement.nearest)
    json["nearest"] = {{"fact", judgement.nearest->fact},
                       {"value", judgement.nearest->value},
                       {"breaks", judgement.nearest->breaks}};
  return json;
}

Json changes_json(const std::vector<PricedChange>& changes) {
  Json list = Json::array();
  for (const PricedChange& change : changes)
    list.push_back({{"change", change.words},
                    {"set", change.settings},
                    {"step_time_s", change.step.step_time_s},
                    {"peak_memory_bytes", change.step.peak_memory_bytes}});
  return list;
}

}  // namespace

std::string to_text(const CheckReport& report, bool all) {
  return header(report) + judgements_text(report.result.judgements, all) + memory_text(report) +
         advice_text(report.result) + verdict_text(report);
}

std::string to_json(const CheckReport& report) {
  const CheckResult& result = report.result;
  Json judgements = Json::array(), stages = Json::array();
  for (const Judgement& judgement : result.judgements)
    judgements.push_back(judgement_json(judgement));
  for (const StageNeed& stage : result.stages)
    stages.push_back({{"stage", stage.stage},
                      {"bytes", stage.bytes},
                      {"capacity_bytes", stage.capacity_bytes},
                      {"of_host", stage.of_host},
                      {"allocated_bytes", stage.shown.allocated_bytes},
                      {"reserved_bytes", stage.shown.reserved_bytes},
                      {"device_bytes", stage.shown.device_bytes}});
  Json root{{"schema_version", 1},
            {"target", report.request.target},
            {"valid", result.valid()},
            {"rules", std::move(judgements)},
            {"assumptions", report.assumptions},
            {"ignored", report.ignored}};
  if (result.stages.empty()) {
    root["not_predicted"] = result.not_predicted;
  } else {
    root["fits"] = result.fits();
    root["memory_verdict"] =
        verdict_json(*result.fullest(), report.request.plan.stack, report.request.memory_reserve);
    root["other_releases"] = result.other_releases;
    root["memory"] = std::move(stages);
    root["step_time_s"] = result.step->step_time_s;
    root["fitting"] = changes_json(result.fitting);
    root["faster"] = changes_json(result.faster);
  }
  return json_text(root) + "\n";
}

std::string rules_text(const planner::RuleSet& rules) {
  std::string text = stack_line(rules) + "\n";
  for (const planner::Rule& rule : rules.rules) {
    text += fmt::format("\n{}  {}{}\n", rule.id, rule.name,
                        rule.effect == Effect::Costs ? " (costs; it starts all the same)" : "");
    if (!rule.when.empty()) text += fmt::format("  when      {}\n", rule.when);
    if (!rule.requirement.empty()) text += fmt::format("  requires  {}\n", rule.requirement);
    if (!rule.undecidable.empty()) text += fmt::format("  undecidable: {}\n", rule.undecidable);
    text += fmt::format("  {}\n  [{}]\n", rule.reason, rule.source);
  }
  if (rules.settings.empty() && rules.terms.empty()) return text;
  Table names{.columns = {{"", Align::Left}, {"", Align::Left}, {"", Align::Left}}, .rows = {}};
  for (const planner::Term& term : rules.terms) names.rows.push_back({term.name, term.value, ""});
  for (const planner::Setting& setting : rules.settings)
    names.rows.push_back(
        {setting.name, setting.value.empty() ? "not known" : setting.value, setting.meaning});
  return text + "\nnames beside those of a plan, and what they are unless a file says otherwise\n" +
         to_text(names, 2);
}

std::string targets_text(const std::vector<std::string>& targets) {
  Table table{.columns = {{"target", Align::Left}, {"rules"}, {"of", Align::Left}}, .rows = {}};
  for (const std::string& target : targets) {
    const planner::RuleSet& rules = planner::rules_for(target);
    table.rows.push_back({target, std::to_string(rules.rules.size()), stack_line(rules)});
  }
  return to_text(table);
}

std::string rules_json(const std::vector<std::string>& targets) {
  Json sets = Json::array();
  for (const std::string& target : targets) {
    const planner::RuleSet& set = planner::rules_for(target);
    Json rules = Json::array();
    for (const planner::Rule& rule : set.rules)
      rules.push_back({{"id", rule.id},
                       {"name", rule.name},
                       {"when", rule.when},
                       {"requires", rule.requirement},
                       {"nearest", rule.nearest},
                       {"reason", rule.reason},
                       {"undecidable", rule.undecidable},
                       {"effect", word_of(rule.effect)},
                       {"source", rule.source}});
    sets.push_back({{"target", set.target},
                    {"stack", set.stack},
                    {"commit", set.commit},
                    {"software", set.software},
                    {"rules", std::move(rules)}});
  }
  return Json({{"schema_version", 1}, {"targets", std::move(sets)}}).dump(2) + "\n";
}

}  // namespace meshplan::reports
