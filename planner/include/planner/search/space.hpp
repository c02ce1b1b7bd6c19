// Which plans exist for a number of ranks: what the user fixed, and every choice for the rest.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "program/plan/mesh.hpp"
#include "program/plan/plan.hpp"

namespace meshplan::planner {

/// What the user fixed; absent = searched. A pin is never overridden.
struct Constraints {
  std::optional<int> tp;
  std::optional<int> pp;
  std::optional<int> vpp;  // chunks of a rank
  std::optional<int> dp;
  std::optional<int> cp;
  std::optional<program::ContextMethod> context_parallel;  // where cp > 1
  std::optional<int> ep;
  std::optional<int> etp;
  std::optional<int> zero_stage;
  std::optional<int> zero_shard_group;              // where zero_stage > 0
  std::optional<std::int64_t> max_tokens_per_rank;  // of a packed document, where cp > 1
  std::optional<int> micro_batch_size;
  std::optional<bool> sp;
  std::optional<program::RecomputeKind> recompute;
  std::optional<int> recompute_layers;  // of each stage; full recompute only
  std::optional<program::ScheduleKind> schedule;
  std::vector<std::string> custom_schedule;  // of schedule = custom; see program::Plan
  std::vector<int> layers_per_stage;         // empty = searched
  bool count_ends_as_layers = false;
  bool offload_optimizer = false;
  bool progress_thread = false;
  std::string rank_order = program::Mesh::kDefaultOrder;
  std::optional<std::int64_t> bucket_bytes;  // absent: as default_bucket_bytes
  std::vector<std::string> frozen;           // parameters that are not trained: Plan::frozen
  program::GradientCompression compression;  // on every mesh with gradients to sum
  double expected_expert_imbalance = 1;      // of plans with ep > 1; buffers hold as much
  int max_micro_batch_size = 32;             // sequences; bounds the search, not the pin
  bool operator==(const Constraints&) const = default;
};

/// @throws ConfigError if the pins contradict each other or cannot use exactly `num_ranks`, with
/// the nearest degree that can
void validate(const Constraints& constraints, int num_ranks);

/// The choices that tell one plan of a search from another.
struct Candidate {
  program::ParallelConfig parallel;
  int micro_batch_size = 1;
  program::Recompute recompute;
  program::ScheduleKind schedule = program::ScheduleKind::OneFOneB;
  std::vector<int> layers_per_stage;
  bool count_ends_as_layers = false;  // where layers are divided evenly
  program::ContextMethod context_parallel = program::ContextMethod::AllGather;
  int zero_stage = 0;
  int zero_shard_group = 0;
  program::GradientCompression compression;
  bool operator==(const Candidate&) const = default;
};

struct Ranks {
  int count = 1;
  int per_node = 0;  // 0 = not known: no hybrid sharding is searched
};

/// Every combination that uses exactly `ranks.count` and respects the pins, in one fixed order;
/// most will break a rule of the model, which is for program::check to say. Left out are choices
/// that change nothing: sp without tp, GPipe without pp (unless pinned). Unless cp is pinned, it
/// leaves every rank at least 8192 tokens of a sequence: shorter ones fit and are faster without.
/// Schedules with chunks or split backwards are enumerated where schedule or vpp is pinned; else
/// the search tries them on the best plans. Micro-batch sizes are the divisors of the sequences of
/// a replica; where the replicas do not divide the batch, one candidate stands for all sizes.
///
/// Unless pinned: ZeRO stages 2 and 3, which communicate in every micro-batch, are tried without a
/// pipeline, also with one copy a node; ep takes the divisors of the experts that the ranks of a
/// stage can hold, etp 1 or tp; with experts tp goes with sp. Gradients are compressed as the
/// constraints say on the meshes that sum any; if the pins leave none of these, on all, and
/// program::check refuses it.
std::vector<Candidate> enumerate(const models::ModelSpec& model, const program::Workload& workload,
                                 const Ranks& ranks, const Constraints& constraints);

/// A gradient bucket: a mebibyte for each rank that sums it, at least 25. A ring takes a latency a
/// rank, so the buckets of many ranks must be larger not to be latency (Megatron-LM's
/// DistributedDataParallel: 10^6 parameters a rank, at least 4 * 10^7; PyTorch's: 25 MiB).
std::int64_t default_bucket_bytes(const program::ParallelConfig& parallel);

/// "tp8 sp pp4 dp4 mbs1 full-recompute gpipe": what is on, in the order of the flags.
std::string describe(const Candidate& candidate);

/// Do the chunks hold equally many layers only if embedding and head count as one each? Then the
/// first and the last chunk hold a layer less (Llama 3 team 2024, section 3.3.2).
bool ends_fill_up(int chunks, int num_layers);

/// Schedules with the chunks that they can have on `pp` stages of a model of `num_layers`.
struct ScheduleChoice {
  program::ScheduleKind schedule = program::ScheduleKind::OneFOneB;
  int vpp = 1;
  bool operator==(const ScheduleChoice&) const = default;
};
std::vector<ScheduleChoice> chunked_schedules(int pp, int num_layers);

Candidate candidate_of(const program::Plan& plan);

/// The axes of a search, in the order in which tables list them.
enum class Choice { Tp, Sp, Cp, Pp, Dp, Ep, Etp, MicroBatch, Recompute, Schedule, Zero };

/// "tp=8", "sp", "no sp", "recompute=full", ...
std::string label(Choice choice, const Candidate& candidate);

}  // namespace meshplan::planner
