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

OperationCost operation_cost(const Program& program, const OperationInstance& instance);

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
