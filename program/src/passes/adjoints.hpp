// The backward operations of each operation of the forward pass. Each function appends them, and
// gives what the operation read its gradient; what it made has its own, laid out as the dual.
// docs/lowering.md has a table of the operands.
#pragma once

#include "layer/backward_pass.hpp"

namespace meshplan::program {

void loss_adjoint(BackwardPass& pass, const Operation& op);
void add_adjoint(BackwardPass& pass, const Operation& op);
void bias_adjoint(BackwardPass& pass, const Operation& op, const ComputeOp& work);
void linear_adjoint(BackwardPass& pass, const Operation& op, const ComputeOp& work);
/// Embeddings of tokens and of positions.
void embedding_adjoint(BackwardPass& pass, const Operation& op, const ComputeOp& work);
/// Rotations and scales: the gradient is transformed where it lies, unless a scale's is another
/// value's, too.
void in_place_adjoint(BackwardPass& pass, const Operation& op, const ComputeOp& work);
void norm_adjoint(BackwardPass& pass, const Operation& op, const ComputeOp& work);
/// Norms of heads: the gradient is transformed where it lies; that of the values stays as it is.
void head_norm_adjoint(BackwardPass& pass, const Operation& op, const ComputeOp& work);
void activation_adjoint(BackwardPass& pass, const Operation& op, const ComputeOp& work);
void slice_adjoint(BackwardPass& pass, const Operation& op, const ComputeOp& work);
void concat_adjoint(BackwardPass& pass, const Operation& op, const ComputeOp& work);
void gate_adjoint(BackwardPass& pass, const Operation& op, const ComputeOp& work);
/// Only the first token of a sequence gets a gradient.
void pool_adjoint(BackwardPass& pass, const Operation& op, const ComputeOp& work);

/// A mixer's own operations: one of the backward pass for values and weights together.
void convolution_adjoint(BackwardPass& pass, const Operation& op, const ComputeOp& work);
void gated_norm_adjoint(BackwardPass& pass, const Operation& op, const ComputeOp& work);
/// Gated delta rule and Mamba 2.
void recurrence_adjoint(BackwardPass& pass, const Operation& op, const ComputeOp& work);

void attention_adjoint(BackwardPass& pass, const Operation& op, const ComputeOp& work);
/// Probabilities are constants to the indexer, which alone reads them.
void sparse_attention_adjoint(BackwardPass& pass, const Operation& op, const ComputeOp& work);
/// Begins a gradient, as the tokens' loss does.
void indexer_adjoint(BackwardPass& pass, const Operation& op, const ComputeOp& work);
/// Appends the adjoints of all steps of a ring at once.
/// @param op  the last one, which makes its o
void ring_adjoint(BackwardPass& pass, const Operation& op);
/// Writes the gradient of keys and values beside that of the queries, which Attention has made;
/// that of a ring's queries is still apart.
void key_values_adjoint(BackwardPass& pass, const Operation& op, const ComputeOp& work);
/// Every rank adds what its own heads give to the part of the keys that all heads share.
void latent_heads_adjoint(BackwardPass& pass, const Operation& op, const ComputeOp& work);

/// Collectives over the expert grid and over cp: rows and gathered tokens go back the way they
/// came.
void exchange_adjoint(BackwardPass& pass, const Operation& op);
/// Copies beside an exchange over cp: the adjoint of a permutation is its inverse.
void exchange_copy_adjoint(BackwardPass& pass, const Operation& op, ComputeOp work);

}  // namespace meshplan::program
