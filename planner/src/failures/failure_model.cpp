#include "planner/failures/failure_model.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/format.h>
#include <numeric>
#include <utility>

#include "core/checkpoint_interval.hpp"
#include "core/error.hpp"
#include "core/index.hpp"
#include "core/parse_number.hpp"
#include "core/units.hpp"
#include "failures/checkpoint_prices.hpp"
#include "failures/positive.hpp"
#include "models/graph.hpp"
#include "program/plan/frozen.hpp"

namespace meshplan::planner {
namespace {

constexpr double kValueBytes = 4;  // bytes; checkpoints hold weights and moments in it
/// A job whose restarts and intervals are so many times its MTBF never gets on.
constexpr double kHopeless = 30;
constexpr double kLeastGoodput = 1e-9;

/// @throws ConfigError as FailureModel
void require_possible(const FailureAssumptions& a, const sim::Cluster& cluster) {
  require_positive("MTBF of a device in hours", a.device_mtbf_hours);
  require_positive("detection seconds", a.detection_s, true);
  require_positive("restart seconds", a.start_s, true);
  require_positive("repair hours", a.repair_hours, true);
  if (a.checkpoint_s) require_positive("checkpoint seconds", *a.checkpoint_s, true);
  if (a.interval_s) require_positive("checkpoint interval in seconds", *a.interval_s);
  if (a.storage_gb_per_s) require_positive("storage bandwidth in GB/s", *a.storage_gb_per_s);
  if (a.spare_nodes < 0 || a.spare_nodes > cluster.num_nodes)
    throw ConfigError(fmt::format("{} spare nodes beside {} of the job; nearest: {}", a.spare_nodes,
                                  cluster.num_nodes, a.spare_nodes < 0 ? 0 : cluster.num_nodes));
  if (a.checkpoints == CheckpointPlace::Partner && cluster.num_nodes == 1)
    throw ConfigError(
        "checkpoints in a partner's memory need a second node, which the cluster lacks; nearest: "
        "storage");
  const double mtbf_s = a.device_mtbf_hours * kHourSeconds / cluster.num_ranks();
  if ((a.detection_s + a.start_s) / mtbf_s > kHopeless)
    throw ConfigError(fmt::format(
        "an MTBF of {:g} hours a device is {:.3g} s on {} devices: they fail before a restart of "
        "{:g} s is over; nearest: fewer devices, or a longer MTBF",
        a.device_mtbf_hours, mtbf_s, cluster.num_ranks(), a.detection_s + a.start_s));
}

/// Moments that the optimizer keeps of each trained parameter.
double moments_of(const program::Plan& plan) {
  return plan.workload.optimizer.kind == program::OptimizerKind::Sgd ? 1 : 2;
}

/// P(N = k) of a Poisson distribution.
double poisson(double mean, int k) {
  if (mean <= 0) return k == 0 ? 1 : 0;
  return std::exp(k * std::log(mean) - mean - std::lgamma(k + 1.0));
}

/// Mean of value(k) over k nodes that are away, at most `most`, whose number is Poisson. Numbers
/// more than eight standard deviations off are left out.
template <class Value>
double mean_over_away(double mean, int most, const Value& value) {
  const double reach = 8 * std::sqrt(mean) + 8;
  const int first = static_cast<int>(std::min<double>(most, std::max(0.0, mean - reach)));
  const int last = static_cast<int>(std::min<double>(most, mean + reach));
  double sum = 0, weights = 0;
  for (int k = first; k <= last; ++k) {
    const double weight = poisson(mean, k);
    sum += weight * value(k);
    weights += weight;
  }
  return weights > 0 ? sum / weights : value(most);
}

}  // namespace

double parse_mtbf_hours(std::string_view text) {
  constexpr double kMost = 1e12;
  const std::array<std::pair<char, double>, 3> units = {{{'h', 1}, {'d', 24}, {'y', 365.25 * 24}}};
  const auto unit = std::ranges::find_if(
      units, [&](const auto& known) { return !text.empty() && text.back() == known.first; });
  if (unit == units.end())
    throw ConfigError(fmt::format("{}: expected a number with its unit: h, d or y; nearest: {}h",
                                  text, parse_number(text, 1e-12, kMost) ? text : "50000"));
  const std::string_view number = text.substr(0, text.size() - 1);
  const auto value = parse_number(number, 0, kMost);
  if (!value || *value <= 0)
    throw ConfigError(
        fmt::format("{}: '{}' is no number above 0 and of at most {:g}; for example 50000h", text,
                    number, kMost));
  return *value * unit->second;
}

/// What a stage's ranks keep between steps.
struct FailureModel::StageBytes {
  double saved = 0;  // once for all replicas
  double held = 0;   // by all ranks of the stage together: what they read to start
};

FailureModel::Elements& FailureModel::Elements::operator+=(const Elements& other) {
  dense += other.dense;
  experts += other.experts;
  frozen += other.frozen;
  return *this;
}

FailureModel::FailureModel(const models::ModelSpec& model, const std::vector<std::string>& frozen,
                           const sim::Cluster& cluster, const FailureAssumptions& assumptions)
    : cluster_(cluster), assumptions_(assumptions) {
  require_possible(assumptions, cluster);
  const models::ModelGraph graph = models::build_graph(model);
  const program::FrozenParameters frozen_parameters(frozen, graph);
  const auto elements = [&](const models::LayerGraph& layer, const std::string& prefix) {
    return elements_of(layer, frozen_parameters.mask(layer, prefix));
  };
  embedding_ = elements(graph.embedding, "embedding.");
  ending_ = elements(graph.head, "head.");
  if (graph.tied_embeddings)  // saved as the embedding's
    ending_.dense -= static_cast<double>(model.vocab_size) * model.hidden_size;
  for (const models::LayerGraph& module : graph.mtp) ending_ += elements(module, "mtp.");
  for (int layer = 0; layer < model.num_layers; ++layer)
    layers_.push_back(
        elements(graph.kinds[at(graph.layer_kind[at(layer)])], program::layer_prefix(layer)));
}

/// @param frozen  of the layer's parameters, in their order; empty = none
FailureModel::Elements FailureModel::elements_of(const models::LayerGraph& layer,
                                                 const std::vector<bool>& frozen) {
  Elements elements;
  std::size_t parameter = 0;
  for (const models::Tensor& tensor : layer.tensors) {
    if (tensor.tensor_class != models::TensorClass::Parameter) continue;
    const bool is_frozen = parameter < frozen.size() && frozen[parameter];
    ++parameter;
    double count = 1;
    for (const models::Dim& dim : tensor.shape)
      count *= static_cast<double>(models::evaluate(dim, {}));
    const bool is_expert = tensor.name.find(".experts.") != std::string::npos;
    (is_frozen ? elements.frozen : is_expert ? elements.experts : elements.dense) += count;
  }
  return elements;
}

FailureModel::Elements FailureModel::elements_of_stage(const program::Plan& plan, int stage,
                                                       const std::vector<int>& layers) const {
  Elements sum;
  const program::ChunkPlacement placement = program::placement_of(plan);
  for (int chunk = 0; chunk < plan.parallel.vpp; ++chunk) {
    const int held = program::virtual_stage(placement, plan.parallel.pp, {stage, chunk});
    const int first = std::accumulate(layers.begin(), layers.begin() + held, 0);
    for (int layer = first; layer < first + layers[at(held)]; ++layer) sum += layers_[at(layer)];
    if (held == 0) sum += embedding_;
    if (held + 1 == static_cast<int>(layers.size())) sum += ending_;
  }
  return sum;
}

FailureModel::StageBytes FailureModel::bytes_of(const program::Plan& plan,
                                                const Elements& elements) {
  const program::ParallelConfig& p = plan.parallel;
  const double moments = moments_of(plan) * kValueBytes;
  const auto replicas = [&](int ranks, bool sharded) {
    if (!sharded) return static_cast<double>(ranks);
    const int group = plan.zero_shard_group > 0 ? std::min(plan.zero_shard_group, ranks) : ranks;
    return static_cast<double>(ranks) / group;
  };
  const auto held = [&](double count, int ranks) {
    return count * (kValueBytes * replicas(ranks, plan.zero_stage >= 3) +
                    moments * replicas(ranks, plan.zero_stage >= 1));
  };
  const int dense_ranks = p.dp * p.cp;
  return {.saved = (elements.dense + elements.experts) * (kValueBytes + moments) +
                   elements.frozen * kValueBytes,
          .held = held(elements.dense, dense_ranks) + held(elements.experts, p.edp()) +
                  elements.frozen * kValueBytes * replicas(dense_ranks, plan.zero_stage >= 3)};
}

CheckpointCosts FailureModel::checkpoint_costs(const program::Plan& plan) const {
  const std::vector<int> layers = program::resolved_layers_per_stage(plan);
  const int stage_ranks = plan.parallel.world_size() / plan.parallel.pp;
  CheckpointBytes all;
  for (int stage = 0; stage < plan.parallel.pp; ++stage) {
    const StageBytes bytes = bytes_of(plan, elements_of_stage(plan, stage, layers));
    all.saved += bytes.saved;
    all.saved_rank = std::max(all.saved_rank, bytes.saved / stage_ranks);
    all.held += bytes.held;
    all.held_rank = std::max(all.held_rank, bytes.held / stage_ranks);
  }
  CheckpointCosts costs = planner::checkpoint_costs(all, assumptions_.checkpoints, cluster_,
                                                    assumptions_.storage_gb_per_s);
  if (assumptions_.checkpoint_s) costs.stall_s = *assumptions_.checkpoint_s;
  return costs;
}

FailureCosts FailureModel::costs(const program::Plan& plan) const {
  return {.num_nodes = cluster_.num_nodes,
          .devices = cluster_.num_ranks(),
          .mtbf_s = assumptions_.device_mtbf_hours * kHourSeconds / cluster_.num_ranks(),
          .checkpoint = checkpoint_costs(plan),
          .detection_s = assumptions_.detection_s,
          .start_s = assumptions_.start_s,
          .repair_s = assumptions_.repair_hours * kHourSeconds,
          .spare_nodes = assumptions_.spare_nodes,
          .worlds = SmallerWorlds(plan, cluster_.devices_per_node, cluster_.num_nodes,
                                  assumptions_.smaller_world)};
}

Goodput FailureModel::goodput(const program::Plan& plan, double step_time_s) const {
  const FailureCosts costs = this->costs(plan);
  const double interval = costs.interval_s(assumptions_.interval_s, step_time_s);
  const double mean_away = costs.repair_s / costs.mtbf_s;
  const int all = costs.num_nodes + costs.spare_nodes;
  const auto speed_without = [&](int away) {
    return costs.worlds.speed(std::min(costs.num_nodes, all - away));
  };
  const double speed = mean_over_away(mean_away, all, speed_without);
  // A node that comes back costs a second restart where the job is faster with it. It leaves as
  // many away as there are on average.
  const double rejoins = mean_over_away(mean_away, all, [&](int away) {
    return away < all && speed_without(away) > speed_without(away + 1) ? 1.0 : 0.0;
  });
  const FailureTimes times{.mtbf_s = costs.mtbf_s,
                           .stall_s = costs.checkpoint.stall_s,
                           .lag_s = costs.checkpoint.lag_s,
                           .restart_s = costs.restart_s() + rejoins * costs.rejoin_s()};
  const double goodput = checkpoint_goodput(times, interval) * speed;
  return {.goodput = std::max(goodput, kLeastGoodput),
          .interval_s = interval,
          .mtbf_s = costs.mtbf_s,
          .failures_per_day = kDaySeconds / costs.mtbf_s,
          .failure_s = times.restart_s + times.lag_s + interval / 2,
          .saving = goodput * times.stall_s / interval,
          .smaller_world = 1 - speed,
          .paid = static_cast<double>(all) / costs.num_nodes,
          .checkpoint = costs.checkpoint};
}

std::vector<std::string> FailureModel::assumed() const {
  std::vector<std::string> lines;
  if (is_storage_assumed(cluster_, assumptions_.storage_gb_per_s) &&
      assumptions_.checkpoints == CheckpointPlace::Storage)
    lines.push_back(assumed_storage(cluster_));
  const FailureAssumptions usual;
  if (assumptions_.detection_s == usual.detection_s)
    lines.push_back(
        fmt::format("{:g} s until a failure is noticed, PyTorch's time-out of "
                    "collectives (--detection-seconds)",
                    usual.detection_s));
  if (assumptions_.start_s == usual.start_s)
    lines.push_back(
        fmt::format("{:g} s until all processes have started (--restart-seconds)", usual.start_s));
  if (assumptions_.repair_hours == usual.repair_hours)
    lines.push_back(fmt::format("{:g} h until a node that failed is back (--repair-hours)",
                                usual.repair_hours));
  return lines;
}

double FailureCosts::least_interval_s(double step_time_s) const {
  return least_checkpoint_interval_s(times_of(checkpoint, step_time_s));
}

double FailureCosts::interval_s(std::optional<double> asked, double step_time_s) const {
  constexpr double kShortest = 1e-6;
  const double interval_s = asked
                                ? std::max(*asked, least_interval_s(step_time_s))
                                : checkpoint_interval_s(times_of(checkpoint, step_time_s), mtbf_s);
  return std::max(interval_s, kShortest);
}

SmallerWorlds::SmallerWorlds(const program::Plan& plan, int devices_per_node, int num_nodes,
                             SmallerWorld kind)
    : parallel_(plan.parallel),
      zero_shard_group_(plan.zero_shard_group),
      num_microbatches_(plan.num_microbatches()),
      devices_per_node_(devices_per_node),
      num_nodes_(num_nodes),
      kind_(kind) {}

int SmallerWorlds::replicas(int nodes) const {
  if (nodes >= num_nodes_) return parallel_.dp;
  const int ranks = parallel_.tp * parallel_.cp * parallel_.pp;  // of a replica
  const auto divides = [&](int dp) {
    const int of_stage = parallel_.tp * parallel_.cp * dp;
    return of_stage % (parallel_.ep * parallel_.etp) == 0 &&
           (zero_shard_group_ == 0 || parallel_.cp * dp % zero_shard_group_ == 0);
  };
  int dp = static_cast<int>(std::int64_t{nodes} * devices_per_node_ / ranks);
  while (dp > 0 && !divides(dp)) --dp;
  return dp;
}

double SmallerWorlds::speed(int nodes) const {
  if (nodes >= num_nodes_) return 1;
  if (kind_ == SmallerWorld::Wait || nodes <= 0) return 0;
  const int dp = replicas(nodes);
  if (dp == 0) return 0;
  if (kind_ == SmallerWorld::ShrinkBatch) return static_cast<double>(dp) / parallel_.dp;
  // The replica with the most micro-batches decides; a pipeline fills in (pp - 1) / vpp of them
  // (Narayanan et al. 2021, section 2.2).
  const double fill = static_cast<double>(parallel_.pp - 1) / parallel_.vpp;
  const std::int64_t all = std::int64_t{num_microbatches_} * parallel_.dp;
  const std::int64_t most = (all + dp - 1) / dp;
  return (num_microbatches_ + fill) / (static_cast<double>(most) + fill);
}

}  // namespace meshplan::planner
