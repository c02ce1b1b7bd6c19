#include "stacks/run_habits.hpp"

#include <algorithm>

#include "prices/element_bytes.hpp"
#include "sim/stacks/software.hpp"

namespace meshplan::sim {
namespace {

using program::CompiledPart;

int value_head(const TrainingRun& run) {
  return run.model.mla ? run.model.mla->v_head_size : run.model.head_size;
}

int largest_head(const TrainingRun& run) {
  return std::max(run.model.head_size, value_head(run));
}

/// The loss as another profile computes it.
void take_loss(const ExecutionProfile& from, ExecutionProfile& profile) {
  profile.cross_entropy = from.cross_entropy;
  profile.logit_bytes = from.logit_bytes;
  profile.logit_block_bytes = from.logit_block_bytes;
}

void set_gradient_bytes(int bytes, ExecutionProfile& profile) {
  if (profile.gradient_bytes == bytes) return;
  profile.gradient_bytes = profile.reduce_bytes = bytes;
  if (profile.gradient_accumulation_bytes > 0)  // read and written per micro-batch
    profile.gradient_accumulation_bytes = 2 * bytes;
}

/// Dtypes of gradients, of their sums and of both moments.
void take_dtypes(const program::StackSettings& settings, ExecutionProfile& profile) {
  if (settings.gradient_dtype) set_gradient_bytes(size_of(*settings.gradient_dtype), profile);
  if (settings.gradient_sum_dtype) {
    profile.reduce_bytes = size_of(*settings.gradient_sum_dtype);
    // PyTorch FSDP casts what it summed to the dtype of the parameters (_fully_shard/
    // _fsdp_collectives.py, foreach_reduce; _runtime_utils.py, _cast_grad_to_param_dtype).
    if (profile.shard_copies == ShardCopies::None && !settings.gradient_dtype)
      profile.gradient_bytes = std::min(profile.gradient_bytes, profile.reduce_bytes);
  }
  profile.gathers_fp8 = settings.fp8_param_gather.value_or(profile.gathers_fp8);
  // Both moments are in fp32 or, where a parameter's copy is as small, in bf16.
  const double moment = profile.optimizer_bytes > 3 * kHalfBytes ? kFp32Bytes : kHalfBytes;
  for (const auto& dtype : {settings.first_moment_dtype, settings.second_moment_dtype})
    if (dtype) profile.optimizer_bytes += size_of(*dtype) - moment;
  const auto& second = settings.second_moment_dtype;
  profile.second_moment_bytes = second ? size_of(*second) : moment;
}

}  // namespace

void take_loss_kernel(program::LossKernel loss, ExecutionProfile& profile) {
  switch (loss) {
    case program::LossKernel::Unfused:
      return;
    case program::LossKernel::Fused:  // 16-bit logits read twice, their gradient written over them
      profile.cross_entropy = {
          .forward_bytes = 4, .backward_bytes = 4, .forward_kernels = 2, .backward_kernels = 2};
      profile.logit_bytes = profile.logit_block_bytes = 4;
      return;
    case program::LossKernel::Chunked:  // torchtitan, components/loss.py, ChunkedCELoss: 8 chunks
      constexpr double kChunks = 8;
      profile.cross_entropy.forward_kernels *= kChunks;
      profile.cross_entropy.backward_kernels *= kChunks;
      profile.logit_bytes /= kChunks;
      profile.logit_block_bytes /= kChunks;
      return;
  }
}

ExecutionProfile profile_of(const TrainingRun& run) {
  const std::string name = parse_software(run.profile).name;
  const std::string eager = name + "-eager";
  const auto names = execution_profile_names();
  const bool separate = std::ranges::find(names, eager) != names.end();
  const bool is_eager =
      separate && run.settings.compile.value_or(CompiledPart::All) != CompiledPart::All;
  const auto profile_for = [&](const std::string& software) -> const ExecutionProfile& {
    return run.undated ? load_undated_profile(software) : load_execution_profile(software);
  };
  ExecutionProfile profile =
      profile_for(is_eager ? eager + run.profile.substr(name.size()) : run.profile);
  if (is_eager && run.settings.compile == CompiledPart::Loss)
    take_loss(profile_for(run.profile), profile);
  if (run.settings.loss) take_loss_kernel(*run.settings.loss, profile);
  take_dtypes(run.settings, profile);
  if (run.settings.live_parameters)
    profile.live_parameters = static_cast<double>(*run.settings.live_parameters);
  if (run.bucket_elements && profile.optimizer_bucket > 0)
    profile.optimizer_bucket = *run.bucket_elements;
  if (!profile.accumulates_first && run.num_microbatches() == 1)
    profile.gradient_accumulation_bytes = 0;
  return profile;
}

void take_habits(const ExecutionProfile& profile, TrainingRun& run) {
  program::StackSettings& settings = run.settings;
  const bool overlaps = profile.can.overlaps;
  settings.overlap_dp = settings.overlap_dp.value_or(overlaps);
  settings.overlap_p2p = settings.overlap_p2p.value_or(overlaps);
  settings.overlap_tp =
      settings.overlap_tp.value_or(overlaps && profile.tp_overlap != TpOverlap::None);
  const bool refused = (profile.largest_head > 0 && largest_head(run) > profile.largest_head) ||
                       (run.model.attention_sinks && !profile.fused_sinks);
  if (settings.attention)
    run.attention = *settings.attention == program::AttentionBackend::Unfused
                        ? AttentionKernel::Unfused
                        : AttentionKernel::Flash;
  else if (refused)
    run.attention = AttentionKernel::Unfused;
  if (run.orthogonal_steps > 0) {  // Megatron-LM's defaults (training/arguments.py)
    settings.muon_tp = settings.muon_tp.value_or(program::MuonTp::Duplicated);
    settings.layer_wise_layout = settings.layer_wise_layout.value_or(true);
  }
  if (profile.selective_skips_layers && run.recompute == RunRecompute::CoreAttention)
    run.recompute = RunRecompute::EverySecondLayer;
  if (run.zero_stage < 0) run.zero_stage = default_zero_stage(profile);
  if (!run.sp_stated) run.parallel.sp = profile.sequence_parallel && run.parallel.tp > 1;
  if (run.zero_stage < 3) return;
  run.keeps_gathered = profile.keeps_gathered_experts && run.model.moe.has_value();
  // In pipelines PyTorch always does (torch/distributed/pipelining/stage.py).
  const bool torch_pipeline = run.parallel.pp > 1 && profile.rate_limited_gathers;
  run.defers_gradients = profile.defers_gradient_sync || torch_pipeline;
}

bool fused_dispatch(const TrainingRun& run) {
  using program::ExpertDispatch;
  return run.settings.expert_dispatch == ExpertDispatch::DeepEp ||
         run.settings.expert_dispatch == ExpertDispatch::HybridEp;
}

FlashGeneration flash_of(const ExecutionProfile& profile, const Cluster& cluster,
                         const TrainingRun& run) {
  if (cluster.device.architecture != Architecture::Blackwell) return profile.flash;
  if (profile.blackwell_head > 0 && value_head(run) > profile.blackwell_head)
    return FlashGeneration::Two;
  return profile.cudnn_on_blackwell ? FlashGeneration::Three : profile.flash;
}

}  // namespace meshplan::sim
