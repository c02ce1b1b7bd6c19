#include "certificate/shrink_plan.hpp"

#include <algorithm>
#include <set>

#include "certificate/shrink_layers.hpp"
#include "certificate/shrink_model.hpp"
#include "core/limits.hpp"
#include "program/checks/check.hpp"
#include "program/context/context.hpp"
#include "program/plan/frozen.hpp"

namespace meshplan::program {
namespace {

/// Steps so large that a wrong update shows, of an optimizer that is smooth: Adam divides by the
/// gradient's own size, so next to a small epsilon rounding alone could turn an update around.
constexpr double kLearningRate = 0.1;
constexpr double kEpsilon = 0.1;
constexpr double kClipNorm = 0.5;  // below any gradient's norm: clipping always acts
constexpr double kMostDecay = 0.5;

constexpr std::int64_t kBucketBytes = 16 << 10;  // several even in a small model
constexpr std::int64_t kSeqLen = 32;
constexpr std::int64_t kMostPadding = 8;

OptimizerConfig shrunk_optimizer(const Plan& plan) {
  OptimizerConfig optimizer = plan.workload.optimizer;
  optimizer.learning_rate =
      plan.compression.kind == CompressionKind::None ? kLearningRate : limits::kLeastRate;
  optimizer.epsilon = kEpsilon;
  optimizer.weight_decay = std::min(optimizer.weight_decay, kMostDecay);
  if (optimizer.clip_norm > 0) optimizer.clip_norm = kClipNorm;
  optimizer.schedule = LearningRateSchedule::Constant;
  optimizer.warmup_steps = optimizer.decay_steps = 0;
  return optimizer;
}

/// Few, but several where the plan has several, and no multiple of pp where the plan's are none.
int shrunk_microbatches(const Plan& plan, const ParallelConfig& parallel) {
  const int all = plan.num_microbatches();
  if (plan.schedule == ScheduleKind::Custom) return all;
  if (parallel.pp == 1) return std::min(all, 2);
  return std::min(all, all % plan.parallel.pp == 0 ? 4 : 3);
}

/// Sequences of the small plan: as many micro-batches as shrunk_microbatches() says, the last ones
/// of them with empty sequences where the plan's are. A micro-batch that is empty as a whole stays
/// one, and so does one that is empty in part, as far as the small plan's size allows.
std::int64_t shrunk_global_batch(const Plan& plan, const Plan& twin) {
  const std::int64_t round = twin.sequences_per_round();
  const std::int64_t all = shrunk_microbatches(plan, twin.parallel) * round;
  const std::int64_t empty = plan.empty_sequences();
  if (empty == 0 || round == 1) return all;
  std::int64_t kept = empty % plan.micro_batch_size != 0 && twin.micro_batch_size > 1 ? 1 : 0;
  if (empty >= plan.micro_batch_size && twin.parallel.dp > 1) kept += twin.micro_batch_size;
  return all - std::clamp<std::int64_t>(kept, 1, round - 1);
}

ParallelConfig shrunk_parallel(const Plan& plan, const ParallelConfig& degrees) {
  ParallelConfig parallel = degrees;
  parallel.sp = plan.parallel.sp && degrees.tp > 1;
  const bool keeps_pipeline = degrees.pp > 1 || plan.parallel.pp == 1;
  const bool as_it_is = plan.schedule == ScheduleKind::Custom;
  parallel.vpp = keeps_pipeline ? std::min(plan.parallel.vpp, as_it_is ? plan.parallel.vpp : 2) : 1;
  return parallel;
}

/// What divides a replica's work: goes where its axis does.
void drop_without_axes(const Plan& plan, Plan& twin) {
  const ParallelConfig& parallel = twin.parallel;
  if (parallel.pp == 1 && parallel.vpp == 1) {
    twin.schedule = ScheduleKind::OneFOneB;
    twin.custom_schedule.clear();
  }
  const int replicas = parallel.dp * parallel.cp;
  if (replicas == 1) {
    twin.zero_stage = 0;
    twin.offload_parameters = false;
    twin.compression = {};
  }
  if (twin.zero_shard_group > 0) {
    const bool of_all = plan.zero_shard_group == plan.parallel.dp * plan.parallel.cp;
    const int part = replicas >= 4 ? 2 : 0;  // of two ranks there is no part to share a copy
    twin.zero_shard_group = replicas == 1 ? 0 : of_all ? replicas : part;
  }
  if (parallel.cp == 1) twin.max_tokens_per_rank = 0;
  if (parallel.ep == 1) twin.expert_dispatch_fp8 = false;
  if (twin.expert_node_ranks > 0) twin.expert_node_ranks = parallel.ep >= 4 ? 2 : 0;
}

std::int64_t shrunk_seq_len(const Plan& plan, const ParallelConfig& parallel, bool float8) {
  if (!float8) return padded_sequence(kSeqLen, parallel);
  return padded_sequence(kSeqLen, parallel, TokenGranularity::Fp8,
                         std::min(plan.micro_batch_size, 2));
}

void shrink_documents(const Plan& plan, Plan& twin) {
  Documents& documents = twin.workload.documents;
  if (!documents.packed) return;
  documents.end_of_document = 0;
  documents.pad_multiple = std::min(documents.pad_multiple, kMostPadding);
  documents.expected_lengths.clear();
  if (twin.max_tokens_per_rank == 0) return;
  const std::int64_t seq_len = twin.workload.seq_len;
  const double share =
      static_cast<double>(plan.max_tokens_per_rank) / static_cast<double>(plan.workload.seq_len);
  const std::int64_t least = (seq_len + twin.parallel.cp - 1) / twin.parallel.cp;
  twin.max_tokens_per_rank =
      std::max(least, static_cast<std::int64_t>(share * static_cast<double>(seq_len)));
}

}  // namespace

std::optional<Plan> shrunk_plan(const Plan& plan, const ParallelConfig& degrees,
                                TwinPrecision precision) {
  Plan twin = plan;
  twin.model_hash.clear();
  twin.cluster_name.clear();
  twin.cluster_hash.clear();
  twin.cluster_json.clear();
  twin.prediction.reset();
  if (precision == TwinPrecision::Exact) {
    set_precision(twin.workload, Precision::F32);
    twin.expert_dispatch_fp8 = false;
  }
  const bool rounds = twin.workload.precision != DType::F32;
  const bool float8 = twin.workload.fp8 != Float8Recipe::None;
  twin.parallel = shrunk_parallel(plan, degrees);
  twin.micro_batch_size = std::min(plan.micro_batch_size, 2);
  drop_without_axes(plan, twin);
  const ShrunkLayers layers = shrunk_layers(plan, twin.parallel.pp * twin.parallel.vpp);
  twin.layers_per_stage = layers.layers_per_stage;
  twin.recompute = layers.recompute;
  if (plan.offload_activations > 0)
    twin.offload_activations =
        std::clamp(plan.offload_activations, 1,
                   (layers.num_layers - 1) / (twin.parallel.pp * twin.parallel.vpp) + 1);
  twin.workload.seq_len = shrunk_seq_len(plan, twin.parallel, float8);
  const bool over_heads = plan.context_parallel == ContextMethod::Ulysses;
  twin.model =
      shrunk_model(plan, {.num_layers = layers.num_layers,
                          .seq_len = twin.workload.seq_len,
                          .head_shards = twin.parallel.tp * (over_heads ? twin.parallel.cp : 1),
                          .float8 = float8,
                          .chooses_all = rounds});
  twin.workload.optimizer = shrunk_optimizer(twin);
  twin.workload.global_batch_size = shrunk_global_batch(plan, twin);
  twin.bucket_bytes = std::min(plan.bucket_bytes, kBucketBytes);
  shrink_documents(plan, twin);
  twin.frozen = shrunk_patterns(plan.frozen, plan.model.num_layers, layers.num_layers);
  std::erase_if(twin.frozen, [&](const std::string& pattern) {
    return !frozen_errors({pattern.starts_with('!') ? pattern.substr(1) : pattern, "!*"},
                          twin.model)
                .empty();
  });
  if (!check(twin).empty()) return std::nullopt;
  return twin;
}

namespace {

/// Along one axis: off, the least that is on, and where more ranks do what two cannot, 3 or 4 (a
/// stage in the middle, a ring with a direction, a part of the replicas).
std::vector<int> choices(int degree, int most) {
  const std::set<int> all = {1, std::min(degree, 2), std::min(degree, most)};
  return {all.begin(), all.end()};
}

}  // namespace

std::vector<ParallelConfig> twin_degrees(const Plan& plan) {
  const ParallelConfig& parallel = plan.parallel;
  const bool as_it_is = plan.schedule == ScheduleKind::Custom;
  const std::vector<int> stages = as_it_is ? std::vector{1, parallel.pp} : choices(parallel.pp, 4);
  // Experts that several ranks hold may need tp to be more than they are divided over.
  const int most_tp = parallel.ep > 1 ? 4 : 2;
  std::vector<ParallelConfig> all;
  for (const int tp : choices(parallel.tp, most_tp))
    for (const int cp : choices(parallel.cp, 4))
      for (const int pp : stages)
        for (const int dp : choices(parallel.dp, 4))
          for (const int ep : choices(parallel.ep, 4))
            for (const int etp : choices(parallel.etp, 2)) {
              const ParallelConfig degrees{
                  .tp = tp, .cp = cp, .pp = pp, .dp = dp, .ep = ep, .etp = etp};
              if (std::int64_t{tp} * cp * pp * dp > kMostTwinRanks) continue;
              if (tp * cp * dp % (ep * etp) != 0) continue;
              all.push_back(degrees);
            }
  std::ranges::stable_sort(all, {}, &ParallelConfig::world_size);
  return all;
}

}  // namespace meshplan::program
