// Plans on their way into other stacks' files: whatever strings they hold, the files stay what
// their targets read.
#include "core/error.hpp"
#include "fuzz/reader.hpp"
#include "fuzz/samples.hpp"
#include "planner/formats/exported_text.hpp"
#include "planner/formats/formats.hpp"
#include "program/plan_file/plan_file.hpp"
#include "sim/stacks/cluster_preset.hpp"

namespace meshplan::fuzz {
namespace {

void export_to(const planner::Format& format, const planner::ExportRequest& request) {
  std::vector<planner::ExportedFile> files;
  try {
    files = planner::exported_folder(format, request).files;
  } catch (const ConfigError&) {
    return;  // the target has no words for the plan
  }
  for (const planner::ExportedFile& file : files) {
    const std::string fault = planner::format_tests::exported_fault(file);
    require_invariant(fault.empty(), std::string(format.name) + ": " + fault);
  }
}

Consumer read_exported_plan(const std::string& text) {
  planner::ExportRequest request{.plan = program::parse_plan(text, kFile)};
  if (!request.plan.cluster_json.empty())
    request.device = sim::parse_cluster(request.plan.cluster_json, kFile).device.name;
  if (request.plan.prediction) request.reasons = request.plan.prediction->reasons;
  return [request] {
    for (const planner::Format& format : planner::formats())
      if (format.write != nullptr) export_to(format, request);
  };
}

/// With names, reasons and little else that a change could meet.
std::string exported_seed(program::Plan plan, bool has_cluster) {
  plan.workload.precision = DType::BF16;
  plan.prediction =
      program::Prediction{.step_time_s = 1, .peak_memory_bytes = 1, .reasons = {"fits", "fast"}};
  plan.cluster_name = "dgx-h100";
  if (has_cluster)
    plan.cluster_json = sim::to_json(
        sim::with_ranks(sim::load_cluster_preset("dgx-h100"), plan.parallel.world_size()));
  return without_hashes(program::to_json(plan));
}

}  // namespace

std::vector<Reader> export_readers() {
  program::Plan sharded = sample_plan({.dp = 8});
  sharded.zero_stage = 3;
  program::Plan recomputed = sample_plan({.tp = 2, .pp = 2, .dp = 2}, 16);
  recomputed.recompute.kind = program::RecomputeKind::Full;
  program::Plan flavored = sample_plan({.dp = 8}, 8);
  flavored.model = models::load_preset("llama3-8b");
  flavored.zero_stage = 3;
  std::vector<std::string> seeds;
  for (const program::Plan& plan : {sharded, recomputed, flavored})
    for (const bool has_cluster : {false, true}) seeds.push_back(exported_seed(plan, has_cluster));
  return {{.name = "export",
           .weight = 4,
           .deep_every = 1,
           .names_file = true,
           .read = read_exported_plan,
           .seeds = std::move(seeds)}};
}

}  // namespace meshplan::fuzz
