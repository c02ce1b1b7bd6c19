#include "search/variants.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "sim/stacks/execution_profile.hpp"

namespace meshplan::planner {
namespace {

using program::ParallelConfig;
using program::RecomputeKind;
using program::ScheduleKind;

bool is_power_of_two(int number) {
  return (number & (number - 1)) == 0;
}

/// Numbers of chunks to try: those that divide the layers evenly, with or without the ends, and
/// powers of two.
std::vector<int> chunks_of(ScheduleKind kind, int pp, int num_layers, const Space& space,
                           const Constraints& pins) {
  if (kind == ScheduleKind::OneFOneB || kind == ScheduleKind::GPipe || kind == ScheduleKind::Custom)
    return {};  // they are enumerated
  const int least = pins.at_least.vpp.value_or(1);
  const int most = pins.at_most.vpp.value_or(space.max_chunks);
  if (const std::optional<int> fixed = program::fixed_chunks(kind))
    return *fixed >= least && *fixed <= most ? std::vector<int>{*fixed} : std::vector<int>{};
  std::vector<int> all;
  const int fewest = program::fewest_chunks(kind);
  const int most_of_stages = pp == 1 ? 1 : space.max_chunks;
  for (int vpp = std::max(fewest, least); vpp <= std::min(most_of_stages, most); ++vpp)
    if (num_layers % (pp * vpp) == 0 || ends_fill_up(pp * vpp, num_layers) || is_power_of_two(vpp))
      all.push_back(vpp);
  return all;
}

/// Parts of the layers of the largest chunk, rounded up, that are not all of them.
std::vector<std::optional<int>> recompute_choices_of(const Candidate& candidate, int chunks,
                                                     const SearchRequest& request) {
  std::vector<std::optional<int>> all = {candidate.recompute.num_layers};
  if (candidate.recompute.kind != RecomputeKind::Full || candidate.recompute.num_layers ||
      !chooses_recomputed_layers(request))
    return all;
  const int layers = (request.model.num_layers + chunks - 1) / chunks;
  for (const double part : request.space.recompute_parts) {
    const int some = static_cast<int>(std::ceil(part * layers));
    if (some >= 1 && some < layers && std::ranges::count(all, std::optional(some)) == 0)
      all.emplace_back(some);
  }
  return all;
}

std::vector<ScheduleVariant> schedules_of(const SearchRequest& request,
                                          const Candidate& candidate) {
  const Constraints& pins = request.constraints;
  const int pp = candidate.parallel.pp, num_layers = request.model.num_layers;
  std::vector<ScheduleVariant> all = {
      {candidate.schedule, candidate.parallel.vpp, candidate.count_ends_as_layers,
       recompute_choices_of(candidate, pp * candidate.parallel.vpp, request)}};
  const bool pinned = pins.schedule || pins.vpp || !pins.layers_per_stage.empty();
  if (pinned || candidate.schedule != ScheduleKind::OneFOneB) return all;
  for (const auto& [kind, vpp] :
       chunked_schedules(candidate.parallel, num_layers, request.space, pins))
    all.push_back({kind, vpp, candidate.count_ends_as_layers || ends_fill_up(pp * vpp, num_layers),
                   recompute_choices_of(candidate, pp * vpp, request)});
  return all;
}

std::vector<std::pair<int, int>> zero_of(const SearchRequest& request, const Candidate& candidate) {
  std::vector<std::pair<int, int>> all = {{candidate.zero_stage, candidate.zero_shard_group}};
  const Constraints& pins = request.constraints;
  if (!request.space.zero_in_pipelines || candidate.parallel.pp == 1 || pins.zero_stage ||
      pins.zero_shard_group || candidate.zero_stage != 1)
    return all;
  const int group = node_group(candidate.parallel, request.cluster.devices_per_node);
  for (const int stage : {2, 3}) {
    if (stage > pins.at_most.zero_stage.value_or(stage)) continue;
    if (std::ranges::count(request.space.zero_stages, stage) == 0) continue;
    all.emplace_back(stage, 0);
    if (group > 0) all.emplace_back(stage, group);
  }
  return all;
}

std::vector<std::int64_t> buckets_of(const SearchRequest& request, const Candidate& candidate) {
  std::vector<std::int64_t> all = {candidate.bucket_bytes};
  const ParallelConfig& p = candidate.parallel;
  if (request.constraints.bucket_bytes || p.dp * p.cp == 1) return all;
  const auto usual = static_cast<double>(default_bucket_bytes(p));
  for (const double factor : request.space.bucket_factors)
    all.push_back(static_cast<std::int64_t>(factor * usual));
  return all;
}

/// Only where the order moves stages and replicas to other nodes.
std::vector<std::string> orders_of(const SearchRequest& request, const Candidate& candidate) {
  std::vector<std::string> all = {candidate.rank_order};
  const ParallelConfig& p = candidate.parallel;
  const bool one_node = request.cluster.num_ranks() <= request.cluster.devices_per_node;
  if (request.constraints.rank_order || p.pp == 1 || p.dp == 1 || one_node) return all;
  for (const std::string& order : request.space.rank_orders)
    if (order != candidate.rank_order) all.push_back(order);
  return all;
}

}  // namespace

std::vector<ScheduleChoice> chunked_schedules(const ParallelConfig& parallel, int num_layers,
                                              const Space& space, const Constraints& pins) {
  std::vector<ScheduleChoice> choices;
  const int pp = parallel.pp;
  for (const ScheduleKind kind : space.schedules) {
    const bool applies =
        kind == ScheduleKind::OverlappedOneFOneB ? parallel.ep > 1 : parallel.pp > 1;
    if (!applies) continue;
    for (const int vpp : chunks_of(kind, pp, num_layers, space, pins))
      if (pp * vpp <= num_layers || ends_fill_up(pp * vpp, num_layers))
        choices.push_back({kind, vpp});
  }
  return choices;
}

int node_group(const ParallelConfig& mesh, int ranks_per_node) {
  const int sharing = mesh.dp * mesh.cp;
  const int in_node = std::gcd(sharing, std::max(1, ranks_per_node / mesh.tp));
  return in_node > 1 && in_node < sharing ? in_node : 0;
}

Offloading offloading_of(const Candidate& candidate) {
  if (!candidate.offload_optimizer) return Offloading::None;
  return candidate.offload_parameters ? Offloading::Parameters : Offloading::Optimizer;
}

void set_offloading(Candidate& candidate, Offloading offloading) {
  candidate.offload_optimizer = offloading != Offloading::None;
  candidate.offload_parameters = offloading == Offloading::Parameters;
}

std::size_t Variants::count() const {
  std::size_t of_zero = 0;
  for (const ScheduleVariant& schedule : schedules)
    of_zero += schedule.recompute_layers.size() * of_schedule();
  return zero.size() * offload.size() * of_zero;
}

bool chooses_recomputed_layers(const SearchRequest& request) {
  return !recompute_is_pinned(request.constraints) &&
         sim::load_execution_profile(request.stack.software).can.recomputes_some_layers;
}

Variants variants_of(const SearchRequest& request, const Candidate& candidate) {
  Variants all{.zero = zero_of(request, candidate),
               .offload = {offloading_of(candidate)},
               .schedules = schedules_of(request, candidate),
               .rank_orders = orders_of(request, candidate),
               .bucket_bytes = buckets_of(request, candidate)};
  const bool gpus = request.cluster.device.kind == sim::DeviceKind::Gpu;
  if (!gpus) return all;
  if (request.space.offload_optimizer && !candidate.offload_optimizer)
    all.offload.push_back(Offloading::Optimizer);
  const bool divides_weights =
      std::ranges::any_of(all.zero, [](const auto& zero) { return zero.first == 3; });
  if (request.space.offload_parameters && !candidate.offload_parameters && divides_weights)
    all.offload.push_back(Offloading::Parameters);
  return all;
}

double least_step_s(const Candidate& candidate, const sim::StepPrediction& core,
                    const ScheduleVariant& schedule, std::optional<int> recompute_layers,
                    const SearchRequest& request) {
  const int pp = candidate.parallel.pp, num_layers = request.model.num_layers;
  const int chunks = pp * schedule.vpp;
  double kept = 0;  // part of the layers that do not recompute
  if (recompute_layers && candidate.recompute.kind == RecomputeKind::Full)
    kept = 1 - std::min(1.0, static_cast<double>(*recompute_layers) * chunks / num_layers);
  double busy = core.busy.computing - kept * core.busy.recompute;
  const bool overlapped = program::overlaps_tasks(schedule.schedule);
  // Recompute repeats the communication of a forward pass, at most half of all.
  busy = overlapped ? std::max(busy, core.busy.link) : busy + (1 - kept / 2) * core.busy.moving;
  const bool whole_backwards = program::has_whole_backwards(schedule.schedule);
  if (!candidate.layers_per_stage.empty()) return (1 - kBoundSlack) * busy;
  // Of equal stages the last one waits for all others. Where layers do not divide, those with one
  // more are in the middle: the last of them has no less to do than the mean, and half of the
  // others before it.
  const bool even = !schedule.ends && num_layers % chunks == 0;
  const double before = even ? 1 : 0.45;
  const int least_layers_of_chunk = num_layers / chunks;
  const double least_layers = static_cast<double>(least_layers_of_chunk) * chunks / num_layers;
  const std::int64_t microbatches = program::microbatches_of(
      request.workload.global_batch_size, candidate.micro_batch_size, candidate.parallel.dp);
  // What is recomputed does not wait for the stage behind.
  const double waited = whole_backwards ? busy - core.busy.recompute : core.busy.forward;
  const double filling = before * least_layers * waited * (pp - 1) /
                         (static_cast<double>(microbatches) * schedule.vpp);
  return (1 - kBoundSlack) * (busy + filling);
}

}  // namespace meshplan::planner
