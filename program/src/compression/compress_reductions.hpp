// The pass that compresses reductions.
#pragma once

#include "program/program.hpp"

namespace meshplan::program {

/// Puts compressed exchanges in the place of the sums of gradients over equal parameters. What
/// waits for an exchange is issued when the next bucket is ready, so that backward runs meanwhile.
void compress_reductions(Program& program);

constexpr int kCompressedSlots = 2;  // a bucket is exchanged while the one before it is gathered

/// Region::CompressedGradients: of the largest bucket.
RegionPlan compressed_region(const Program& program);

}  // namespace meshplan::program
