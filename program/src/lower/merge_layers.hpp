// Layers that run as one operation each. See lower_merged().
#pragma once

#include <vector>

#include "program/lower/lower.hpp"

namespace meshplan::program {

/// Could layers of the plan run as one operation each? See lower_merged().
bool merges_layers(const Plan& plan);
/// Fills Block::passes.
void add_passes(Block& block, const ListedOperations& listed);
/// That of a layer which is the first or last, or both, that its task runs.
const Operation& pass_of(const Block& block, TaskKind kind, bool first, bool last);
/// By task: do its layers run as one operation each?
std::vector<bool> merged_tasks(const Program& program, const ListedOperations& listed);

}  // namespace meshplan::program
