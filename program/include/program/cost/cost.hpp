// Work of an operation from its local shapes: what the simulator prices and traces report.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "program/program.hpp"

namespace meshplan::program {

/// FLOPs executed, and the fewest bytes that must move through memory (each operand once).
struct OperationCost {
  double flops = 0;
  std::int64_t bytes = 0;
};

/// Rows of routed tokens that a rank's experts get of a micro-batch if the router spreads them
/// evenly: tokens * top-k * etp.
std::int64_t balanced_rows(const Plan& plan);

/// Rows of the busiest ep rank: Plan::expected_expert_imbalance times as many. Work on routed
/// rows is counted for these (or for the buffers' bound where that is less), since kernels and
/// exchanges touch only the rows that came; every rank is priced as the busiest, for which the
/// others wait in the exchange back.
std::int64_t busiest_rows(const Plan& plan);

/// Nodes of an ep group that hold experts of a token, in the mean over a balanced router's tokens:
/// N (1 - p), where p is the probability that none of its K experts is one of a node's G. Without
/// groups p = C(X - G, K) / C(X, K). A router that chooses among the experts of L of M groups draws
/// the groups first, and the experts out of those.
double expected_expert_nodes(const Plan& plan);
/// Rows that the busiest rank sends to nodes or forwards in its own, of a micro-batch; 0 if tokens
/// travel to their experts one by one.
std::int64_t busiest_forwarded(const Plan& plan);

OperationCost operation_cost(const Program& program, const OperationInstance& instance);

/// Bytes of the scores' gradient dS that cuDNN's deterministic backward pass of attention leaves in
/// memory, for the product dq = dS k that reads it again: 2 for each pair of a query and a key in
/// the tiles of 128 x 128 that the mask does not leave out whole. That is a kernel's share of its
/// workspace, 2 B H Q S bytes (tests/kernels/cuda/cudnn_plans_test.cpp), if it skips the other
/// tiles, as its products do; cuDNN's source is not public and none of this was measured. If it
/// fills them with zeros, up to twice as much is moved under a causal mask.
/// @param pairs    that the mask leaves, of all sequences and query heads
/// @param queries  of all sequences and query heads
/// @param keys     of a sequence
/// @param edges    of the mask that a query's tiles meet, in the mean: 0 without a mask, 1 if it is
///                 causal, and where keys lie before its window one more; an edge halves a tile
double score_gradient_bytes(double pairs, double queries, double keys, double edges);
/// Those of queries over a whole sequence. @param window  0 = none
double mean_mask_edges(double keys, bool causal, double window);
/// The same of an operation; 0 unless it is a backward pass of attention that runs so on a GPU.
double score_gradient_bytes(const Program& program, const OperationInstance& instance);
/// In the signature of such an operation. Ranks on processors run it like any other.
constexpr std::string_view kStoresScoreGradient = "score_gradient";

/// Identifies kind, phase, dtype and local shape, so that a measurement of one operation prices
/// every equal one: "linear.forward fp32 m=1024 n=768 k=256". Only compute and optimizer operations
/// have one; collectives are identified by (collective, group size, bytes).
std::string signature(const Program& program, const OperationInstance& instance);
/// The same at the end of `text`, for callers who name many operations.
void add_signature(std::string& text, const Program& program, const OperationInstance& instance);

/// Does it name an operator and a phase that exist? Nothing else would ever look a measurement up.
/// @throws ConfigError with the nearest name
void check_signature(std::string_view signature);

/// Bytes that a collective or peer operation passes in per rank; of an exchange of routed rows what
/// the busiest rank sends or receives, whichever is more.
std::int64_t message_bytes(const Program& program, const OperationInstance& instance);

}  // namespace meshplan::program
