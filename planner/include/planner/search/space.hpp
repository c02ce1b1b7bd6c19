// Which plans exist for a number of ranks: what the user fixed, and every choice for the rest.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "program/plan/expert_imbalance.hpp"
#include "program/plan/mesh.hpp"
#include "program/plan/plan.hpp"

namespace meshplan::planner {

/// Bounds of degrees that are searched, inclusive; absent = none.
struct DegreeBounds {
  std::optional<int> tp, pp, vpp, dp, cp, ep, etp, micro_batch_size, zero_stage;
  bool operator==(const DegreeBounds&) const = default;
};

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
  std::optional<int> expert_node_ranks;  // where ep > 1; 0 = tokens travel to every rank
  std::optional<int> zero_stage;
  std::optional<int> zero_shard_group;              // where zero_stage > 0
  std::optional<std::int64_t> max_tokens_per_rank;  // of a packed document, where cp > 1
  std::optional<int> micro_batch_size;
  bool uneven_batch = false;  // replicas may take unequal numbers of sequences
  std::optional<bool> sp;
  std::optional<program::RecomputeKind> recompute;
  std::optional<int> recompute_layers;  // of each stage; full recompute only
  models::ModuleSet recompute_modules;  // of selective recompute; empty = the usual ones
  std::optional<program::ScheduleKind> schedule;
  std::vector<std::string> custom_schedule;  // of schedule = custom; see program::Plan
  std::vector<int> layers_per_stage;         // empty = searched
  bool count_ends_as_layers = false;
  bool offload_optimizer = false;
  bool offload_parameters = false;
  std::optional<int> offload_activations;  // layers of a virtual stage
  bool progress_thread = false;
  std::optional<bool> deterministic;          // absent: as a plan has it
  std::optional<std::string> rank_order;      // absent: the default one, or what the space has
  std::optional<std::int64_t> bucket_bytes;   // absent: as default_bucket_bytes, or of the space
  std::vector<std::string> frozen;            // parameters that are not trained: Plan::frozen
  program::GradientCompression compression;   // on every mesh with gradients to sum
  bool expert_dispatch_fp8 = false;           // of plans with ep > 1
  program::ExpertImbalance expert_imbalance;  // of plans with ep > 1; buffers hold as much
  DegreeBounds at_least, at_most;             // bound the search, not the pins
  bool operator==(const Constraints&) const = default;
};

/// Is what recomputes not searched?
inline bool recompute_is_pinned(const Constraints& constraints) {
  return constraints.recompute || !constraints.recompute_modules.empty();
}

/// What is searched where nothing is pinned: planner/spaces/*.json says the same in JSON.
struct Space {
  std::string name = "default";
  std::string about;
  // The plans that are all priced: these, and every division of the ranks.
  std::vector<program::ContextMethod> context_methods;
  std::int64_t fewest_context_tokens = 0;     // of a sequence, that cp leaves a rank
  int max_micro_batch_size = 0;               // sequences
  std::vector<program::Recompute> recompute;  // of all layers
  std::vector<int> zero_stages;
  bool expert_nodes = false;  // tokens once to each node, too, where an ep group spans several
  // Variants of them, which are priced where a bound does not tell that others are faster.
  std::vector<program::ScheduleKind> schedules;
  int max_chunks = 1;                   // of a rank, in an interleaved schedule
  std::vector<double> recompute_parts;  // of a chunk's layers, beside all of them
  // Tried on the best plans that recompute because they do not fit otherwise.
  std::vector<models::ModuleSet> refined_modules;
  bool zero_in_pipelines = false;        // stages 2 and 3, too
  std::vector<double> bucket_factors;    // times default_bucket_bytes, beside 1
  std::vector<std::string> rank_orders;  // beside the default one
  bool offload_optimizer = false;        // with and without
  bool offload_parameters = false;       // likewise, where both may be offloaded
  bool offload_activations = false;      // likewise, in the best plans that recompute
  bool node_orders = false;              // of a mixed cluster: all, not only the given one
  bool operator==(const Space&) const = default;
};

/// Names of the spaces that come with meshplan.
std::vector<std::string> space_names();
/// @throws ConfigError for an unknown one, with the nearest
const Space& space_preset(std::string_view name);
/// @throws ConfigError naming file, path, value and what was expected
Space parse_space(std::string_view text, const std::string& file);

struct SearchRequest;
/// What of the request's space its software has: ZeRO's stages and schedules. Other choices that it
/// lacks break a rule where they are met.
Space space_of(const SearchRequest& request);

/// @throws ConfigError if the pins contradict each other or cannot use exactly `num_ranks`, with
/// the nearest degree that can
void validate(const Constraints& constraints, int num_ranks);

