#include "sim/engine/extrapolation.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <map>

#include "prices/measured_collectives.hpp"
#include "program/cost/cost.hpp"
#include "program/lower/lower.hpp"
#include "program/plan/mesh.hpp"

namespace meshplan::sim {
namespace {

using program::OperationInstance;
using program::Program;

/// What a user calls it; without sizes, so that layers and micro-batches share a name.
std::string name_of_work(const Program& program, const OperationInstance& instance,
                         const program::Mesh& mesh, int rank) {
  const program::Operation& operation = program::operation_of(program, instance);
  if (const auto* collective = collective_of(operation))
    return fmt::format("{} of {} ranks", program::name_of(comm_op(collective->collective)),
                       mesh.group(collective->group, rank).size());
  if (std::holds_alternative<program::PeerOp>(operation.work)) return "message between stages";
  const std::string signature = program::signature(program, instance);
  return signature.substr(0, signature.find(' ', signature.find(' ') + 1));
}

/// What is smaller than any sample takes no longer than the smallest one: it matters only where it
/// is a part of the step.
bool matters(const Extrapolation& one, double all_seconds) {
  constexpr double kPart = 0.01;
  return one.sizes.asked > one.sizes.most || one.seconds > kPart * all_seconds;
}

std::map<std::string, Extrapolation> of_stage(const program::Plan& plan, int stage,
                                              const program::Mesh& mesh, const Cluster& cluster) {
  const Program program = program::lower(plan, stage);
  const int rank = mesh.rank_of({.pp = stage});
  const ProgramPrices prices = price_program(program, rank, mesh, cluster);
  std::map<std::string, Extrapolation> found;
  double all_seconds = 0;
  for (std::size_t i = 0; i < program.instances.size(); ++i) {
    const Price& price = prices.of(i);
    all_seconds += price.seconds;
    if (price.sizes.beyond() <= kFarBeyond) continue;
    std::string name = name_of_work(program, program.instances[i], mesh, rank);
    Extrapolation& entry = found[name];
    entry.what = std::move(name);
    entry.message =
        program::operation_of(program, program.instances[i]).lane != program::Lane::Compute;
    if (price.sizes.beyond() > entry.sizes.beyond()) entry.sizes = price.sizes;
    entry.seconds += price.seconds;
  }
  std::erase_if(found, [&](const auto& entry) { return !matters(entry.second, all_seconds); });
  return found;
}

}  // namespace

std::vector<Extrapolation> extrapolations(const program::Plan& plan, const Cluster& cluster) {
  if (cluster.operators.empty() && cluster.collectives.empty()) return {};
  const program::Mesh mesh = program::mesh_of(plan);
  std::map<std::string, Extrapolation> all;
  for (int stage = 0; stage < plan.parallel.pp; ++stage)
    for (auto& [name, found] : of_stage(plan, stage, mesh, cluster)) {
      Extrapolation& entry = all[name];
      const double seconds = std::max(entry.seconds, found.seconds);
      if (found.sizes.beyond() > entry.sizes.beyond()) entry = std::move(found);
      entry.seconds = seconds;
    }
  std::vector<Extrapolation> list;
  for (auto& [name, entry] : all) list.push_back(std::move(entry));
  std::ranges::stable_sort(list, std::ranges::greater{}, &Extrapolation::seconds);
  return list;
}

double extrapolation_sigma(double beyond) {
  constexpr double kExponent = 0.3;
  constexpr double kMost = 1.5;
  return std::min(kMost, kExponent * std::log(std::max(1.0, beyond)));
}

}  // namespace meshplan::sim
