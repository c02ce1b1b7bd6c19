// What a software stack fuses, overlaps, allocates and issues from the host, as data with reasons
// (sim/profiles/*.json). A profile never holds a speed: speeds belong to devices and to the fitted
// constants.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "models/module.hpp"
#include "program/plan/plan.hpp"
#include "sim/prices/flash_generation.hpp"
#include "sim/stacks/release.hpp"

namespace meshplan::sim {

/// What one kind of operation costs besides its arithmetic. Bytes are per element of its output (of
/// its input for a cross entropy), kernels are launches.
struct OperationHabit {
  double forward_bytes = 0;
  double backward_bytes = 0;
  double forward_kernels = 1;
  double backward_kernels = 1;
  bool operator==(const OperationHabit&) const = default;
};

/// How gathers and scatters of tensor parallelism meet the matrix products next to them.
enum class TpOverlap {
  None,
  Gradients,    // backward's, whole, under the product of the other gradient
  UserBuffers,  // split into tp pieces that move while others are multiplied
};

/// How context-parallel ranks see each other's keys and values, where the run does not say.
enum class ContextExchange {
  Ring,            // neighbour by neighbour, beside the attention of what has arrived
  Gather,          // all before attention, which runs once
  GatherThenRing,  // all beside the first part of attention; their gradients go in a ring
};

/// What fully sharded units copy between the buffers of their collectives and what computes.
enum class ShardCopies {
  None,       // parameters and gradients lie in these buffers
  Gradients,  // parameters are views, gradients are put together (PyTorch FSDP 1)
  All,        // parameters are copied out, gradients in (PyTorch FSDP 2)
};

/// What a stack can be asked for.
struct SoftwareFeatures {
  bool tensor_parallel = false;
  bool expert_parallel = false;
  std::vector<program::ScheduleKind> schedules;         // of pipelines; empty = it has none
  std::vector<program::ContextMethod> context_methods;  // empty = no context parallelism
  std::vector<int> zero_stages = {0};
  bool uneven_stages = false;                     // any number of layers in each
  bool shards_in_pipelines = false;               // ZeRO 2 and 3 beside pp
  bool recomputes_operations = false;             // selective recompute is operation by operation
  std::vector<models::Module> recompute_modules;  // that a run can name; empty = none
  bool recomputes_some_layers = false;            // full recompute of as many as it takes
  bool recomputes_nth_layers = false;             // full recompute of every nth layer
  bool chunks_loss = false;     // of a long micro-batch's tokens, where the run leaves it open
  bool muon = false;            // has this optimizer
  bool fused_dispatch = false;  // experts by DeepEP or HybridEP, where a run asks for it
  bool overlaps = true;         // communication with computation
  bool operator==(const SoftwareFeatures&) const = default;
};

struct ExecutionProfile {
  std::string name;
  std::vector<std::string> reasons;  // one line a habit: where it is seen
  SoftwareFeatures can;
  Releases releases;

  OperationHabit linear{0, 0, 1, 2};
  OperationHabit norm{4, 8, 1, 2};
  OperationHabit residual_add{6, 0, 1, 0};
  bool fused_residuals = false;  // a sum is part of the product before it, or of the norm after it
  bool fused_rotations = false;  // of normed heads: part of that norm
  OperationHabit activation{4, 6, 1, 1};  // per output element
  bool gelu_in_products = false;  // a tanh GELU and its gradient are epilogues of the products
  OperationHabit gated_activation{6, 10, 1, 1};   // per output element
  OperationHabit clamped_activation{0, 0, 0, 0};  // beside it, where what it gates is clamped
  OperationHabit expert_bias{0, 0, 0, 0};  // of experts' outputs: per element, launches per expert
  OperationHabit rope{4, 4, 1, 1};
  OperationHabit attention{0, 0, 1, 2};    // layout changes around the kernel
  bool stores_score_gradient = false;      // of fused attention, where a run is deterministic
  bool fused_sinks = true;                 // its fused attention knows learned sinks
  OperationHabit scores{5, 11, 3, 3};      // unfused only, per score: softmax and dropout
  OperationHabit router{16, 16, 12, 12};   // per token and expert
  OperationHabit permutation{4, 4, 4, 4};  // per routed element
  OperationHabit embedding{6, 8, 3, 3};
  OperationHabit cross_entropy{12, 8, 3, 2};  // per logit
  OperationHabit fp8_cast{4, 4, 1,
                          1};  // per element of a product's input, of its output's gradient
  OperationHabit block_cast{6, 6, 2, 2};  // the same with a scale per block: rows and columns apart
  OperationHabit fp4_cast{8, 8, 4, 4};    // the same in four bits
  double hybrid_ep_wire = 1;              // part that HybridEP reaches of the links between nodes
  OperationHabit expert_padding{0, 0, 0, 0};  // per routed element, in FP8: copied to whole tiles
  OperationHabit ring{25, 40, 8, 12};  // per output element and step of a context-parallel ring
  bool saves_fp8_inputs = true;        // a product keeps its input in FP8
  double issue_fraction = 1;  // of an eager launch's host time: 1 = Python and autograd issue each
  double layer_kernels = 0;   // launches and hooks of a layer that no operation explains
  double load_kernels = 0;    // of a micro-batch: its tokens to tp ranks, masks, positions
  bool recompute_stops_early = false;    // leaves out what backward does not read
  bool recompute_skips_gathers = false;  // ... and tp's gathers, which the backward pass does
  // Recompute by operation keeps products that backward does not read, too.
  bool keeps_unread_products = false;
  // ... and what an exchange with the ranks of experts brings, else it is exchanged again.
  bool keeps_exchanged_rows = false;
  bool selective_skips_layers = false;     // selective recompute is of every second layer
  bool recomputes_what_exceeds = false;    // the device's memory, unasked
  double recompute_kernels = 0;            // of entering and leaving a recomputed region
  double gradient_accumulation_bytes = 8;  // per weight and micro-batch, beside the product
  double bias_gradient_bytes = 0;  // per output element; 0: summed by the product's epilogue
  bool accumulates_first = true;   // adds the first micro-batch to zeros, too
  double dropout = 0;              // default where the run does not say

