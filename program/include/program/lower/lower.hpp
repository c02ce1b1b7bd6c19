#pragma once

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "program/program.hpp"

namespace meshplan::program {

/// What is frozen in a part of a model that is lowered by itself: gradients pass it as they do in
/// the whole.
struct FrozenPart {
  std::vector<std::string> patterns;  // as Plan::frozen
  int lowest_trained = -1;            // as FrozenParameters::lowest_trained()
};

/// What a software stack fuses, overlaps and keeps. The runtime runs `meshplan_profile()`.
struct ExecutionProfile {
  bool regather_sequence = true;   // SP: keep the shard, all-gather again in backward (Megatron-LM)
  bool bucketed_gradients = true;  // reduce a bucket as soon as its last gradient is there
  bool vocab_parallel_loss = true;  // false: gather the logits, and compute the loss on every rank
                                    // (torchtitan with loss parallel disabled)
  bool fused_activations = true;    // a tanh GELU is part of the product before it
  bool fused_residuals = true;      // a sum is part of the product before it or the norm after it
  bool fused_rotations = true;      // of heads that were normed: part of that norm
  bool kept_quantized_weights = true;  // FP8: once a step, unless keeps_quantized_weights() says no
  std::optional<FrozenPart> frozen_part = std::nullopt;  // instead of Plan::frozen
};
ExecutionProfile meshplan_profile();

enum class Pass { Training, ForwardOnly };

/// Lowers one stage of a plan. Pure. @throws ConfigError listing what check(plan) finds
Program lower(const Plan& plan, int stage, Pass pass = Pass::Training,
              const ExecutionProfile& profile = meshplan_profile());

/// The same with another graph of the plan's model: one that splits its linear layers otherwise.
Program lower(const Plan& plan, const models::ModelGraph& graph, int stage,
              Pass pass = Pass::Training, const ExecutionProfile& profile = meshplan_profile());

/// Gives a training program micro-batches of another size, as many as before. What is computed, and
/// in which order, does not depend on it: this takes a fraction of lowering a plan of that size.
void set_micro_batch_size(Program& program, int size);

/// What each stage's program would plan, without listing its operations.
/// @throws ConfigError as lower_all; more micro-batches than that can list are no fault
std::vector<MemoryPlan> lower_memory(const Plan& plan);

/// One program per stage.
std::vector<Program> lower_all(const Plan& plan, Pass pass = Pass::Training,
                               const ExecutionProfile& profile = meshplan_profile());

/// Which operations merged programs list one by one all the same.
struct ListedOperations {
  int first_tasks = 6;  // all of so many of each stage, in which weights are still being gathered
  // Those of blocks (by name) and kinds. With sequence parallelism the head gathers its input anew
  // while the task before still runs.
  std::set<std::pair<std::string, TaskKind>> passes = {{"head", TaskKind::BackwardFull},
                                                       {"head", TaskKind::BackwardInput}};
};

/// The same for the simulator, of any number of micro-batches: a layer runs as one LayerPassOp in
/// the tasks between a stage's first and last ones. What is not merged: the first two visits to
/// each chunk, everything from where the first gradients are complete, and the communication that a
/// task begins and ends with, for it runs beside the tasks before and after.
/// @returns nothing where more than half of all operations would be listed: with other
/// communication between those of a layer (ZeRO-2 and 3), tasks that overlap two layers, few
/// micro-batches; nor with experts, whose exchange shares links with that of other stages
std::optional<std::vector<Program>> lower_merged(const Plan& plan,
                                                 const ListedOperations& listed = {});

/// Derives OperationInstance::waits from who reads and writes which bytes; lower() has done it.
/// Needed again only after a program's operations or instances were edited.
void link(Program& program);

/// Proves over all stages of a plan that every receive has its send in the same order, that members
/// of a group issue the same collectives in the same order, and that in-flight slots suffice.
/// @returns what is broken, in words; empty if nothing
std::vector<std::string> program_errors(const std::vector<Program>& programs);

}  // namespace meshplan::program
