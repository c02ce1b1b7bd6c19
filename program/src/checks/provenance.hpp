// Does every operation read what its operands name?
#pragma once

#include <optional>
#include <string>

#include "program/program.hpp"

namespace meshplan::program {

/// Plays a program in issue order and proves of every operand of every layer's operation, and of
/// every message between stages, that its bytes were last written by the operation that makes it,
/// of the same layer and micro-batch, and that the reader waits for that one: whatever places and
/// slots are used in turn, whatever is recomputed, fused, merged, put off or copied to the host and
/// back. Of weights, that they were gathered or fetched where they lie elsewhere; of gradients,
/// that the first of a step overwrites, later ones add to what layers have left, sums read what was
/// completed and not summed yet, and what is added of a micro-batch was summed. Norms, updates and
/// compression at the end of a step are played and not proven; that nothing is overwritten while
/// another lane reads it, and that copies wait for each other, is for race_error.
/// @returns the first operand of which this does not hold, in words
std::optional<std::string> provenance_error(const Program& program);

}  // namespace meshplan::program
