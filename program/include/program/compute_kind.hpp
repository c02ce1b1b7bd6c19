// What a compute operation computes. Shape letters as in models/graph.hpp; L experts held by a
// rank. docs/lowering.md#operands lists the operands of every kind in the backward pass, too.
#pragma once

#include "models/graph.hpp"

namespace meshplan::program {

enum class ComputeKind {
  // What a model is written in (models::OpKind says what each reads and writes).
  Embedding,
  PositionEmbedding,
  Scale,
  RmsNorm,
  LayerNorm,
  HeadRmsNorm,
  Linear,
  Rope,
  Attention,
  SigmoidGate,
  GatedActivation,
  Activation,
  Add,
  Slice,
  Concat,
  Router,
  Dispatch,
  GroupedLinear,
  Combine,
  Pool,
  CrossEntropy,  // backward only: the gradient of the logits
  ShortConvolution,
  GatedNorm,
  // Gated delta rule; also out: states where chunks begin (Sequences, chunks * heads * E * Ev)
  LinearAttention,
  // Mamba 2; also out: states where chunks begin (Sequences, chunks * heads * P * N)
  StateSpace,
  SelectKeys,

  // Made from CrossEntropy, from gradients of shared values and from biases.
  CrossEntropyLocal,    // in: logits (T, V local), targets (T); out: statistics (T, 3)
  CrossEntropyCombine,  // in: statistics (shards, T, 3), targets (T); out: loss (T), lse (T)
  SumLoss,              // in: loss (T); adds to the step's loss sum
  Accumulate,           // in: a, b; a += b
  BiasAdd,              // in: x (T, D); bias (D); out: x + bias; after a row-parallel sum

  // Made where a value must be laid out otherwise over the tensor-parallel ranks.
  SliceRows,     // in: x (T, D); out: this rank's rows (T / tp, D)
  SliceColumns,  // in: x (T, D); out: this rank's columns (T, D local)
  PackColumns,   // in: x (T, D); out: every rank's columns (tp, T, D local)
  // in: (tp, T, D local); out: (T, D), or this rank's rows of it
  UnpackColumns,

  // Made from Dispatch and Combine. A choice is one of a token's top-k experts.
  // in: choices (T, top-k); out: row of each choice, choice of each row (T, top-k), where each
  // expert's rows begin (X + 1), rows of each expert (X)
  DispatchPlan,
  // in: rows for each expert here (X), and on all ranks for the experts held here (ranks, L); out:
  // rows sent to and received from each rank (2, ranks), where each local expert's begin (L + 1)
  ExchangeSizes,
  RegroupRows,  // in: rows by (rank, local expert), received (ranks, L); out: by (expert, rank)
  // Where tokens travel once to each node (plan.hpp, expert_node_ranks); N nodes.
  NodeChoices,  // in: choices (T, top-k); out: the nodes of their experts (T, min(top-k, N)), or -1
  // in: choices, probabilities (T, top-k), nodes of each token, choice of each row (T, min(top-k,
  // N)); out: of each row what of these its node needs: probabilities, choices (rows, top-k)
  NodeRouting,
  SumNodes,  // in: rows, row of each choice (T, min(top-k, N)); out: sum of a token's rows (T, D)
  // Around a dispatch in FP8; packed rows have float8_row_words(D) words (core/float8_rows.hpp).
  PackRows,    // in: x (T, D); out: packed (T, words)
  UnpackRows,  // in: packed rows (R, words), offsets (L + 1); out: rows (R, D)

  // Made around Attention where a sequence lies on several ranks (context parallelism).
  KeyValues,       // in: qkv (T, (H + 2K) E); out: its keys and values (T, 2 K E)
  OrderChunks,     // in: rows by (rank, row there); out: the same rows by (sequence, position)
  MergeAttention,  // in: o, lse over some keys; adds them to o, lse over others
  Convert,         // in: x; out: x in another type

  // Made from LatentAttention, before an Attention of its own value head size.
  // in: q (T, H E), kv (T, H (En + Ev)), k_rope (T, Er); out: q, k and v (T, H (2 E + Ev))
  LatentHeads,

  // Made from an Attention or LatentAttention of chosen keys (kernels/attention/indexer.hpp).
  // in: qkv (T, (H + K) E + K Ev), choices (T, top-k); out: o (T, H Ev), lse (T, H), sum of these
  // heads' probabilities of each choice (T, top-k)
  SparseAttention,
  // in: index queries, index keys, head weights, choices (as of SelectKeys), probabilities of all
  // heads (T, top-k); out: loss (T), whose mean over the step's tokens is added to what is
  // minimized
  IndexerLoss,

  // Made from Router.
  RouterLoad,    // in: choices (T, top-k); adds to the tokens of each expert of the step
  SequenceLoad,  // in: choices (T, top-k); out: tokens of each sequence by expert (Sequences, X)
  // in: scores (T, X) [, load (ranks, Sequences, X)] [, lse (T)]; adds to the step's router losses
  RouterLosses,
  // in: choices (T, top-k), load (ranks, Sequences, X); out: choices, -1 beyond an expert's
  // capacity
  LimitChoices,

  // Made from Linear, where its product is in FP8.
  // in: x (M, K); out: scale (1) [, x / scale (M, K)] [, the same transposed (K, M)]
  Quantize,
  // in: a (M, K), scale of a, b (N, K), scale of b [, bias (N)]; out: a b^T [+ bias] (M, N)
  ScaledLinear,
};

/// What an operation of a model's graph is lowered to, or, of those that become several operations,
/// the one that keeps its attributes: LatentHeads of a LatentAttention.
/// @throws InvariantError for what is never lowered
ComputeKind compute_kind(models::OpKind kind);

}  // namespace meshplan::program
