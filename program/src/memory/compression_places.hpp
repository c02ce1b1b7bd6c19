// Where compressed reductions read and write.
#pragma once

#include "program/memory/address.hpp"

namespace meshplan::program {

FlatPlaces compressed_places(const Program& program, const OperationInstance& instance,
                             const FlatCollectiveOp& flat, const ShardPlace& place);
void add_compression_footprint(const Program& program, const OperationInstance& instance,
                               const StepOp& step, Footprint& result);

}  // namespace meshplan::program
