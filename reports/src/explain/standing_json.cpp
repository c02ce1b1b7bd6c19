#include "explain/standing_json.hpp"

#include <string>

#include "planner/search/reasons.hpp"
#include "planner/search/space.hpp"

namespace meshplan::reports {
namespace {

using Json = nlohmann::ordered_json;

}  // namespace

Json priced_json(const planner::PricedPlan& priced) {
  Json parts = Json::object(), breakdown = Json::object(), memory = Json::array();
  for (const sim::StepPart part : sim::all_step_parts())
    parts[std::string(sim::name_of(part))] = priced.parts[part];
  for (const sim::Category category : sim::all_categories())
    breakdown[std::string(sim::name_of(category))] = priced.step.seconds[category];
  for (const planner::StageMemoryParts& stage : priced.memory) {
    Json bytes = Json::object();
    for (const planner::MemoryPart& part : stage.parts) bytes[part.name] = part.bytes;
    memory.push_back({{"stage", stage.stage},
                      {"total_bytes", stage.total_bytes()},
                      {"capacity_bytes", stage.capacity_bytes},
                      {"parts_bytes", std::move(bytes)}});
  }
  const sim::Interval interval = sim::interval_of(priced.terms, priced.step.step_time_s);
  return {{"description", planner::describe(planner::candidate_of(priced.plan))},
          {"step_time_s", priced.step.step_time_s},
          {"interval_80_s", {interval.low_s, interval.high_s}},
          {"mfu", priced.step.mfu},
          {"parts_s", std::move(parts)},
          {"breakdown_s", std::move(breakdown)},
          {"peak_memory_bytes", priced.step.peak_memory_bytes},
          {"capacity_bytes", priced.step.capacity_bytes},
          {"largest_stage", priced.step.largest_stage},
          {"memory", std::move(memory)}};
}

Json turning_points_json(const std::vector<planner::TurningPoint>& points) {
  Json json = Json::object();
  for (const planner::TurningPoint& point : points)
    json[point.figure] = point.factor ? Json(*point.factor) : Json();
  return json;
}

Json thumb_json(const planner::ThumbStanding& thumb, const planner::TimedPlan& first) {
  Json json{
      {"description",
       thumb.rule.plan ? Json(planner::describe(planner::candidate_of(*thumb.rule.plan))) : Json()},
      {"reason", thumb.rule.reason}};
  if (thumb.standing) json.update(standing_json(*thumb.standing, first));
  if (thumb.estimated_times) json["estimated_times"] = *thumb.estimated_times;
  return json;
}

Json standing_json(const planner::Standing& standing, const planner::TimedPlan& first) {
  Json json{{"answer", planner::name_of(standing.answer)}};
  if (!standing.broken.empty()) {
    Json rules = Json::array();
    for (const program::Violation& violation : standing.broken)
      rules.push_back({{"rule", violation.rule}, {"message", violation.message}});
    json["broken_rules"] = std::move(rules);
  }
  if (!standing.priced) return json;
  Json differences = Json::object();
  for (const planner::DifferencePart& part :
       planner::difference_parts(first.step, standing.priced->step))
    differences[part.name] = part.seconds;
  json["slower_by_s"] = standing.slower_by_s;
  json["told_apart_s"] = standing.told_apart_s;
  json["differences_s"] = std::move(differences);
  json["missing_bytes"] = standing.missing_bytes;
  json["plan"] = priced_json(*standing.priced);
  return json;
}

Json why_not_json(const planner::WhyNot& answer, const planner::TimedPlan& first) {
  const auto list = [](const std::vector<planner::ChoiceChange>& changes) {
    Json json = Json::array();
    for (const planner::ChoiceChange& change : changes)
      json.push_back({{"choice", change.name}, {"before", change.before}, {"after", change.after}});
    return json;
  };
  Json json{{"given", planner::describe(planner::candidate_of(first.plan))},
            {"given_step_time_s", first.step.step_time_s},
            {"asked", list(answer.changed.asked)},
            {"followed", list(answer.changed.followed)}};
  json.update(standing_json(answer.standing, first));
  return json;
}

}  // namespace meshplan::reports
