#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.hpp"
#include "models/model_spec.hpp"
#include "models/module.hpp"
#include "program/plan/parallel_config.hpp"
#include "program/plan/stack.hpp"
#include "program/schedule/schedule.hpp"

namespace meshplan::program {

enum class OptimizerKind {
  AdamW,
  Adam,
  Sgd,
  Muon,  // momentum of matrices, made orthogonal (Jordan et al. 2024); the rest by AdamW
};
enum class LearningRateSchedule { Constant, Cosine };

struct OptimizerConfig {
  OptimizerKind kind = OptimizerKind::AdamW;
  double learning_rate = 3e-4;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;  // matrices only; norms and biases are never decayed
  double momentum = 0.9;      // SGD, Muon
  int orthogonal_steps = 5;   // of Newton and Schulz, Muon
  double clip_norm = 1.0;     // of the global gradient norm; 0 = no clipping
  LearningRateSchedule schedule = LearningRateSchedule::Cosine;
  int warmup_steps = 0;
  int decay_steps = 0;         // cosine: step at which the minimum is reached; 0 = the run's length
  double minimum_ratio = 0.1;  // cosine: final / peak learning rate
  bool operator==(const OptimizerConfig&) const = default;
};

/// Documents packed into sequences (docs/packed_documents.md).
struct Documents {
  bool packed = false;                         // else sequences are cut from the stream of tokens
  std::optional<int> end_of_document;          // the token that ends each in the stream
  std::int64_t pad_multiple = 1;               // each is filled up to a multiple of so many tokens
  std::vector<std::int64_t> expected_lengths;  // a sample, to predict; empty = uniform
  bool operator==(const Documents&) const = default;
};

/// Products of the layers' linears in FP8 with one scale a tensor, found when it is quantized
/// ("current scaling"); the names are Megatron-LM's (--fp8-format).
enum class Float8Recipe {
  None,
  Hybrid,  // values and weights E4M3, gradients E5M2 (Micikevicius et al. 2022, section 3)
};

/// What is trained per step; independent of how it is parallelized.
struct Workload {
  std::int64_t seq_len = 0;
  std::int64_t global_batch_size = 0;  // sequences
  DType precision = DType::F32;        // of weights and activations in compute
  Float8Recipe fp8 = Float8Recipe::None;
  OptimizerConfig optimizer;
  Documents documents;
  bool operator==(const Workload&) const = default;
};

/// What a user calls it: fp8 is Float8Recipe::Hybrid in bf16.
enum class Precision { F32, BF16, F16, Fp8 };
Precision precision_of(const Workload& workload);
void set_precision(Workload& workload, Precision precision);
/// "fp32", "bf16", "fp16" or "fp8".
std::string_view precision_name(const Workload& workload);
/// @throws ConfigError naming the nearest one
Precision parse_precision(std::string_view name);

/// How attention reaches the keys of a sequence that cp ranks share (docs/context_parallel.md).
enum class ContextMethod {
  AllGather,  // every rank gathers all keys and values (Llama 3 report, section 3.3.2)
  Ring,       // keys and values pass from rank to rank while each attends (Liu et al. 2023)
  Ulysses,    // heads are exchanged for tokens around attention (Jacobs et al. 2023)
};

/// Whose attention kernels a GPU runs (docs/cuda.md); ranks on processors have their own.
enum class AttentionKernels {
  Auto,  // cuDNN's where it has one, in parts that the workspace allows, else our own
  Own,
  Cudnn,
};

enum class RecomputeKind { None, Selective, Full };

/// Which activations are computed again in the backward pass. Selective drops what `modules` make;
/// if none is named, what is cheap to compute (norms and activation functions; Korthikanti et al.
/// 2022, section 5 names the idea). Full keeps only the input of a layer. `num_layers` limits
/// either to the first layers of each virtual stage (absent = all), `layers_per_stage` of each one
/// by itself.
struct Recompute {
  RecomputeKind kind = RecomputeKind::None;
  std::optional<int> num_layers = std::nullopt;
  std::vector<int> layers_per_stage = {};  // length pp * vpp; empty = num_layers for all
  models::ModuleSet modules = {};          // Selective only; empty = kCheapModules
  bool operator==(const Recompute&) const = default;
};

constexpr models::ModuleSet kCheapModules{models::Module::Norms, models::Module::Activations};

/// What backward computes again of a layer: nothing, what some modules make, or everything.
struct RecomputedPart {
  bool whole_layer = false;
  models::ModuleSet modules = {};  // empty if it is the whole layer
  bool covers(models::ModuleSet of_operation) const {
    return whole_layer || modules.intersects(of_operation);
  }
  bool empty() const { return !whole_layer && modules.empty(); }
  /// A number for the part: 0 = empty.
  std::int64_t key() const { return whole_layer ? -1 : std::int64_t{modules.bits()}; }
  auto operator<=>(const RecomputedPart&) const = default;
};
/// Of the layers that recompute.
RecomputedPart recomputed_part(const Recompute& recompute);
/// The same of all layers, as a plan says it.
Recompute recompute_of_all_layers(const RecomputedPart& part);

/// "none", "selective", "full", or the modules of a selective one: "norms+mlp".
std::string recompute_name(const Recompute& recompute);
/// Reads the same; of all layers. @throws ConfigError naming the nearest
Recompute parse_recompute(std::string_view name);

/// How gradients travel where the ranks with equal parameters sum them (docs/data_parallel.md).
enum class CompressionKind {
  None,
  Int8,  // blocks of int8 numbers with one fp32 scale each
  TopK,  // of each block the elements of largest magnitude
};

/// What compression loses is kept and added to the next step's gradient (error feedback).
struct GradientCompression {
  CompressionKind kind = CompressionKind::None;
  double ratio = 0.01;  // TopK: the part of the elements that travels, (0, 1]
  bool operator==(const GradientCompression&) const = default;
};

struct Prediction {
  double step_time_s = 0;
  double peak_memory_bytes = 0;  // of the largest rank
  double mfu = 0;
  std::vector<std::string> reasons;
  bool operator==(const Prediction&) const = default;
};

/// Micro-batches of each replica in a step; the last one may hold empty sequences.
/// @param global_batch_size, micro_batch_size  sequences
constexpr std::int64_t microbatches_of(std::int64_t global_batch_size,
                                       std::int64_t micro_batch_size, int dp) {
  const std::int64_t round = micro_batch_size * dp;
  return (global_batch_size + round - 1) / round;
}

/// A resolved configuration: everything that lowering needs, and what was predicted when it was
/// chosen.
struct Plan {
  int schema_version = 1;
  models::ModelSpec model;
  std::string model_hash;
  std::string cluster_name;
  std::string cluster_hash;
  std::string cluster_json;  // the resolved cluster, as an embedded object in the file
  Workload workload;
  Stack stack;  // that runs it
  ParallelConfig parallel;
  ContextMethod context_parallel = ContextMethod::AllGather;  // read where cp > 1
  /// Packed documents over cp > 1: a document is divided over so few ranks that none has more
  /// tokens of it; 0 = over all.
  std::int64_t max_tokens_per_rank = 0;
  std::string rank_order = "tp-cp-ep-dp-pp";
  ScheduleKind schedule = ScheduleKind::OneFOneB;
  std::vector<std::string> custom_schedule;  // Custom: a line of to_csv(Schedule) per stage
  int micro_batch_size = 1;                  // sequences
  /// Replicas may take unequal numbers of sequences: places of the last micro-batches beyond the
  /// global batch hold empty sequences, which no loss counts (docs/data_parallel.md).
  bool uneven_batch = false;
  Recompute recompute;
  // Length pp * vpp, in the order of the forward pass; empty = as even as possible, remainder in
  // the middle. The first and the last may be 0: embedding or head alone.
  std::vector<int> layers_per_stage;
  bool count_ends_as_layers = false;  // embedding and head weigh one layer each in an even division
  /// fp32 master weights and optimizer state lie in host memory; the update fetches and stores
  /// them piece by piece (docs/data_parallel.md).
  bool offload_optimizer = false;
  /// With ZeRO-3 and the optimizer's state there: so do the weights that a rank owns, which come to
  /// the device unit by unit before they are gathered (docs/data_parallel.md).
  bool offload_parameters = false;
  /// So many of each virtual stage's layers, its first ones, keep what backward needs in host
  /// memory; it goes there behind the layer's forward pass and comes back before its backward one
  /// (docs/recompute.md).
  int offload_activations = 0;
  /// Where the host drives communications, a thread beside each rank's own moves them while that
  /// one computes (docs/data_parallel.md).
  bool progress_thread = false;
  /// With ep > 1: the rows that buffers hold for a rank's experts in a micro-batch, as a multiple
  /// of what they receive when the router balances them. A run makes room for more where it has to.
  double expert_imbalance = 2.0;
  /// With ep > 1: the rows that the busiest ep rank's experts receive over the mean, for
  /// predictions; 1 = balanced. A run reports it (docs/expert_parallel.md).
  double expected_expert_imbalance = 1.0;
  /// So many neighbouring ranks of an ep group are a node's: a token travels once to each node that
  /// has experts of it, to the rank of the same place there, which forwards it. 0 = every rank
  /// sends to every other (docs/expert_parallel.md).
  int expert_node_ranks = 0;
  /// With ep > 1: tokens travel to their experts as E4M3 numbers with a scale for each 128; what
  /// comes back, and gradients, travel as they are computed with.
  bool expert_dispatch_fp8 = false;
  std::int64_t bucket_bytes = 25 << 20;  // data-parallel gradient buckets
  /// ZeRO (Rajbhandari et al. 2020): what the dp * cp ranks that hold the same parameters divide
  /// among them: 1 optimizer state, 2 also gradients, 3 also weights.
  int zero_stage = 0;
  int zero_shard_group = 0;  // hybrid: so many of these ranks share one copy of it; 0 = all of them
  GradientCompression compression;
  /// Parameters that are not trained, as patterns of their names in the order in which they are
  /// read (docs/fine_tuning/frozen_parameters.md); empty = all are trained.
  std::vector<std::string> frozen;
  AttentionKernels attention = AttentionKernels::Auto;
  /// The most that cuDNN's attention may need beside its operands; else it runs in parts.
  std::int64_t attention_workspace_bytes = std::int64_t{2} << 30;
  /// A run repeats bit for bit. Without, cuDNN's attention may add gradients up in any order, which
  /// needs less memory and moves less through it (docs/cuda.md).
  bool deterministic = true;
  std::optional<Prediction> prediction;

