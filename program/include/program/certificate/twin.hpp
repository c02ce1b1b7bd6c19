// Small plans that stand for a large one: few ranks and small sizes, but every technique of it. A
// run of them beside one rank shows whether the layout changes what is computed
// (docs/certificates/certificate.md).
#pragma once

#include <string>
#include <vector>

#include "program/plan/plan.hpp"

namespace meshplan::program {

/// Ranks that a twin may have.
constexpr int kMostTwinRanks = 8;

struct Twin {
  Plan plan;
  std::vector<std::string> techniques;  // that it shares with the plan: "tp", "zero3", ...
};

/// Twins that together have what a plan combines.
struct TwinSet {
  std::vector<Twin> twins;
  /// Techniques ("zero-hybrid") and pairs of them ("pp with custom schedule") of the plan that no
  /// twin has: they need more ranks, or the rules forbid them at small degrees.
  std::vector<std::string> uncovered;
};

enum class TwinPrecision {
  Exact,  // fp32, whatever the plan trains in: only the order of sums differs from one rank's
  Own,    // the plan's; every token then goes to all experts, for rounding decides near ties
};

/// As few twins as have every technique of the plan, and every pair of them, that any plan of at
/// most kMostTwinRanks ranks can have. Gradients that are compressed can be compared where no
/// weight moves, with what was lost added; so a plan with compression also gets twins without, for
/// the updates.
/// @param plan  without violations (checks/check.hpp)
TwinSet twins_of(const Plan& plan, TwinPrecision precision);

/// The same model and workload without any technique, for one rank.
Plan one_rank_plan(const Plan& plan);

}  // namespace meshplan::program
