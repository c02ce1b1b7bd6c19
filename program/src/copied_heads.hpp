#pragma once

#include <vector>

#include "program/program.hpp"

namespace meshplan::program {

/// Sums over their holders of the gradients of key/value heads that several ranks hold.
std::vector<Operation> copied_head_sums(const Program& program, int bucket, Region region);

}  // namespace meshplan::program