/// Whether any plan under these pins sends tokens to experts of other ranks. Where none does, pins
/// of how they travel reach the rules of plans (program/checks), which refuse them by name.
bool exchanges_tokens(const models::ModelSpec& model, const Constraints& constraints);

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
  int expert_node_ranks = 0;
  program::GradientCompression compression;
  std::string rank_order = program::Mesh::kDefaultOrder;
  std::int64_t bucket_bytes = 0;  // 0 = default_bucket_bytes
  bool offload_optimizer = false;
  bool offload_parameters = false;
  int offload_activations = 0;  // layers of a virtual stage
  bool operator==(const Candidate&) const = default;
};

/// Sizes of micro-batches for a batch that dp ranks may share unevenly: those with fewer
/// micro-batches than any smaller one, as far as each replica has a sequence. The divisors of the
/// sequences of a replica are among them. @param most  of the sizes
std::vector<int> uneven_sizes(std::int64_t global_batch, int dp, int most);

struct Ranks {
  int count = 1;
  int per_node = 0;  // 0 = not known: neither hybrid sharding nor dispatch by node is searched
};

/// Ranks of an ep group that share a node, where each of several nodes has as many of them; else 0.
int expert_node_group(const Candidate& candidate, int ranks_per_node);

/// Every combination that uses exactly `ranks.count` and respects the pins, in one fixed order;
/// most will break a rule of the model, which is for program::check to say. Left out are choices
/// that change nothing: sp without tp, GPipe without pp (unless pinned). Unless cp is pinned, it
/// leaves every rank at least 8192 tokens of a sequence: shorter ones fit and are faster without.
/// Schedules with chunks or split backwards are enumerated where schedule or vpp is pinned; else
/// they are among the variants. Micro-batch sizes are the divisors of the sequences of
/// a replica; where the replicas do not divide the batch, one candidate stands for all sizes. With
/// uneven_batch they are all sizes that have fewer micro-batches than smaller ones and leave no
/// replica without a sequence.
///
/// Unless pinned: ZeRO stages 2 and 3, which communicate in every micro-batch, are tried without a
/// pipeline, also with one copy a node; ep takes the divisors of the experts that the ranks of a
/// stage can hold, etp 1 or tp, and tokens travel by node, too, where an ep group has equally many
/// ranks, at least two, on each of several nodes; with experts tp goes with sp. Gradients are
/// compressed as the constraints say on the meshes that sum any; if the pins leave none of these,
/// on all, and program::check refuses it.
std::vector<Candidate> enumerate(const models::ModelSpec& model, const program::Workload& workload,
                                 const Ranks& ranks, const Constraints& constraints,
                                 const Space& space = space_preset("default"));

/// A gradient bucket: a mebibyte for each rank that sums it, at least 25. A ring takes a latency a
/// rank, so the buckets of many ranks must be larger not to be latency (Megatron-LM's
/// DistributedDataParallel: 10^6 parameters a rank, at least 4 * 10^7; PyTorch's: 25 MiB).
std::int64_t default_bucket_bytes(const program::ParallelConfig& parallel);

/// "tp8 sp pp4 dp4 mbs1 full-recompute gpipe": what is on, in the order of the flags.
std::string describe(const Candidate& candidate);

/// Do the chunks hold equally many layers only if embedding and head count as one each? Then the
/// first and the last chunk hold a layer less (Llama 3 team 2024, section 3.3.2).
bool ends_fill_up(int chunks, int num_layers);

/// Schedules beside 1F1B and GPipe with the chunks that they can have on `parallel.pp` stages of a
/// model of `num_layers`: those of an interleaved one divide the layers, or are a power of two.
/// Tasks of 1F1B are overlapped where experts' exchanges may be hidden so, with ep > 1.
struct ScheduleChoice {
  program::ScheduleKind schedule = program::ScheduleKind::OneFOneB;
  int vpp = 1;
  bool operator==(const ScheduleChoice&) const = default;
};
std::vector<ScheduleChoice> chunked_schedules(const program::ParallelConfig& parallel,
                                              int num_layers,
                                              const Space& space = space_preset("default"),
                                              const Constraints& pins = {});

Candidate candidate_of(const program::Plan& plan);

/// The axes of a search, in the order in which tables list them.
enum class Choice { Tp, Sp, Cp, Pp, Dp, Ep, Etp, MicroBatch, Recompute, Schedule, Zero };

/// "tp=8", "sp", "no sp", "recompute=full", ...
std::string label(Choice choice, const Candidate& candidate);

}  // namespace meshplan::planner
