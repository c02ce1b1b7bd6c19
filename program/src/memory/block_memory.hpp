#pragma once

#include "program/block.hpp"

namespace meshplan::program {

/// Pass 4: offsets of saved and transient values, and how much there is of each.
void plan_block_memory(Block& block, const models::SymbolValues& sizes);

}  // namespace meshplan::program
