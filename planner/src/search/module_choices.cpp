#include "search/module_choices.hpp"

#include <algorithm>
#include <set>

#include "models/graph.hpp"

namespace meshplan::planner {
namespace {

using models::ModuleSet;
using program::Recompute;
using program::RecomputeKind;

/// The layers' operations that are of some module, for all kinds of layers in a row.
std::vector<bool> operations_of(const models::ModelGraph& graph, ModuleSet modules) {
  std::vector<bool> are;
  for (const models::LayerGraph& layer : graph.kinds)
    for (const models::Op& op : layer.ops) are.push_back(op.modules.intersects(modules));
  return are;
}

ModuleSet without_redundant(const models::ModelGraph& graph, ModuleSet modules) {
  const std::vector<bool> all = operations_of(graph, modules);
  for (const models::Module module : modules.list()) {
    ModuleSet others = modules;
    others.remove(module);
    if (operations_of(graph, others) == all) modules = others;
  }
  return modules;
}

}  // namespace

std::vector<Recompute> different_recompute(const models::ModelSpec& model,
                                           const std::vector<Recompute>& choices) {
  const auto names_modules = [](const Recompute& recompute) { return !recompute.modules.empty(); };
  if (std::ranges::none_of(choices, names_modules)) return choices;
  const models::ModelGraph graph = models::build_graph(model);
  std::set<std::vector<bool>> known;
  std::vector<Recompute> different;
  for (Recompute choice : choices) {
    if (choice.kind == RecomputeKind::Selective) {
      const ModuleSet modules = program::recomputed_part(choice).modules;
      if (!known.insert(operations_of(graph, modules)).second) continue;
      if (names_modules(choice)) {
        choice.modules = without_redundant(graph, modules);
        if (choice.modules.empty()) continue;
        if (choice.modules == program::kCheapModules) choice.modules = {};
      }
    }
    different.push_back(std::move(choice));
  }
  return different;
}

}  // namespace meshplan::planner
