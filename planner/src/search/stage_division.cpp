#include "search/stage_division.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/index.hpp"
#include "program/schedule/schedule.hpp"
#include "sim/prices/pricing.hpp"

namespace meshplan::planner {
namespace {

/// FLOP/s that large products reach on ranks of this type.
double speed_of(const sim::Cluster& cluster, int type, const program::Workload& workload) {
  const sim::Cluster uniform = sim::as_if_all(cluster, type);
  return sim::peak_flop_per_s(uniform, workload) * uniform.device.efficiency.gemm;
}

/// Whole numbers, at least one each, in proportion to the weights: largest remainders.
std::vector<int> in_proportion(int total, const std::vector<double>& weights) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<int> parts;
  std::vector<double> missing;
  for (const double weight : weights) {
    const double exact = total * weight / sum;
    parts.push_back(std::max(1, static_cast<int>(exact)));
    missing.push_back(exact - parts.back());
  }
  for (int left = total - std::accumulate(parts.begin(), parts.end(), 0); left != 0;) {
    const bool add = left > 0;
    const auto which = add ? std::ranges::max_element(missing) : std::ranges::min_element(missing);
    const auto i = static_cast<std::size_t>(which - missing.begin());
    const int change = add ? 1 : -1;
    missing[i] -= change;
    if (!add && parts[i] == 1) continue;  // keeps its only layer
    parts[i] += change;
    left -= change;
  }
  return parts;
}

}  // namespace

const std::vector<double>& StageDivision::speeds(const program::ParallelConfig& parallel) {
  const std::array<int, 6> degrees{parallel.tp, parallel.cp, parallel.ep,
                                   parallel.pp, parallel.dp, parallel.etp};
  const auto [entry, fresh] = speeds_.try_emplace(degrees);
  if (!fresh) return entry->second;
  const program::Mesh mesh(parallel,
                           request_.constraints.rank_order.value_or(program::Mesh::kDefaultOrder));
  std::vector<double> of_type;
  for (int type = 0; type < sim::num_types(request_.cluster); ++type)
    of_type.push_back(speed_of(request_.cluster, type, request_.workload));
  const auto speed = [&](int type) { return of_type[at(type)]; };
  for (const std::vector<int>& types : sim::node_types(request_.cluster, mesh))
    entry->second.push_back(speed(std::ranges::min(types, {}, speed)));
  return entry->second;
}

std::vector<int> StageDivision::layers(const Candidate& candidate) {
  const auto& pinned = request_.constraints.layers_per_stage;
  if (!pinned.empty() || sim::num_types(request_.cluster) == 1) return pinned;
  const program::ParallelConfig& parallel = candidate.parallel;
  const int positions = parallel.pp * parallel.vpp;
  if (parallel.pp == 1 || request_.model.num_layers < positions) return {};
  const std::vector<double>& by_stage = speeds(parallel);
  if (std::ranges::adjacent_find(by_stage, std::not_equal_to{}) == by_stage.end()) return {};
  const program::ChunkPlacement placement =
      parallel.vpp > 1 ? program::placement_of(make_plan(request_, candidate))
                       : program::ChunkPlacement::Loop;
  std::vector<double> weights;
  for (int position = 0; position < positions; ++position)
    weights.push_back(by_stage[at(program::place_of(placement, parallel.pp, position).stage)]);
  return in_proportion(request_.model.num_layers, weights);
}

}  // namespace meshplan::planner
