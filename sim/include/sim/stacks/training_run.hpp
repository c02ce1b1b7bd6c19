// A training job as launch scripts and published tables describe it: model, degrees, batch and the
// settings of its stack. Unlike a program::Plan it also names what this project's runtime does not
// do (other trainers' features), so it can be predicted but not lowered.
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
#include "program/plan/plan.hpp"
#include "program/plan/stack.hpp"
#include "program/schedule/schedule.hpp"

namespace meshplan::sim {

using program::is_on;

/// Compute precision of the layers' matrix products; weights and activations stay 16 bit.
enum class RunPrecision {
  Bf16,
  Fp16,
  Fp8,       // one scale per tensor
  MxFp8,     // one scale per 32 elements (OCP microscaling formats)
  Fp8Block,  // one scale per 128 x 128 block of weights, 1 x 128 of activations
  NvFp4,     // four bits, one scale per 16 elements and one per tensor (Blackwell)
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
  AttentionKernel attention = AttentionKernel::Flash;  // as settings.attention, where it is stated
  RunRecompute recompute = RunRecompute::None;
  models::ModuleSet recompute_modules;
  bool recompute_stated = true;         // false: what it must, see open_choices.hpp
  std::optional<int> recompute_layers;  // absent: all layers of a stage
  int zero_stage = 0;  // 0 DDP, 1 optimizer, 2 and gradients, 3 and parameters; -1: the profile's
  int orthogonal_steps = 0;               // of Muon; 0: Adam
  std::optional<double> bucket_elements;  // of gradients; absent: as the profile has them
  bool shard_in_node = false;             // stage 3 in a node, replicated across nodes
  bool keeps_gathered = false;    // stage 3: gathered once a step, summed once; set by the profile
  bool defers_gradients = false;  // stage 3: summed once a step; set by the profile
  bool sp_stated = true;          // false: sequence parallelism is the profile's
  bool deterministic = true;      // Plan::deterministic; costs stacks whose profile says what
  // As the run states them, and what is open as recipes and the profile have it: see take_recipes()
  // and take_habits(). What is open in the end is off.
  program::StackSettings settings;
  std::optional<program::ContextMethod> context_parallel;  // absent: as ContextExchange
  bool count_ends_as_layers = false;                       // Plan::count_ends_as_layers
  int offload_activation_layers = 0;
  std::vector<std::string> frozen;  // Plan::frozen
  double expert_imbalance = 1;      // Plan::expected_expert_imbalance; 1: as routers usually are
  bool offload_optimizer = false;
  bool offload_parameters = false;
  std::string cluster;              // key of a preset
  std::string profile;              // key of an execution profile, with a release or not
  bool any_fused_dispatch = false;  // experts by a fused dispatcher whose name is not stated: what
                                    // settings name is a guess that recipes and racks overrule
  bool undated = false;  // it ran at some time in the past, with a release that nobody knows

  int num_microbatches() const {
    return static_cast<int>(
        program::microbatches_of(global_batch_size, micro_batch_size, parallel.dp));
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
    const double share = static_cast<double>(offload_activation_layers) / model.num_layers;
    return share < 1 ? share : 1;
  }
  /// Sharded parameters in the host's memory are updated there, too (PyTorch FSDP, CPUOffload).
  bool updates_on_host() const {
    return offload_optimizer || (offload_parameters && zero_stage >= 3);
  }
  bool operator==(const TrainingRun&) const = default;
};

}  // namespace meshplan::sim