  /// Sequences of one micro-batch of every replica.
  std::int64_t sequences_per_round() const { return std::int64_t{micro_batch_size} * parallel.dp; }
  int num_microbatches() const {
    return static_cast<int>(
        microbatches_of(workload.global_batch_size, micro_batch_size, parallel.dp));
  }
  /// Places of a step beyond the global batch; 0 unless the batch is uneven.
  std::int64_t empty_sequences() const {
    return num_microbatches() * sequences_per_round() - workload.global_batch_size;
  }
  /// Tokens of a rank: context parallelism divides the sequences.
  std::int64_t tokens_per_microbatch() const {
    return micro_batch_size * workload.seq_len / parallel.cp;
  }
  bool operator==(const Plan&) const = default;
};

/// Place in its step of sequence `i` of a micro-batch of the data-parallel rank `dp`: micro-batches
/// go around the ranks, so that a step holds the same sequences whatever the plan. Places from the
/// global batch on are those of empty sequences.
std::int64_t place_in_step(const Plan& plan, int microbatch, int dp, int i);
/// Sequences of the global batch in a micro-batch of the data-parallel rank `dp`: its first ones,
/// 0 to micro_batch_size; the others are empty.
int real_sequences(const Plan& plan, int microbatch, int dp);

/// The same plan, run by a stack as that does it by itself.
/// @param software  Stack::software
Plan on_stack(Plan plan, std::string software);

/// Rows of routed tokens that a rank's buffers hold, per micro-batch; 0 without experts. Balanced
/// experts receive tokens * top-k * etp rows (tokens of this rank, which the etp group gathers).
/// With ep > 1 `expert_imbalance` times that, but never more than all ranks could send: each token
/// chooses at most min(top-k, experts held) of the experts here. A run makes room for rows beyond.
std::int64_t routed_rows_bound(const Plan& plan);
/// The most that all ranks could send to one: what no router exceeds.
std::int64_t most_routed_rows(const Plan& plan);

/// Nodes of an ep group between which tokens travel once: 1 unless expert_node_ranks is set.
int expert_nodes(const Plan& plan);
/// Rows that a rank's buffers hold for tokens on their way to other nodes, or from them: its tokens
/// times the nodes, which no router exceeds. 0 where expert_nodes() is 1.
std::int64_t forwarded_tokens_bound(const Plan& plan);

/// Tokens of a sequence that an expert takes: ceil(capacity_factor * seq_len * top_k /
/// num_experts), at most seq_len; 0 = all (GShard, Lepikhin et al. 2020, section 3.2, with a
/// sequence as group).
std::int64_t expert_capacity(const Plan& plan);

/// FP8: are the weights quantized once a step and kept, in both layouts? With ZeRO-3 they are
/// quantized whenever they have been gathered.
bool keeps_quantized_weights(const Plan& plan);

/// Elements of Region::ExpertLoad: a row of num_experts for each MoE layer of the model and of its
/// prediction module, what its router chose; with a capacity as many rows again, what the experts
/// took.
std::int64_t expert_load_elements(const Plan& plan);
int expert_load_rows(const Plan& plan);
/// The row of a MoE layer. @param layer  of the model; num_layers: the prediction module's
int expert_load_row(const Plan& plan, int layer);

/// Layers of each virtual stage after defaults.
std::vector<int> resolved_layers_per_stage(const Plan& plan);

/// Layers of each virtual stage that recompute, its first ones; 0 where the plan recomputes
/// nothing.
std::vector<int> recomputed_layers_per_stage(const Plan& plan);

/// Who does what when: a schedule of the plan's kind and size, or the one written in it.
/// @throws ConfigError if a custom schedule cannot be read
Schedule schedule_of(const Plan& plan);

/// How the plan's chunks lie on its stages. @throws ConfigError as schedule_of
ChunkPlacement placement_of(const Plan& plan);

}  // namespace meshplan::program
