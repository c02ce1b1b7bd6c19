// The pass that compresses reductions, and what addresses and costs of its operations are.
#pragma once

#include <string>

#include "program/cost/cost.hpp"
#include "program/memory/address.hpp"

namespace meshplan::program {

/// Puts compressed exchanges in the place of the sums of gradients over equal parameters. What
/// waits for an exchange is issued when the next bucket is ready, so that backward runs meanwhile.
void compress_reductions(Program& program);

constexpr int kCompressedSlots = 2;  // a bucket is exchanged while the one before it is gathered

/// Region::CompressedGradients: of the largest bucket.
RegionPlan compressed_region(const Program& program);

FlatPlaces compressed_places(const Program& program, const OperationInstance& instance,
                             const FlatCollectiveOp& flat, const ShardPlace& place);
void add_compression_footprint(const Program& program, const OperationInstance& instance,
                               const StepOp& step, Footprint& result);
OperationCost compression_cost(const Program& program, const StepOp& step);
std::string compression_signature(const Program& program, const StepOp& step);

}  // namespace meshplan::program
