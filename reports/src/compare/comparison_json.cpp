#include "core/json_fields.hpp"
#include "extrapolation_json.hpp"
#include "program/trace/saving_fields.hpp"
#include "reports/comparison.hpp"

namespace meshplan::reports {
namespace {

Json breakdown_json(const sim::Breakdown& seconds) {
  Json object = Json::object();
  for (const sim::Category category : sim::all_categories())
    object[std::string(sim::name_of(category)) + "_s"] = seconds[category];
  return object;
}

Json times_json(const StepTimes& times) {
  return {{"warmup_steps", times.warmup_steps},
          {"steps", times.steps},
          {"median_s", times.median_s},
          {"p10_s", times.p10_s},
          {"p90_s", times.p90_s}};
}

Json split_json(const sim::CommunicationSplit& split) {
  return {{"waiting_s", split.waiting_s},
          {"transfer_s", split.transfer_s},
          {"slowdown_s", split.slowdown_s}};
}

Json causes_json(const std::vector<sim::DelayCause>& causes) {
  Json list = Json::array();
  for (const sim::DelayCause& cause : causes) {
    Json entry{{"kind", name_of(cause.kind)}};
    if (cause.kind != sim::DelayKind::Schedule) {
      entry["rank"] = cause.rank;
      entry["operation"] = cause.operation;
      entry["executions"] = cause.executions;
      entry["usual_s"] = cause.usual_s;
      entry["excess_s"] = cause.excess_s;
    }
    if (cause.kind == sim::DelayKind::Transfer) {
      entry["group"] = cause.group;
      entry["members"] = cause.members;
    }
    entry["waited_s"] = cause.waited_s;
    list.push_back(std::move(entry));
  }
  return list;
}

Json kernels_json(const planner::KernelMatch& match) {
  Json unmatched = Json::array();
  for (const planner::UnmatchedKernel& kernel : match.unmatched)
    unmatched.push_back({{"name", kernel.name},
                         {"kind", planner::name_of(kernel.kind)},
                         {"times", kernel.times},
                         {"seconds", kernel.seconds}});
  return {{"kernels", match.kernels},     {"matched", match.matched()},
          {"by_name", match.by_name},     {"by_size", match.by_size},
          {"by_order", match.by_order},   {"seconds", match.seconds},
          {"matched_s", match.matched_s}, {"unmatched", std::move(unmatched)}};
}

}  // namespace

std::string to_json(const Comparison& c) {
  Json operations = Json::array(), communication = Json::array();
  for (const OperationDifference& d : c.operations)
    operations.push_back(
        {{"name", d.name}, {"predicted_s", d.predicted_s}, {"measured_s", d.measured_s}});
  for (const auto& [group, predicted, measured] : c.communication)
    communication.push_back({{"group", group},
                             {"predicted", split_json(predicted)},
                             {"measured", split_json(measured)}});
  Json root{{"schema_version", 1},
            {"predicted", times_json(c.predicted)},
            {"measured", times_json(c.measured)},
            {"step_time_error", c.step_time_error},
            {"tracing_overhead", c.tracing_overhead},
            {"predicted_memory_bytes", c.predicted_memory_bytes},
            {"measured_memory_bytes", c.measured_memory_bytes},
            {"predicted_mean", breakdown_json(c.predicted_mean)},
            {"measured_mean", breakdown_json(c.measured_mean)},
            {"critical_rank", c.critical_rank},
            {"predicted_critical", breakdown_json(c.predicted_critical)},
            {"measured_critical", breakdown_json(c.measured_critical)},
            {"operations", std::move(operations)},
            {"communication", std::move(communication)},
            {"causes", causes_json(c.causes)}};
  for (const AllocatorPeak& peak : c.allocator)
    root["allocator"].push_back({{"name", peak.name},
                                 {"predicted_bytes", peak.predicted_bytes},
                                 {"measured_bytes", peak.measured_bytes}});
  if (c.saving.disk.predicted) root["saving"] = write_json(c.saving);
  if (c.kernels) root["kernels"] = kernels_json(*c.kernels);
  if (c.interval) root["interval_80_s"] = {c.interval->low_s, c.interval->high_s};
  if (!c.extrapolations.empty()) root["extrapolations"] = extrapolations_json(c.extrapolations);
  return root.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace meshplan::reports
