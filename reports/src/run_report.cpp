#include "reports/run_report.hpp"

#include <fmt/format.h>

#include "core/json_fields.hpp"
#include "core/units.hpp"
#include "program/cost.hpp"
#include "reports/comparison.hpp"
#include "reports/table.hpp"

namespace meshplan::reports {
namespace {

double tokens_per_step(const program::Plan& plan) {
  return static_cast<double>(plan.workload.global_batch_size * plan.workload.seq_len);
}

std::string against_prediction(const program::Plan& plan, double measured_s) {
  if (!plan.prediction || measured_s <= 0) return {};
  const double predicted_s = plan.prediction->step_time_s;
  return fmt::format("predicted   {:.2f} ms a step: {:+.1f} %\n", predicted_s * kMilliseconds,
                     (predicted_s / measured_s - 1) * 100);
}

}  // namespace

std::string to_text(const RunHeader& header) {
  const program::Plan& plan = header.plan;
  return fmt::format(
      "{}  {}  {} ranks on {} machine{}{}, each {}\n{} sequences of {} tokens a step in {} "
      "micro-batches of {}  data {}\n\n"
      "{:>6} {:>9} {:>9} {:>10} {:>10} {:>12}\n",
      plan.model.name, program::to_string(plan.parallel), plan.parallel.world_size(),
      header.machines, header.machines == 1 ? "" : "s",
      header.oversubscribed ? " (more ranks than cores)" : "", header.device,
      plan.workload.global_batch_size, plan.workload.seq_len, plan.num_microbatches(),
      plan.micro_batch_size, header.data, "step", "loss", "norm", "lr", "ms", "tokens/s");
}

std::string step_line(const StepLine& step, const program::Plan& plan) {
  std::string line =
      fmt::format("{:>6} {:>9.4f} {:>9.3f} {:>10.2e} {:>10.1f} {:>12}", step.step, step.loss,
                  step.gradient_norm, step.learning_rate, step.seconds * kMilliseconds,
                  grouped(static_cast<std::int64_t>(tokens_per_step(plan) / step.seconds)));
  if (step.evaluation_loss) line += fmt::format("   held-out loss {:.4f}", *step.evaluation_loss);
  return line + "\n";
}

std::string to_text(const RunSummary& summary) {
  const program::Trace& trace = summary.trace;
  const StepTimes times = step_times(trace);
  std::string text = fmt::format(
      "\nstep time   {:.2f} ms (median of {} after {} of warm-up; p10 {:.2f}, p90 {:.2f})\n"
      "throughput  {} tokens/s, {:.1f} model GFLOP/s\n"
      "memory      {:.1f} MiB resident at most, largest rank (plan's arena {:.1f} MiB)\n",
      times.median_s * kMilliseconds, times.steps, times.warmup_steps, times.p10_s * kMilliseconds,
      times.p90_s * kMilliseconds,
      grouped(static_cast<std::int64_t>(tokens_per_step(trace.plan) / times.median_s)),
      program::model_flops_per_step(trace.plan) / times.median_s / 1e9,
      trace.peak_memory_bytes / kMib, summary.arena_bytes / kMib);
  text += against_prediction(trace.plan, times.median_s);
  if (!trace.spans.empty())
    text += fmt::format("tracing     adds {:+.1f} % to a step\n", trace.tracing_overhead * 100);
  return text;
}

std::string to_json(const RunSummary& summary) {
  const program::Trace& trace = summary.trace;
  const StepTimes times = step_times(trace);
  const Json root{{"schema_version", 1},
                  {"world_size", trace.world_size},
                  {"step_times_s", trace.step_times_s},
                  {"losses", trace.losses},
                  {"warmup_steps", times.warmup_steps},
                  {"median_step_time_s", times.median_s},
                  {"p10_step_time_s", times.p10_s},
                  {"p90_step_time_s", times.p90_s},
                  {"tokens_per_s", tokens_per_step(trace.plan) / times.median_s},
                  {"model_flop_per_s", program::model_flops_per_step(trace.plan) / times.median_s},
                  {"peak_memory_bytes", trace.peak_memory_bytes},
                  {"arena_bytes", summary.arena_bytes},
                  {"resident_after_first_step_bytes", summary.resident_after_first_step},
                  {"resident_at_end_bytes", summary.resident_at_end},
                  {"tracing_overhead", trace.tracing_overhead}};
  return root.dump(2) + "\n";
}

}  // namespace meshplan::reports
