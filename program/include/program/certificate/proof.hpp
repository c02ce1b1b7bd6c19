// What can be proven of a plan without running it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "program/plan/plan.hpp"

namespace meshplan::program {

/// Of the programs of a plan's stages, at its own sizes and degrees.
struct ProgramProof {
  int stages = 0;
  std::int64_t operations = 0;      // of a step, over all stages
  std::vector<std::string> errors;  // empty: proven
  std::string left_out;             // why there are no programs to prove; empty: there are
  bool holds() const { return errors.empty(); }
};

/// Lowers the plan and proves that sends match receives, that the ranks of a group issue the same
/// collectives in the same order, that no order of messages blocks, and that every operation reads
/// what its operands name (docs/lowering.md). Takes some seconds for a million operations; plans
/// with more than can be listed are left out.
/// @param plan  without violations (check.hpp)
ProgramProof prove_programs(const Plan& plan);

}  // namespace meshplan::program
