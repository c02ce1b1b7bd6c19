// The rules that a plan must obey to be lowered and run. docs/rules.md lists them.
#pragma once

#include <string>
#include <vector>

#include "models/graph.hpp"
#include "program/plan/plan.hpp"

namespace meshplan::program {

/// One broken rule of a plan, e.g. {"heads", "num_heads (6) is not divisible by tp (4); nearest:
/// 3"}.
struct Violation {
  std::string rule;     // stable id
  std::string message;  // values, rule and the nearest valid choice
};

/// Every rule that the plan breaks; empty = it can be lowered and run. Includes what this version
/// does not lower yet (MoE, MLA, context parallelism, ...), named as such.
std::vector<Violation> check(const Plan& plan);
/// The same of a plan whose layers are those of `graph`, which the model need not describe.
std::vector<Violation> check(const Plan& plan, const models::ModelGraph& graph);

}  // namespace meshplan::program