  int gradient_bytes = 4;                   // kept per parameter
  int reduce_bytes = 4;                     // on the wire per parameter
  bool distributed_optimizer = false;       // where the run leaves the ZeRO stage open
  bool shards_fully = false;                // there, too: stage 3
  bool fused_optimizer = true;              // else one pass over the state per operation of Adam
  bool sequence_parallel = false;           // beside tp, where the run leaves it open
  bool replicated_activation_sends = true;  // without sp every tp rank sends the whole activation
  bool separate_dropout_masks = true;
  bool keeps_gathered_inputs = false;  // of tp: kept whole instead of gathered again in backward
  bool copies_sequences = false;       // around gathers and scatters of sequence parallelism
  bool tp_gathers_fp8 = false;         // FP8 operands are cast before tp ranks gather them
  bool lays_out_fp8 = true;            // ... and laid out anew behind; not on Blackwell
  bool compiles_unasked = true;        // of a stack with a compiler; see read_published
  bool balances_stages = false;        // stages cut by cost, see balanced_layers; else evenly

  FlashGeneration flash = FlashGeneration::Two;
  bool cudnn_on_blackwell = false;  // attention by cuDNN there: the third generation
  int blackwell_head =
      0;                 // largest value head of that generation there, larger ones have the second
  int largest_head = 0;  // of fused attention; larger ones are unfused; 0, as above: any
  int nccl_minor = 27;   // of the NCCL 2.x that the stack came with: see first_nccl_minor
  TpOverlap tp_overlap = TpOverlap::None;
  bool rate_limited_gathers = true;  // one layer ahead at most, as PyTorch FSDP does
  ShardCopies shard_copies = ShardCopies::None;
  // Communication takes the less from compute, the slower it moves. Of our own software the engine
  // and the estimator know one share for all.
  bool share_follows_rate = true;
  bool head_in_own_unit = false;  // fully sharded, apart from the embedding
  // Fully sharded, several micro-batches a step: gradients are kept whole and summed once...
  bool defers_gradient_sync = false;
  // ... and the parameters of models with experts stay gathered until then.
  bool keeps_gathered_experts = false;
  bool gathers_fp8 = false;  // sharded parameters travel in FP8
  // With ZeRO 1 and 2 updated parameters are gathered beside nothing, else beside the next forward.
  bool gathers_after_step = false;
  bool expert_tokens_padded = false;
  bool balances_over_neighbours = false;  // balanced routing gives a token neighbouring experts
  bool experts_in_one_kernel = false;     // else the host issues their products one by one
  // Rows are weighed on their way back from the experts, which keeps them; else between an expert's
  // two products.
  bool weighs_expert_outputs = true;

  double context_mib = 500;   // CUDA context and libraries, seen by nvidia-smi only
  double workspace_mib = 64;  // cuBLAS, attention, collectives' staging in the allocator
  ContextExchange context = ContextExchange::Ring;
  double reserved_fraction = 0.06;    // of allocated: what the caching allocator holds beyond it
  double optimizer_bucket = 0;        // elements of each of a sharded optimizer's two buffers
  double optimizer_bytes = 12;        // kept per parameter: fp32 copy and two moments
  double second_moment_bytes = 4;     // of these; see profile_of
  double sharded_gradient_bytes = 0;  // more per parameter where the optimizer is sharded
  // Kept per parameter beside gradients that a run accumulates in fp32; no shard of them is copied.
  double accumulated_copy_bytes = 0;
  double sharded_parameter_bytes = 0;  // more per parameter of a shard, where layers are sharded
  double live_parameters = 0;      // gathered ones stay while they are fewer; 0: one layer ahead
  double unfused_saved_bytes = 0;  // kept per token and hidden element by copies that fusion avoids
  double logit_bytes = 6;          // kept per logit at the peak of the head
  double logit_block_bytes = 0;    // held for it by the allocator; 0: as many
  double metric_logit_bytes = 0;   // kept per logit after backward, by metrics of the step
  bool operator==(const ExecutionProfile&) const = default;
};

/// @throws ConfigError naming file, path, value and rule
ExecutionProfile parse_execution_profile(std::string_view text, const std::string& file);
std::vector<std::string> execution_profile_names();
/// The profile of NAME, or as it was in a release: NAME@RELEASE. Without a release it is the newest
/// software, of which nothing is asked that recipes choose (ReleaseRecipe). "NAME-eager", where
/// there is one, is NAME without its compiler.
/// @throws ConfigError for an unknown name, with the nearest known one, and as require_known does
const ExecutionProfile& load_execution_profile(std::string_view software);
/// Of a run in the past whose release nobody knows: the newest but for ReleaseChange::dated.
/// @throws ConfigError for an unknown name
const ExecutionProfile& load_undated_profile(std::string_view name);

}  // namespace meshplan::sim
