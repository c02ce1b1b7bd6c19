#include "reports/run_report.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <utility>

#include "core/json_fields.hpp"
#include "core/units.hpp"
#include "plan_lines.hpp"
#include "program/cost/cost.hpp"
#include "program/cost/model_flops.hpp"
#include "program/plan/plan_names.hpp"
#include "program/plan_file/plan_file.hpp"
#include "program/trace/saving_fields.hpp"
#include "reports/comparison.hpp"
#include "reports/machine_drift.hpp"
#include "reports/search_report.hpp"
#include "reports/table.hpp"
#include "sim/prices/pricing.hpp"
#include "timing_report.hpp"

namespace meshplan::reports {
namespace {

double tokens_per_step(const program::Plan& plan) {
  return static_cast<double>(plan.workload.global_batch_size * plan.workload.seq_len);
}

/// As it is, and at the speed that the machine had when it was calibrated.
std::string against_prediction(const program::Trace& trace, double measured_s) {
  const program::Plan& plan = trace.plan;
  if (!plan.prediction || measured_s <= 0) return {};
  const double predicted_s = plan.prediction->step_time_s;
  const double error = predicted_s / measured_s - 1;
  std::string text = fmt::format("predicted   {:.2f} ms a step: {:+.1f} %\n",
                                 predicted_s * kMilliseconds, error * 100);
  const auto now = trace.machine ? slowdown(*trace.machine, plan.cluster_json) : std::nullopt;
  if (!now) return text;
  return text + fmt::format("machine     {} than at calibration; at that speed {:+.1f} %\n",
                            change(*now),
                            100 * error_at_calibrated_speed(predicted_s, measured_s, *now));
}

std::optional<double> mfu(const RunSummary& summary, double step_s) {
  if (summary.job_peak_flop_per_s <= 0 || step_s <= 0) return std::nullopt;
  return program::model_flops_per_step(summary.trace.plan) / (step_s * summary.job_peak_flop_per_s);
}

std::string peak_line(const RunHeader& header) {
  if (!header.peak) return "MFU is not given: the plan names no cluster, so no peak is known\n";
  return fmt::format("MFU is of {:.4g} TFLOP/s: {}\n", header.peak->job_flop_per_s / kTera,
                     header.peak->source);
}

Json machine_json(const program::Trace& trace) {
  if (!trace.machine) return nullptr;
  const program::MachineSpeed& machine = *trace.machine;
  const auto slower = slowdown(machine, trace.plan.cluster_json);
  return {{"reference_s", machine.reference_s},
          {"slowdown", slower ? Json(*slower) : Json(nullptr)},
          {"other_cores", machine.other_cores},
          {"cores", machine.cores}};
}

/// " (predicted 313.2)"; empty without a prediction.
std::string beside_measured(const std::optional<program::PredictedSave>& predicted,
                            const char* format, double value) {
  return predicted ? fmt::format(" (predicted {})", fmt::format(fmt::runtime(format), value)) : "";
}

/// "disk 3 times, 313.2 MiB a rank (predicted 313.2), holding steps up by ..."
std::string saving_text(const char* place, const program::SavingTimes& times) {
  const auto& predicted = times.predicted;
  const double mib = predicted ? static_cast<double>(predicted->bytes) / kMib : 0;
  const double stall_ms = predicted ? predicted->stall_s * kMilliseconds : 0;
  return fmt::format(
      "{} {} times, {:.1f} MiB a rank{}, holding steps up by {:.2f} ms each{}, {} of "
      "their time{}",
      place, times.saves, static_cast<double>(times.bytes) / kMib,
      beside_measured(predicted, "{:.1f}", mib), times.stall_of_save_s() * kMilliseconds,
      beside_measured(predicted, "{:.2f}", stall_ms), percent(times.stall_share),
      times.skipped > 0 ? fmt::format(", {} skipped", times.skipped) : "");
}

/// "saving      disk 3 times, ..."; empty if nothing was saved while the run went on.
std::string saving_line(const program::SavingReport& saving) {
  std::string text;
  for (const auto& [place, times] :
       {std::pair{"disk", &saving.disk}, std::pair{"memory", &saving.memory}})
    if (times->saves > 0 || times->skipped > 0)
      text += (text.empty() ? "saving      " : "; ") + saving_text(place, *times);
  return text.empty() ? text : text + "\n";
}

Json summary_fields(const RunSummary& summary) {
  const program::Trace& trace = summary.trace;
  const StepTimes times = step_times(trace);
  const std::optional<double> utilization = mfu(summary, times.median_s);
  return {{"schema_version", 1},
          {"world_size", trace.world_size},
          {"warmup_steps", times.warmup_steps},
          {"median_step_time_s", times.median_s},
          {"p10_step_time_s", times.p10_s},
          {"p90_step_time_s", times.p90_s},
          {"tokens_per_s", tokens_per_step(trace.plan) / times.median_s},
          {"samples_per_s",
           static_cast<double>(trace.plan.workload.global_batch_size) / times.median_s},
          {"model_flop_per_s", program::model_flops_per_step(trace.plan) / times.median_s},
          {"mfu", utilization ? Json(*utilization) : Json(nullptr)},
          {"peak_memory_bytes", trace.peak_memory_bytes},
          {"arena_bytes", summary.arena_bytes},
          {"resident_after_first_step_bytes", summary.resident_after_first_step},
          {"resident_at_end_bytes", summary.resident_at_end},
          {"tracing_overhead", trace.tracing_overhead},
          {"saving", write_json(summary.saving)},
          {"machine", machine_json(trace)}};
}

const program::LayerLoad* layer_with_most(const program::ExpertReport& experts,
                                          double (*figure)(const program::LayerLoad&)) {
  const auto most = std::ranges::max_element(experts.layers, {}, figure);
  return most == experts.layers.end() ? nullptr : &*most;
}

/// "expert rows beyond the plan: ..." after `before`; empty without any.
std::string beyond_plan(const program::RowsBeyondPlan& rows, const char* before) {
  if (rows.layer_visits == 0) return {};
  return fmt::format(
      "{}expert rows beyond the plan: {:.3g} layer visits, {:.1f} MiB more, largest imbalance "
      "{:.2f}",
      before, rows.layer_visits, rows.bytes / kMib, rows.largest_imbalance);
}

/// The busiest expert and ep rank of any layer, what was dropped, rows beyond the plan's buffers,
/// and the routers' losses.
std::string experts_of_step(const program::ExpertReport& experts) {
  std::string text;
  const auto by_expert = [](const program::LayerLoad& load) { return load.expert_imbalance(); };
  const auto by_rank = [](const program::LayerLoad& load) { return load.ep_imbalance; };
  const auto by_drops = [](const program::LayerLoad& load) { return load.dropped_share; };
  if (const auto* load = layer_with_most(experts, by_expert))
    text += fmt::format("   busiest expert {:.2f} x mean (layer {})", load->expert_imbalance(),
                        load->layer);
  if (const auto* load = layer_with_most(experts, by_rank); load && load->ep_imbalance > 1)
    text += fmt::format("   ep rank {:.2f} x (layer {})", load->ep_imbalance, load->layer);
  if (const auto* load = layer_with_most(experts, by_drops); load && load->dropped_share > 0)
    text += fmt::format("   dropped {} (layer {})", percent(load->dropped_share), load->layer);
  text += beyond_plan(experts.beyond_plan, "   ");
  if (experts.balance_loss != 0)
    text += fmt::format("   balance loss {:.4f}", experts.balance_loss);
  if (experts.z_loss != 0) text += fmt::format("   z-loss {:.4f}", experts.z_loss);
  return text;
}

std::string to_text(const program::ExpertReport& experts) {
  Table table{.columns = {{"layer"},
                          {"min"},
                          {"mean"},
                          {"max"},
                          {"max / mean"},
                          {"ep rank max / mean"},
                          {"dropped"}}};
  for (const program::LayerLoad& load : experts.layers)
    table.rows.push_back({std::to_string(load.layer), fmt::format("{:.1f}", load.min),
                          fmt::format("{:.1f}", load.mean), fmt::format("{:.1f}", load.max),
                          fmt::format("{:.3f}", load.expert_imbalance()),
                          fmt::format("{:.3f}", load.ep_imbalance), percent(load.dropped_share)});
  const std::string beyond = beyond_plan(experts.beyond_plan, "");
  return "tokens of a layer's experts in a step, mean over the steps\n" + to_text(table, 2) +
         fmt::format("ep imbalance  {:.3f} (mean over layers; for simulate --expert-imbalance)\n",
                     program::mean_ep_imbalance(experts)) +
         (beyond.empty() ? beyond : beyond + "; visits are a step's mean\n");
}

}  // namespace

Peak peak_of(const program::Plan& plan, const sim::Cluster& cluster) {
  int units = plan.parallel.world_size();
  std::string of = fmt::format("{} ranks", units);
  if (cluster.device.kind == sim::DeviceKind::Cpu) {
    const int cores = cluster.num_nodes * cluster.cores_per_host;
    if (units > cores) of = fmt::format("{} cores (of {} ranks)", cores, units);
    units = std::min(units, cores);
  }
  const double each = sim::peak_flop_per_s(cluster, plan.workload);
  return {.job_flop_per_s = each * units,
          .source = fmt::format(
              "{} times {:.4g}, {} of cluster '{}' in {}", of, each / kTera,
              cluster.operators.empty() ? "the data sheet's peak" : "the fastest product measured",
              cluster.name, program::precision_name(plan.workload))};
}

std::string optimizer_line(const program::OptimizerConfig& o) {
  std::string line = fmt::format("{}  lr {:g}", name_of(o.kind), o.learning_rate);
  if (o.warmup_steps > 0) line += fmt::format(" after {} steps of warm-up", o.warmup_steps);
  if (o.schedule == program::LearningRateSchedule::Cosine)
    line += fmt::format(
        ", cosine to {:g} at {}", o.learning_rate * o.minimum_ratio,
        o.decay_steps > 0 ? fmt::format("step {}", o.decay_steps) : "the run's last step");
  else
    line += ", constant";
  if (o.kind == program::OptimizerKind::Sgd)
    line += fmt::format("  momentum {:g}", o.momentum);
  else
    line += fmt::format("  betas {:g}, {:g}  epsilon {:g}", o.beta1, o.beta2, o.epsilon);
  line += fmt::format("  weight decay {:g}", o.weight_decay);
  return line + (o.clip_norm > 0 ? fmt::format("  clip {:g}", o.clip_norm) : "  no clipping");
}

std::string to_text(const RunHeader& header) {
  const program::Plan& plan = header.plan;
  return fmt::format(
      "{}  {}  {} ranks on {} machine{}{}, each {}\n{}{} sequences of {} tokens a step in {} "
      "micro-batches of {}{}  data {}\n{}\n{}\n"
      "{:>6} {:>9} {:>9} {:>9} {:>10} {:>11} {:>9} {:>7} {:>9}\n",
      plan.model.name, program::to_string(plan.parallel), plan.parallel.world_size(),
      header.machines, header.machines == 1 ? "" : "s",
      header.oversubscribed ? " (more ranks than cores)" : "", header.device,
      plan.frozen.empty() ? "" : fmt::format("frozen {}\n", frozen_line(plan.model, plan.frozen)),
      plan.workload.global_batch_size, plan.workload.seq_len, plan.num_microbatches(),
      plan.micro_batch_size, empty_sequences_words(plan), header.data,
      optimizer_line(plan.workload.optimizer), peak_line(header), "step", "loss", "norm", "lr",
      "ms", "tokens/s", "samples/s", "MFU", "MiB");
}

std::string step_line(const program::StepReport& step) {
  std::string line = fmt::format(
      "{:>6} {:>9.4f} {:>9} {:>9.2e} {:>10.1f} {:>11} {:>9.1f} {:>7} {:>9.1f}", step.step,
      step.loss, step.gradient_norm ? fmt::format("{:.3f}", *step.gradient_norm) : "skipped",
      step.learning_rate, step.seconds * kMilliseconds,
      grouped(static_cast<std::int64_t>(step.tokens_per_s)), step.samples_per_s,
      step.mfu ? percent(*step.mfu) : "-", step.resident_bytes / kMib);
  if (step.prediction_loss) line += fmt::format("   mtp loss {:.4f}", *step.prediction_loss);
  if (step.evaluation_loss) line += fmt::format("   held-out loss {:.4f}", *step.evaluation_loss);
  if (step.experts) line += experts_of_step(*step.experts);
  if (step.indexer_loss) line += fmt::format("   indexer loss {:.4f}", *step.indexer_loss);
  if (step.loss_scale) line += fmt::format("   loss scale {:g}", *step.loss_scale);
  return line + "\n";
}

std::string to_text(const RunSummary& summary) {
  const program::Trace& trace = summary.trace;
  const StepTimes times = step_times(trace);
  const std::optional<double> utilization = mfu(summary, times.median_s);
  std::string text = fmt::format(
      "\nstep time   {:.2f} ms (median of {} after {} of warm-up; p10 {:.2f}, p90 {:.2f})\n"
      "throughput  {} tokens/s, {:.1f} model GFLOP/s{}{}\n"
      "memory      {:.1f} MiB resident at most, largest rank (plan's arena {:.1f} MiB)\n",
      times.median_s * kMilliseconds, times.steps, times.warmup_steps, times.p10_s * kMilliseconds,
      times.p90_s * kMilliseconds,
      grouped(static_cast<std::int64_t>(tokens_per_step(trace.plan) / times.median_s)),
      program::model_flops_per_step(trace.plan) / times.median_s / 1e9, utilization ? ", MFU " : "",
      utilization ? percent(*utilization) : "", trace.peak_memory_bytes / kMib,
      summary.arena_bytes / kMib);
  text += saving_line(summary.saving);
  text += against_prediction(trace, times.median_s);
  if (!trace.spans.empty())
    text += fmt::format("tracing     adds {:+.1f} % to a step\n", trace.tracing_overhead * 100);
  if (summary.timing) text += '\n' + to_text(*summary.timing);
  if (summary.experts) text += '\n' + to_text(*summary.experts);
  return text;
}

std::string to_json(const RunSummary& summary) {
  Json root = summary_fields(summary);
  root["step_times_s"] = summary.trace.step_times_s;
  root["losses"] = summary.trace.losses;
  root["gradient_norms"] = Json::array();
  for (const std::optional<double>& norm : summary.gradient_norms)
    root["gradient_norms"].push_back(norm ? Json(*norm) : Json(nullptr));
  root["experts"] =
      summary.experts ? Json::parse(program::to_json(*summary.experts)) : Json(nullptr);
  root["timing"] = summary.timing ? Json::parse(program::to_json(*summary.timing)) : Json(nullptr);
  return root.dump(2) + "\n";
}

std::string to_json_line(const RunHeader& header) {
  const program::Plan& plan = header.plan;
  const Json line{
      {"kind", "run"},
      {"schema_version", 1},
      {"model", plan.model.name},
      {"parallel", program::to_string(plan.parallel)},
      {"precision", program::precision_name(plan.workload)},
      {"ranks", plan.parallel.world_size()},
      {"machines", header.machines},
      {"device", header.device},
      {"data", header.data},
      {"seed", header.seed},
      {"steps", header.num_steps},
      {"evaluate_every", header.evaluate_every},
      {"seq_len", plan.workload.seq_len},
      {"optimizer", Json::parse(program::to_json(plan)).at("workload").at("optimizer")},
      {"tokens_per_step", plan.workload.global_batch_size * plan.workload.seq_len},
      {"samples_per_step", plan.workload.global_batch_size},
      {"model_flop_per_step", program::model_flops_per_step(plan)},
      {"peak_flop_per_s", header.peak ? Json(header.peak->job_flop_per_s) : Json(nullptr)},
      {"peak_source", header.peak ? Json(header.peak->source) : Json(nullptr)}};
  return line.dump();
}

std::string to_json_line(const RunSummary& summary) {
  Json line{{"kind", "summary"}};
  line.update(summary_fields(summary));
  line["experts"] =
      summary.experts ? Json::parse(program::to_json(*summary.experts)) : Json(nullptr);
  return line.dump();
}

std::string elastic_line(int step, std::string_view text) {
  return Json{{"kind", "elastic"}, {"step", step}, {"text", text}}.dump();
}

std::string lost_output_line(std::string_view stream, std::string_view cause) {
  return Json{{"kind", "output_lost"}, {"stream", stream}, {"cause", cause}}.dump();
}

}  // namespace meshplan::reports
