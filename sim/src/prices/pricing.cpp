#include "sim/prices/pricing.hpp"

#include <algorithm>
#include <map>
#include <vector>

#include "core/error.hpp"
#include "core/index.hpp"
#include "core/units.hpp"
#include "prices/offload.hpp"
#include "prices/operator_table.hpp"
#include "program/cost/cost.hpp"
#include "program/cost/model_flops.hpp"
#include "program/cost/step_cost.hpp"
#include "program/operation_numbers.hpp"

namespace meshplan::sim {
namespace {

using program::CollectiveOp;
using program::OperationInstance;
using program::PeerOp;
using program::Program;

/// Copies of what is offloaded cross a GPU's link to its host; on a processor they are streams.
const program::StepOp* copy_over_link(const program::Operation& operation, const Cluster& cluster) {
  const auto* step = std::get_if<program::StepOp>(&operation.work);
  const bool copies = step != nullptr && program::copies_to_or_from_host(step->work);
  return copies && cluster.device.kind == DeviceKind::Gpu ? step : nullptr;
}

Price price_with(const OperatorTable& table, const Program& program,
                 const OperationInstance& instance, const Cluster& cluster) {
  if (const auto* copy = copy_over_link(program::operation_of(program, instance), cluster))
    return {.seconds = state_copy_seconds(
                static_cast<double>(program::copied_bytes(program.plan, *copy)), cluster)};
  const std::string signature = program::signature(program, instance);
  // Scalar work without a signature (masking the loss, clipping) costs its launch.
  if (signature.empty()) return {.seconds = cluster.device.launch_us / kMicroseconds};
  const program::OperationCost cost = program::operation_cost(program, instance);
  return table.price(signature, cost.flops, static_cast<double>(cost.bytes));
}

/// Prices the instances of one rank; instances of one operation share a price.
class ProgramPricer {
 public:
  ProgramPricer(const Program& program, int rank, const program::Mesh& mesh, const Cluster& cluster)
      : program_(program),
        rank_(rank),
        mesh_(mesh),
        cluster_(cluster),
        table_(cluster),
        numbers_(program),
        known_(2 * at(numbers_.count()), kUnknown) {}

  ProgramPrices run() {
    prices_.of_instance.reserve(program_.instances.size());
    for (const OperationInstance& instance : program_.instances)
      prices_.of_instance.push_back(price_of(instance));
    return std::move(prices_);
  }

 private:
  /// @returns an index into the distinct prices
  int price_of(const OperationInstance& instance) {
    // Weight gradients that accumulate read what they write: another price for the same operation.
    int& known = known_[2 * at(numbers_.of(instance.operation)) + (instance.accumulate ? 1 : 0)];
    if (known != kUnknown) return known;
    known = static_cast<int>(prices_.distinct.size());
    prices_.distinct.push_back(compute(instance));
    return known;
  }

  Price compute(const OperationInstance& instance) {
    const program::Operation& operation = program::operation_of(program_, instance);
    if (const CollectiveOp* collective = collective_of(operation))
      return price_collective(collective->collective, program::message_bytes(program_, instance),
                              placement_of(collective->group), cluster_);
    if (const auto* peer = std::get_if<PeerOp>(&operation.work))
      return price_transfer(program::message_bytes(program_, instance),
                            place(cluster_, {rank_, peer_rank(mesh_, rank_, *peer)}), cluster_);
    return price_with(table_, program_, instance, cluster_);
  }

  const GroupPlacement& placement_of(program::Group group) {
    const auto [entry, fresh] = placements_.try_emplace(group);
    if (fresh) entry->second = place(cluster_, mesh_, group, rank_);
    return entry->second;
  }

  const Program& program_;
  int rank_;
  const program::Mesh& mesh_;
  const Cluster& cluster_;
  OperatorTable table_;
  ProgramPrices prices_;
  program::OperationNumbers numbers_;
  static constexpr int kUnknown = -1;
  std::vector<int> known_;  // into the distinct prices, by operation
  std::map<program::Group, GroupPlacement> placements_;
};

}  // namespace

double MeasuredSizes::beyond() const {
  if (most <= 0 || asked <= 0) return 1;
  return std::max({1.0, asked / most, least / asked});
}

Price price_operation(const Program& program, const OperationInstance& instance,
                      const Cluster& cluster) {
  const program::Operation& operation = program::operation_of(program, instance);
  require_invariant(
      collective_of(operation) == nullptr && !std::holds_alternative<PeerOp>(operation.work),
      "price_operation is for operations that compute");
  return price_with(OperatorTable(cluster), program, instance, cluster);
}

double peak_flop_per_s(const Cluster& cluster, const program::Workload& workload) {
  if (!cluster.other_nodes.empty()) {
    double sum = 0;
    for (int type = 0; type < num_node_types(cluster); ++type)
      sum += num_nodes_of(cluster, type) * peak_flop_per_s(as_if_all(cluster, type), workload);
    return sum / cluster.num_nodes;
  }
  return workload.fp8 == program::Float8Recipe::None ? peak_flop_per_s(cluster, workload.precision)
                                                     : float8_peak_flop_per_s(cluster);
}

double model_flops_utilization(const program::Plan& plan, const Cluster& cluster,
                               double step_time_s) {
  return program::model_flops_per_step(plan) /
         (step_time_s * plan.parallel.world_size() * peak_flop_per_s(cluster, plan.workload));
}

ProgramPrices price_program(const Program& program, int rank, const program::Mesh& mesh,
                            const Cluster& cluster) {
  if (num_types(cluster) == 1) return ProgramPricer(program, rank, mesh, cluster).run();
  const Cluster own = as_if_all(cluster, node_type(cluster, rank));
  return ProgramPricer(program, rank, mesh, own).run();
}

int peer_rank(const program::Mesh& mesh, int rank, const PeerOp& peer) {
  program::Coordinates coordinates = mesh.coordinates(rank);
  coordinates.pp += peer.stage_offset;
  require_invariant(coordinates.pp >= 0 && coordinates.pp < mesh.config().pp,
                    "a peer's stage lies inside the pipeline");
  return mesh.rank_of(coordinates);
}

}  // namespace meshplan::sim
