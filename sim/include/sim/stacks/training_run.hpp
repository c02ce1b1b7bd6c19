// A training job as launch scripts and published tables describe it: model, degrees, batch and the
// switches that matter to time and memory. Unlike a program::Plan it also names what this project's
// runtime does not do (other trainers' features), so it can be predicted but not lowered.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/model_spec.hpp"
#include "models/module.hpp"
#include "program/plan/parallel_config.hpp"
#include "program/plan/pipeline_layout.hpp"
#include "program/schedule/schedule.hpp"

namespace meshplan::sim {

/// Compute precision of the layers' matrix products; weights and activations stay 16 bit.
enum class RunPrecision {
  Bf16,
  Fp16,
  Fp8,       // one scale per tensor
  MxFp8,     // one scale per 32 elements (OCP microscaling formats)
  Fp8Block,  // one scale per 128 x 128 block of weights, 1 x 128 of activations
};

enum class AttentionKernel {
  Flash,    // scores stay on chip
  Unfused,  // scores are written to memory
};

enum class RunRecompute {
  None,
  Full,
  EverySecondLayer,  // full, of every second layer
  CoreAttention,     // scores, softmax and their product with the values (Korthikanti et al. 2022)
  Modules,           // those of recompute_modules
  PerOp,             // everything but matrix products, of which every second is kept
};

enum class CudaGraphs { None, Partial, Full };

/// What a launch script turns on. Names are those of the published tables.
struct RunSwitches {
  bool compile = false;
  bool eager = false;
  bool async_tp = false;
  bool token_drop = false;  // capacity 1, padded: every expert gets the same number of tokens
  bool no_grouped_gemm = false;
  bool balanced_routing = false;
  bool fused_dispatch = false;
  bool moe_a2a_overlap = false;
  CudaGraphs cuda_graphs = CudaGraphs::None;
  bool cp_all_to_all = false;  // neither this nor the next: the stack's, see ContextExchange
  bool cp_ring = false;
  bool embedding_and_head_as_layers = false;
  bool fp32_gradients = false;
  bool reduce_in_bf16 = false;
  bool megatron_fsdp = false;
  int offload_activation_layers = 0;
  bool offload_optimizer = false;
  bool offload_parameters = false;
  double dropout = 0;
  bool operator==(const RunSwitches&) const = default;
};

struct TrainingRun {
  models::ModelSpec model;
  program::ParallelConfig parallel;
  program::ScheduleKind schedule = program::ScheduleKind::OneFOneB;  // of stages with one chunk
  std::int64_t seq_len = 0;
  std::int64_t global_batch_size = 0;  // sequences
  int micro_batch_size = 1;            // sequences
  // Of the pp * vpp virtual stages; empty: layers_per_position(), the embedding in the first, the
  // loss and what it predicts besides in the last.
  std::vector<program::LayoutStage> layout;
  int flushes = 1;  // of the pipeline in a step: each time with an equal part of the micro-batches
  RunPrecision precision = RunPrecision::Bf16;
  AttentionKernel attention = AttentionKernel::Flash;
  bool attention_stated = false;  // false: unfused where the stack's fused one refuses the heads
  RunRecompute recompute = RunRecompute::None;
  models::ModuleSet recompute_modules;
  bool recompute_stated = true;         // false: what it must, see open_choices.hpp
  std::optional<int> recompute_layers;  // absent: all layers of a stage
  int zero_stage = 0;  // 0 DDP, 1 optimizer, 2 and gradients, 3 and parameters; -1: the profile's
  bool shard_in_node = false;     // stage 3 in a node, replicated across nodes
  bool keeps_gathered = false;    // stage 3: gathered once a step, summed once; set by the profile
  bool defers_gradients = false;  // stage 3: summed once a step; set by the profile
  bool sp_stated = true;          // false: sequence parallelism is the profile's
  bool states_choices = false;    // what the switches do not turn on is off: no recipe chooses
  // Experts' products are one kernel each, with the activation and the casts of its own inputs and
  // gradients in them; what is cast apart is cast for all experts at once. Set by a recipe.
  bool fused_experts = false;
  bool deterministic = true;   // Plan::deterministic; costs stacks whose profile says what
  bool fp8_attention = false;  // its products are in FP8, too; set by a recipe
  bool overlap_dp = false;
  bool overlap_tp = false;
  bool overlap_p2p = false;
  RunSwitches switches;
  std::string cluster;   // key of a preset
  std::string profile;   // key of an execution profile, with a release or not
  bool undated = false;  // it ran at some time in the past, with a release that nobody knows

  int num_microbatches() const {
    return static_cast<int>(global_batch_size / (std::int64_t{micro_batch_size} * parallel.dp));
  }
  int microbatches_of_flush() const { return num_microbatches() / flushes; }
  /// Stages with several chunks interleave them.
  program::ScheduleKind pipeline_schedule() const {
    return parallel.vpp > 1 ? program::ScheduleKind::Interleaved : schedule;
  }
  /// Tokens of a micro-batch on one context-parallel rank.
  std::int64_t local_tokens() const { return micro_batch_size * seq_len / parallel.cp; }
  /// Parameters are gathered layer by layer and dropped again. In a pipeline they stay for the
  /// step, or every micro-batch would gather them anew (torchtitan keeps them there, too).
  bool shards_layers() const { return zero_stage >= 3 && parallel.pp == 1 && !keeps_gathered; }
  /// Gradients of sharded parameters are whole until the last micro-batch.
  bool whole_gradients() const {
    return zero_stage >= 3 && defers_gradients && num_microbatches() > 1;
  }
  /// Share of the layers whose saved activations wait in the host's memory.
  double offloaded_activations() const {
    const double share = static_cast<double>(switches.offload_activation_layers) / model.num_layers;
    return share < 1 ? share : 1;
  }
  /// Sharded parameters in the host's memory are updated there, too (PyTorch FSDP, CPUOffload).
  bool updates_on_host() const {
    return switches.offload_optimizer || (switches.offload_parameters && zero_stage >= 3);
  }
  bool operator==(const TrainingRun&) const = default;
};

}  // namespace meshplan::sim
