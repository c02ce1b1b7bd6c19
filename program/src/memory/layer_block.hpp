#pragma once

#include "core/index.hpp"
#include "program/program.hpp"

namespace meshplan::program {

/// What a layer of Program::layers runs.
inline const Block& block_of(const Program& program, int layer) {
  return program.blocks[at(program.layers[at(layer)].block)];
}

}  // namespace meshplan::program
