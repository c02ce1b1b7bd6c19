// The backward operations of what a mixture of experts computes. See passes/adjoints.hpp.
#pragma once

#include "layer/backward_pass.hpp"

namespace meshplan::program {

/// With the gradients of its losses.
void router_adjoint(BackwardPass& pass, const Operation& op, const ComputeOp& work);
void dispatch_adjoint(BackwardPass& pass, const Operation& op, const ComputeOp& work);
void grouped_linear_adjoint(BackwardPass& pass, const Operation& op, const ComputeOp& work);
void combine_adjoint(BackwardPass& pass, const Operation& op, const ComputeOp& work);
void node_routing_adjoint(BackwardPass& pass, const Operation& op, const ComputeOp& work);
void sum_nodes_adjoint(BackwardPass& pass, const Operation& op, const ComputeOp& work);
void regroup_adjoint(BackwardPass& pass, const Operation& op, ComputeOp work);

}  // namespace meshplan::program
