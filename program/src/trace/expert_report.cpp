// How evenly the routers of a step spread their tokens.
#include "program/trace/expert_report.hpp"

#include <algorithm>
#include <numeric>

#include "core/error.hpp"

namespace meshplan::program {
namespace {

LayerLoad load_of_layer(std::span<const float> chosen, std::span<const float> taken, int ep) {
  const auto most = std::ranges::max_element(chosen);
  const double total = std::accumulate(chosen.begin(), chosen.end(), 0.0);
  LayerLoad load{.min = *std::ranges::min_element(chosen),
                 .mean = total / static_cast<double>(chosen.size()),
                 .max = *most,
                 .max_expert = static_cast<int>(most - chosen.begin()),
                 .ep_imbalance = imbalance_over(taken, ep)};
  for (const auto& [ranks, imbalance] : imbalance_by_ranks(taken))
    load.over.push_back({ranks, imbalance});
  if (total > 0) load.dropped_share = 1 - std::accumulate(taken.begin(), taken.end(), 0.0) / total;
  return load;
}

void add(LayerLoad& sum, const LayerLoad& one) {
  sum.layer = one.layer;
  sum.min += one.min;
  sum.mean += one.mean;
  sum.max += one.max;
  sum.max_expert = one.max_expert;
  sum.ep_imbalance += one.ep_imbalance;
  sum.dropped_share += one.dropped_share;
  if (sum.over.empty()) sum.over.assign(one.over.size(), {.imbalance = 0});
  for (std::size_t i = 0; i < std::min(sum.over.size(), one.over.size()); ++i) {
    sum.over[i].ranks = one.over[i].ranks;
    sum.over[i].imbalance += one.over[i].imbalance;
  }
}

}  // namespace

std::vector<LayerLoad> layer_loads(const Plan& plan, std::span<const float> load) {
  std::vector<LayerLoad> layers;
  if (!plan.model.moe) return layers;
  require_invariant(std::ssize(load) == expert_load_elements(plan), "a load of every expert");
  const auto experts = static_cast<std::size_t>(plan.model.moe->num_experts);
  const bool drops = expert_capacity(plan) > 0;
  const std::size_t taken_begin = drops ? load.size() / 2 : 0;
  for (int layer = 0; layer <= plan.model.num_layers; ++layer) {
    const bool routes = layer < plan.model.num_layers ? models::is_moe_layer(plan.model, layer)
                                                      : models::predicts_with_experts(plan.model);
    if (!routes) continue;
    const std::size_t begin = layers.size() * experts;
    layers.push_back(load_of_layer(load.subspan(begin, experts),
                                   load.subspan(taken_begin + begin, experts), plan.parallel.ep));
    layers.back().layer = layer;
  }
  return layers;
}

double mean_ep_imbalance(const ExpertReport& experts) {
  if (experts.layers.empty()) return 1;
  double sum = 0;
  for (const LayerLoad& load : experts.layers) sum += load.ep_imbalance;
  return sum / static_cast<double>(experts.layers.size());
}

ExpertImbalance mean_imbalance(const ExpertReport& experts) {
  std::map<int, double> sums;
  for (const LayerLoad& load : experts.layers)
    for (const RanksImbalance& over : load.over) sums[over.ranks] += over.imbalance;
  if (sums.empty()) return mean_ep_imbalance(experts);
  for (auto& [ranks, sum] : sums) sum /= static_cast<double>(experts.layers.size());
  return ExpertImbalance(std::move(sums));
}

void MeanExperts::add(const ExpertReport& experts) {
  if (steps_++ == 0) sum_.layers.assign(experts.layers.size(), LayerLoad{.ep_imbalance = 0});
  sum_.balance_loss += experts.balance_loss;
  sum_.z_loss += experts.z_loss;
  for (std::size_t i = 0; i < sum_.layers.size(); ++i)
    program::add(sum_.layers[i], experts.layers.at(i));
  RowsBeyondPlan& beyond = sum_.beyond_plan;
  beyond.layer_visits += experts.beyond_plan.layer_visits;
  beyond.bytes = std::max(beyond.bytes, experts.beyond_plan.bytes);
  beyond.largest_imbalance =
      std::max(beyond.largest_imbalance, experts.beyond_plan.largest_imbalance);
}

std::optional<ExpertReport> MeanExperts::mean() const {
  if (steps_ == 0) return std::nullopt;
  ExpertReport mean = sum_;
  mean.balance_loss /= steps_;
  mean.z_loss /= steps_;
  mean.beyond_plan.layer_visits /= steps_;
  for (LayerLoad& load : mean.layers) {
    for (double* figure :
         {&load.min, &load.mean, &load.max, &load.ep_imbalance, &load.dropped_share})
      *figure /= steps_;
    for (RanksImbalance& over : load.over) over.imbalance /= steps_;
  }
  return mean;
}

}  // namespace meshplan::program
