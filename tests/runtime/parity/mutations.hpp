// Bugs as edits of a lowered program: what lowering, or a pass of it, could do wrong.
#pragma once

#include <functional>
#include <string>

#include "program/program.hpp"

namespace meshplan::test {

/// Edits the lowered program of a rank: how tests seed bugs.
using Mutation = std::function<void(program::Program&)>;

using InstancePredicate =
    std::function<bool(const program::OperationInstance&, const program::Operation&)>;

/// Erases the instances for which `predicate` holds.
Mutation without(InstancePredicate predicate);
/// Of all operations of this name, or whose name ends in "." and it.
Mutation without(const std::string& name);
/// Of the last micro-batch alone.
Mutation without_in_last_microbatch(const std::string& name);

/// Edits every operation, of blocks and of the step.
Mutation each_operation(std::function<void(program::Operation&)> edit);
Mutation each_step_operation(program::StepWork work, std::function<void(program::StepOp&)> edit);
/// Of this name, or whose name ends in "." and it.
Mutation each_operation_named(const std::string& name,
                              std::function<void(program::Operation&)> edit);
Mutation reduced_by(const std::string& name, program::ReduceOp reduce);

/// Sums a bucket's dense gradients over the ranks that hold the same parameters.
bool is_gradient_bucket(const program::Operation& operation);

void drop_last_microbatch(program::Program& program);
void drop_last_bucket(program::Program& program);
/// The W pass of a micro-batch, on the first stage.
void skip_one_weight_gradient(program::Program& program);
void overwrite_gradients(program::Program& program);
/// The bias before the sum instead of after it.
void add_bias_on_every_rank(program::Program& program);
void swap_received_microbatches(program::Program& program);
void swap_layers(program::Program& program);
/// The second micro-batch of every layer keeps its activations where the first one does.
void share_kept_place(program::Program& program);

}  // namespace meshplan::test
