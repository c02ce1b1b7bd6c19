#include "formats/readme.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <vector>

#include "core/quoting.hpp"
#include "formats/nodes.hpp"
#include "planner/search/reasons.hpp"
#include "program/plan/plan_names.hpp"

namespace meshplan::planner {
namespace {

struct PlanRow {
  std::string what;
  std::string value;
};

std::vector<PlanRow> rows_of(const program::Plan& plan) {
  std::vector<PlanRow> rows{
      {"model", plan.model.name},
      {"degrees", program::to_string(plan.parallel)},
      {"batch", fmt::format("{} sequences of {} tokens; micro-batches of {}, {} on each pipeline",
                            plan.workload.global_batch_size, plan.workload.seq_len,
                            plan.micro_batch_size, plan.num_microbatches())},
      {"precision", std::string(program::precision_name(plan.workload))},
      {"schedule", plan.parallel.pp > 1 ? std::string(meshplan::name_of(plan.schedule)) : "none"},
      {"ZeRO stage", std::to_string(plan.zero_stage)},
      {"recomputed", program::recompute_name(plan.recompute)}};
  return rows;
}

std::string prediction_text(const program::Plan& plan) {
  if (!plan.prediction)
    return "The plan's file holds no prediction. `meshplan simulate plan.json` makes one.\n";
  const program::Prediction& p = *plan.prediction;
  const double tokens =
      static_cast<double>(plan.workload.global_batch_size * plan.workload.seq_len);
  return fmt::format("A step takes {}, {:.0f} tokens/s; MFU {:.1f} %; the fullest GPU holds {}.\n",
                     format_seconds(p.step_time_s), p.step_time_s > 0 ? tokens / p.step_time_s : 0,
                     100 * p.mfu, format_bytes(p.peak_memory_bytes));
}

/// What was compared, and how far the furthest figure is into its tolerance.
std::string certificate_text(const program::Certificate& certificate) {
  double share = 0;
  std::size_t figures = 0;
  for (const program::TwinResult& twin : certificate.twins) {
    for (const program::Compared& compared : twin.compared) {
      if (program::is_exact(compared)) continue;
      ++figures;
      share = std::max(share, compared.share());
    }
  }
  std::string text = fmt::format(
      "\n## Certificate\n\nDoes the plan's layout leave the numbers alone? `certificate.json`: in "
      "meshplan's own runtime {} small cop{} of the plan,\nwith its techniques, gave the losses, "
      "gradients and updates of one rank; the furthest of {} figures is {:.0f} % into its\n"
      "tolerance. It says nothing of {}",
      certificate.twins.size(), certificate.twins.size() == 1 ? "y" : "ies", figures, 100 * share,
      "the stack that these files are for");
  if (!certificate.uncovered.empty())
    text += ", nor of " + markdown_text(fmt::format("{}", fmt::join(certificate.uncovered, ", ")));
  return text + ".\n";
}

}  // namespace

std::string title_of(const ExportRequest& request) {
  const Nodes nodes = nodes_of(request);
  return fmt::format("{}: {} on {} node{} of {} {}", request.plan.model.name,
                     program::to_string(request.plan.parallel), nodes.count,
                     nodes.count == 1 ? "" : "s", nodes.ranks_each,
                     request.device.empty() ? "GPUs" : request.device);
}

std::string readme_of(const Format& format, const ExportRequest& request, std::string_view starting,
                      const std::string& predicted) {
  const program::Plan& plan = request.plan;
  std::string text = fmt::format("# {}\n\nWritten by `meshplan export` for {}.\n\n",
                                 markdown_text(title_of(request)), format.what);
  text += "| plan | |\n| --- | --- |\n";
  for (const PlanRow& row : rows_of(plan))
    text += fmt::format("| {} | {} |\n", row.what, markdown_text(row.value));
  text += "\n## Prediction\n\n" + prediction_text(plan);
  if (!predicted.empty() && plan.prediction && plan.stack.is_own())
    text += "That is of meshplan's own runtime, for which the plan was made.\n";
  if (!predicted.empty()) text += "\n" + markdown_text(predicted) + "\n";
  if (!request.reasons.empty()) {
    text += "\n## Why this plan\n\n";
    for (const std::string& reason : request.reasons)
      text += fmt::format("- {}\n", markdown_text(reason));
  }
  if (request.certificate) text += certificate_text(*request.certificate);
  text += "\n" + std::string(starting);
  text +=
      "\n## What is not in these files\n\n"
      "`plan.json` is the plan itself. Settings of meshplan's own runtime (room for experts' "
      "rows, attention\nkernels, bitwise repetition, sizes of gradient buckets where nothing above "
      "says "
      "them) have no part in a\nrun of another stack.\n";
  return text;
}

}  // namespace meshplan::planner
