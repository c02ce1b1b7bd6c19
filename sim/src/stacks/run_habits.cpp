#include "stacks/run_habits.hpp"

#include <algorithm>

#include "sim/stacks/software.hpp"

namespace meshplan::sim {
namespace {

int value_head(const TrainingRun& run) {
  return run.model.mla ? run.model.mla->v_head_size : run.model.head_size;
}

int largest_head(const TrainingRun& run) {
  return std::max(run.model.head_size, value_head(run));
}

}  // namespace

ExecutionProfile profile_of(const TrainingRun& run) {
  const std::string name = parse_software(run.profile).name;
  const std::string eager = name + "-eager";
  const auto names = execution_profile_names();
  const bool separate = std::ranges::find(names, eager) != names.end();
  const std::string software =
      run.switches.eager && separate ? eager + run.profile.substr(name.size()) : run.profile;
  ExecutionProfile profile =
      run.undated ? load_undated_profile(software) : load_execution_profile(software);
  if (run.switches.fp32_gradients && profile.gradient_bytes < 4) {
    profile.gradient_bytes = profile.reduce_bytes = 4;
    if (profile.gradient_accumulation_bytes > 0)  // read and written per micro-batch
      profile.gradient_accumulation_bytes = std::max(8.0, profile.gradient_accumulation_bytes);
  }
  if (run.switches.reduce_in_bf16) {
    profile.reduce_bytes = 2;
    // PyTorch FSDP casts what it summed to the dtype of the parameters (_fully_shard/
    // _fsdp_collectives.py, foreach_reduce; _runtime_utils.py, _cast_grad_to_param_dtype).
    if (profile.shard_copies == ShardCopies::None) profile.gradient_bytes = 2;
  }
  if (!profile.accumulates_first && run.num_microbatches() == 1)
    profile.gradient_accumulation_bytes = 0;
  return profile;
}

void take_habits(const ExecutionProfile& profile, TrainingRun& run) {
  const bool refused = (profile.largest_head > 0 && largest_head(run) > profile.largest_head) ||
                       (run.model.attention_sinks && !profile.fused_sinks);
  if (!run.attention_stated && refused) run.attention = AttentionKernel::Unfused;
  if (run.zero_stage < 0) run.zero_stage = default_zero_stage(profile);
  if (!run.sp_stated) run.parallel.sp = profile.sequence_parallel && run.parallel.tp > 1;
  if (run.zero_stage < 3) return;
  run.keeps_gathered = profile.keeps_gathered_experts && run.model.moe.has_value();
  // In pipelines PyTorch always does (torch/distributed/pipelining/stage.py).
  const bool torch_pipeline = run.parallel.pp > 1 && profile.rate_limited_gathers;
  run.defers_gradients = profile.defers_gradient_sync || torch_pipeline;
}

FlashGeneration flash_of(const ExecutionProfile& profile, const Cluster& cluster,
                         const TrainingRun& run) {
  if (cluster.device.architecture != Architecture::Blackwell) return profile.flash;
  if (profile.blackwell_head > 0 && value_head(run) > profile.blackwell_head)
    return FlashGeneration::Two;
  return profile.cudnn_on_blackwell ? FlashGeneration::Three : profile.flash;
}

}  // namespace meshplan::sim
