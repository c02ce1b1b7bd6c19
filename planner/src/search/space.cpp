#include "planner/search/space.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <numeric>
#include <string_view>

#include "core/error.hpp"
#include "planner/search/search.hpp"
#include "program/plan/plan_names.hpp"
#include "search/degree_bounds.hpp"
#include "search/module_choices.hpp"
#include "search/variants.hpp"
#include "sim/stacks/software.hpp"

namespace meshplan::planner {
namespace {

using program::ParallelConfig;
using program::Recompute;
using program::RecomputeKind;
using program::ScheduleKind;

std::vector<int> divisors(std::int64_t number, std::int64_t limit) {
  std::vector<int> found;
  for (std::int64_t divisor = 1; divisor <= std::min(number, limit); ++divisor)
    if (number % divisor == 0) found.push_back(static_cast<int>(divisor));
  return found;
}

template <class T>
std::vector<T> pinned_or(const std::optional<T>& pin, std::vector<T> all) {
  return pin ? std::vector<T>{*pin} : all;
}

/// The pin, or what the bounds leave of all.
std::vector<int> bounded_or(const std::optional<int>& pin, std::vector<int> all,
                            const Constraints& constraints,
                            std::optional<int> DegreeBounds::*degree) {
  if (pin) return {*pin};
  std::erase_if(all, [&](int value) { return !is_within(value, constraints, degree); });
  return all;
}

std::vector<Recompute> recompute_choices(const models::ModelSpec& model, const Space& space,
                                         const Constraints& constraints) {
  std::vector<Recompute> choices = different_recompute(model, space.recompute);
  if (constraints.recompute || !constraints.recompute_modules.empty())
    choices = {{.kind = constraints.recompute.value_or(RecomputeKind::Selective),
                .modules = constraints.recompute_modules}};
  for (Recompute& recompute : choices)
    if (recompute.kind == RecomputeKind::Full) recompute.num_layers = constraints.recompute_layers;
  return choices;
}

std::vector<int> micro_batch_choices(const program::Workload& workload, int dp, const Space& space,
                                     const Constraints& constraints) {
  std::vector<int> all = {1};
  if (constraints.uneven_batch)
    all = uneven_sizes(workload.global_batch_size, dp, space.max_micro_batch_size);
  else if (workload.global_batch_size % dp == 0)
    all = divisors(workload.global_batch_size / dp, space.max_micro_batch_size);
  return bounded_or(constraints.micro_batch_size, std::move(all), constraints,
                    &DegreeBounds::micro_batch_size);
}

std::vector<bool> sp_choices(int tp, bool experts, const Constraints& constraints) {
  if (constraints.sp) return {*constraints.sp};
  if (experts) return {tp > 1};  // else every tp rank's experts would compute the same
  return tp > 1 ? std::vector<bool>{true, false} : std::vector<bool>{false};
}

/// Numbers of chunks that a schedule can have; those of an interleaved one are powers of two.
std::vector<int> chunk_choices(ScheduleKind schedule, int pp, const Space& space) {
  const int fewest = program::fewest_chunks(schedule);
  if (!program::loops_over_chunks(schedule) || (fewest == 1 && pp == 1)) return {fewest};
  std::vector<int> all;
  for (int vpp = fewest; vpp <= space.max_chunks; vpp *= 2) all.push_back(vpp);
  return all;
}

/// Schedules to try on `pp` stages; where a rank must have several chunks, those that can.
std::vector<ScheduleKind> schedule_kinds(int pp, const Constraints& constraints) {
  const int fewest = constraints.vpp.value_or(constraints.at_least.vpp.value_or(1));
  if (fewest == 2)
    return {ScheduleKind::Interleaved, ScheduleKind::OverlappedOneFOneB, ScheduleKind::ZbV,
            ScheduleKind::DualPipeV};
  if (fewest > 2) return {ScheduleKind::Interleaved, ScheduleKind::OverlappedOneFOneB};
  if (pp > 1) return {ScheduleKind::OneFOneB, ScheduleKind::GPipe};
  return {ScheduleKind::OneFOneB};
}

/// There is no exchange that it could hide.
bool is_idle(ScheduleKind schedule, int ep) {
  return schedule == ScheduleKind::OverlappedOneFOneB && ep == 1;
}

std::vector<std::pair<ScheduleKind, int>> schedule_choices(int pp, const Space& space,
                                                           const Constraints& constraints) {
  std::vector<ScheduleKind> kinds = schedule_kinds(pp, constraints);
  std::erase_if(kinds, [&](ScheduleKind kind) {
    return kind != ScheduleKind::OneFOneB && std::ranges::count(space.schedules, kind) == 0;
  });
  std::vector<std::pair<ScheduleKind, int>> choices;
  for (const ScheduleKind kind : pinned_or(constraints.schedule, std::move(kinds)))
    for (const int vpp : bounded_or(constraints.vpp, chunk_choices(kind, pp, space), constraints,
                                    &DegreeBounds::vpp))
      choices.emplace_back(kind, vpp);
  return choices;
}

/// Degrees of cp whose chunks are whole and long enough to be worth it.
std::vector<int> context_choices(std::int64_t seq_len, int ranks, const Space& space,
                                 const Constraints& constraints) {
  std::vector<int> all;
  for (const int cp : divisors(ranks, ranks))
    if (cp == 1 ||
        (seq_len % (std::int64_t{2} * cp) == 0 && seq_len / cp >= space.fewest_context_tokens))
      all.push_back(cp);
  return bounded_or(constraints.cp, std::move(all), constraints, &DegreeBounds::cp);
}

std::vector<program::ContextMethod> method_choices(int cp, const Space& space,
                                                   const Constraints& constraints) {
  if (cp == 1) return {constraints.context_parallel.value_or(program::ContextMethod::AllGather)};
  return pinned_or(constraints.context_parallel, space.context_methods);
}

/// (ep, etp) of a mesh. Ranks of a stage that are not needed for a copy of its experts hold further
/// ones.
std::vector<std::pair<int, int>> expert_choices(const models::ModelSpec& model,
                                                const ParallelConfig& mesh,
                                                const Constraints& constraints) {
  if (!model.moe) return {{constraints.ep.value_or(1), constraints.etp.value_or(1)}};
  const int ranks = mesh.tp * mesh.cp * mesh.dp;
  std::vector<int> widths = {1};
  if (mesh.tp > 1 && model.moe->expert_ffn_size % mesh.tp == 0) widths.push_back(mesh.tp);
  std::vector<std::pair<int, int>> all;
  for (const int etp :
       bounded_or(constraints.etp, std::move(widths), constraints, &DegreeBounds::etp)) {
    std::vector<int> degrees;
    for (const int ep : divisors(model.moe->num_experts, ranks))
      if (ranks % (std::int64_t{ep} * std::max(1, etp)) == 0) degrees.push_back(ep);
    for (const int ep :
         bounded_or(constraints.ep, std::move(degrees), constraints, &DegreeBounds::ep))
      all.emplace_back(ep, etp);
  }
  return all;
}

/// (stage, ranks that share a copy).
std::vector<std::pair<int, int>> zero_choices(const ParallelConfig& mesh, int ranks_per_node,
                                              const Space& space, const Constraints& constraints) {
  const int sharing = mesh.dp * mesh.cp;
  std::vector<int> stages = space.zero_stages;
  // In a pipeline stages 2 and 3 are variants of stage 1 (zero_of), where there is one.
  const bool varies = !space.zero_in_pipelines || std::ranges::count(stages, 1) > 0;
  std::erase_if(stages, [&](int stage) {
    return stage > 0 && (sharing == 1 || (stage >= 2 && mesh.pp > 1 && varies));
  });
  std::vector<std::pair<int, int>> all;
  for (const int stage : bounded_or(constraints.zero_stage, std::move(stages), constraints,
                                    &DegreeBounds::zero_stage)) {
    std::vector<int> groups = {0};
    if (const int group = node_group(mesh, ranks_per_node); stage >= 2 && group > 0)
      groups.push_back(group);
    const bool may_pin = stage > 0 || constraints.zero_stage;
    for (const int group :
         may_pin ? pinned_or(constraints.zero_shard_group, groups) : std::vector<int>{0})
      all.emplace_back(stage, group);
  }
  return all;
}

std::vector<int> node_choices(const Candidate& candidate, int ranks_per_node, const Space& space,
                              const Constraints& constraints, bool can_exchange) {
  std::vector<int> all = {0};
  if (candidate.parallel.ep == 1 && can_exchange) return all;
  if (constraints.expert_node_ranks) return {*constraints.expert_node_ranks};
  const int group = space.expert_nodes ? expert_node_group(candidate, ranks_per_node) : 0;
  if (group > 0) all.push_back(group);
  return all;
}

// (tp, cp, pp, dp) whose product is the number of ranks.
std::vector<ParallelConfig> meshes(const program::Workload& workload, int num_ranks,
                                   const Space& space, const Constraints& constraints) {
  const auto degrees = [&](const std::optional<int>& pin, int of, auto degree) {
    return bounded_or(pin, divisors(of, num_ranks), constraints, degree);
  };
  std::vector<ParallelConfig> found;
  for (const int tp : degrees(constraints.tp, num_ranks, &DegreeBounds::tp))
    for (const int cp : context_choices(workload.seq_len, num_ranks / tp, space, constraints))
      for (const int pp : degrees(constraints.pp, num_ranks / tp / cp, &DegreeBounds::pp)) {
        if (num_ranks % (tp * cp * pp) != 0) continue;
        const int dp = num_ranks / (tp * cp * pp);
        if (constraints.dp ? dp != *constraints.dp : !is_within(dp, constraints, &DegreeBounds::dp))
          continue;
        found.push_back({.tp = tp, .cp = cp, .pp = pp, .dp = dp});
      }
  return found;
}

bool sums_gradients(const ParallelConfig& mesh) {
  return mesh.dp * mesh.cp > 1;
}

struct Pin {
  std::string_view name;
  std::optional<int> degree;
};

void check_degrees(const std::vector<Pin>& pins, int num_ranks) {
  std::int64_t product = 1;
  std::string terms;
  bool all = true;
  for (const auto& [name, degree] : pins) {
    if (!degree) {
      all = false;
      continue;
    }
    if (*degree < 1) throw ConfigError(fmt::format("{} = {} must be at least 1", name, *degree));
    const int left = static_cast<int>(num_ranks / product);
    product *= *degree;
    terms += fmt::format("{}{}({})", terms.empty() ? "" : " * ", name, *degree);
    if (num_ranks % product != 0)
      throw ConfigError(
          fmt::format("{} = {}, which does not divide the {} ranks of the cluster; nearest {}: {}",
                      terms, product, num_ranks, name, nearest_divisor(left, *degree)));
  }
  if (all && product != num_ranks)
    throw ConfigError(fmt::format("{} = {}, but the cluster has {} ranks; dp = {} would use all",
                                  terms, product, num_ranks,
                                  *pins.back().degree * (num_ranks / product)));
}

/// What divides the ranks that hold the same layers.
void check_divided(const Constraints& constraints, int num_ranks) {
  for (const auto& [name, degree] :
       {std::pair{"ep", constraints.ep}, std::pair{"etp", constraints.etp}}) {
    if (degree && *degree < 1)
      throw ConfigError(fmt::format("{} = {} must be at least 1", name, *degree));
    if (degree && num_ranks % *degree != 0)
      throw ConfigError(
          fmt::format("{} = {} does not divide the {} ranks of the cluster; nearest {}: {}", name,
                      *degree, num_ranks, name, nearest_divisor(num_ranks, *degree)));
  }
  if (constraints.zero_stage && (*constraints.zero_stage < 0 || *constraints.zero_stage > 3))
    throw ConfigError(fmt::format("zero_stage = {}: stages are 0, 1, 2 and 3; nearest: {}",
                                  *constraints.zero_stage,
                                  std::clamp(*constraints.zero_stage, 0, 3)));
  if (constraints.expert_node_ranks && *constraints.expert_node_ranks < 0)
    throw ConfigError(fmt::format("expert_node_ranks = {} must be at least 2, or 0",
                                  *constraints.expert_node_ranks));
  if (constraints.zero_shard_group && *constraints.zero_shard_group < 2)
    throw ConfigError(
        fmt::format("zero_shard_group = {} must be at least 2", *constraints.zero_shard_group));
}

}  // namespace

std::vector<int> uneven_sizes(std::int64_t global_batch, int dp, int most) {
  const auto microbatches = [&](std::int64_t size) {
    return program::microbatches_of(global_batch, size, dp);
  };
  std::vector<int> sizes = {1};
  for (std::int64_t size = 2; size <= most && size * (dp - 1) < global_batch; ++size)
    if (microbatches(size) < microbatches(size - 1)) sizes.push_back(static_cast<int>(size));
  return sizes;
}

bool is_within(int value, const Constraints& constraints,
               std::optional<int> DegreeBounds::*degree) {
  return value >= (constraints.at_least.*degree).value_or(value) &&
         value <= (constraints.at_most.*degree).value_or(value);
}

int expert_node_group(const Candidate& candidate, int ranks_per_node) {
  const ParallelConfig& p = candidate.parallel;
  if (ranks_per_node < 2 || p.ep < 4 || p.tp * p.cp * p.dp % (p.ep * p.etp) != 0) return 0;
  const std::vector<int> ranks =
      program::Mesh(p, candidate.rank_order).group(program::Group::Ep, 0);
  const auto node_of = [&](std::size_t i) { return ranks[i] / ranks_per_node; };
  std::size_t sharing = 1;
  while (sharing < ranks.size() && node_of(sharing) == node_of(0)) ++sharing;
  if (sharing < 2 || sharing == ranks.size() || ranks.size() % sharing != 0) return 0;
  for (std::size_t i = 0; i < ranks.size(); ++i)
    if (node_of(i) != node_of(i / sharing * sharing)) return 0;
  return static_cast<int>(sharing);
}

bool exchanges_tokens(const models::ModelSpec& model, const Constraints& constraints) {
  return model.moe && constraints.ep != 1;
}

void validate(const Constraints& constraints, int num_ranks) {
  std::vector<Pin> pins = {{"tp", constraints.tp}, {"pp", constraints.pp}, {"dp", constraints.dp}};
  if (constraints.cp) pins.insert(pins.begin() + 1, {"cp", constraints.cp});
  check_degrees(pins, num_ranks);
  if (constraints.micro_batch_size && *constraints.micro_batch_size < 1)
    throw ConfigError(
        fmt::format("micro_batch_size = {} must be at least 1", *constraints.micro_batch_size));
  if (constraints.recompute_layers && constraints.recompute != RecomputeKind::Full)
    throw ConfigError(
        fmt::format("recompute_layers = {} limits full recompute only; add recompute = full",
                    *constraints.recompute_layers));
  if (!constraints.recompute_modules.empty() &&
      constraints.recompute.value_or(RecomputeKind::Selective) != RecomputeKind::Selective)
    throw ConfigError(fmt::format(
        "recompute_modules = {} with recompute = {}: they are of selective recompute; leave one "
        "of them out",
        models::to_string(constraints.recompute_modules), name_of(*constraints.recompute)));
  if (constraints.vpp && *constraints.vpp < 1)
    throw ConfigError(fmt::format("vpp = {} must be at least 1", *constraints.vpp));
  const std::int64_t stages =
      std::int64_t{constraints.pp.value_or(0)} * constraints.vpp.value_or(1);
  if (!constraints.layers_per_stage.empty() && stages != std::ssize(constraints.layers_per_stage))
    throw ConfigError(
        fmt::format("layers_per_stage has {} entries, so pp must be fixed to {}{}",
                    constraints.layers_per_stage.size(), constraints.layers_per_stage.size(),
                    constraints.vpp ? " / vpp" : ", or pp * vpp with vpp fixed as well"));
  check_divided(constraints, num_ranks);
  if (constraints.rank_order)
    program::Mesh::require_valid(ParallelConfig{}, *constraints.rank_order);
}

std::vector<Candidate> enumerate(const models::ModelSpec& model, const program::Workload& workload,
                                 const Ranks& ranks, const Constraints& constraints,
                                 const Space& space) {
  validate(constraints, ranks.count);
  const std::vector<ParallelConfig> all_meshes = meshes(workload, ranks.count, space, constraints);
  const bool some_sum = std::ranges::any_of(all_meshes, sums_gradients);
  const bool can_exchange = exchanges_tokens(model, constraints);
  const std::vector<Recompute> recomputes = recompute_choices(model, space, constraints);
  std::vector<Candidate> candidates;
  const auto add_all = [&](const ParallelConfig& mesh, bool sp, program::ContextMethod method) {
    const auto experts = expert_choices(model, mesh, constraints);
    const auto zero = zero_choices(mesh, ranks.per_node, space, constraints);
    for (const int micro_batch_size : micro_batch_choices(workload, mesh.dp, space, constraints))
      for (const Recompute& recompute : recomputes)
        for (const auto& [schedule, vpp] : schedule_choices(mesh.pp, space, constraints)) {
          Candidate candidate{
              .parallel = mesh,
              .micro_batch_size = micro_batch_size,
              .recompute = recompute,
              .schedule = schedule,
              .layers_per_stage = constraints.layers_per_stage,
              .count_ends_as_layers = constraints.count_ends_as_layers,
              .context_parallel = method,
              .rank_order = constraints.rank_order.value_or(program::Mesh::kDefaultOrder),
              .bucket_bytes = constraints.bucket_bytes.value_or(0),
              .offload_optimizer = constraints.offload_optimizer,
              .offload_parameters = constraints.offload_parameters,
              .offload_activations = constraints.offload_activations.value_or(0)};
          candidate.parallel.sp = sp;
          candidate.parallel.vpp = vpp;
          if (sums_gradients(mesh) || !some_sum) candidate.compression = constraints.compression;
          for (const auto& [ep, etp] : experts) {
            if (!constraints.schedule && is_idle(schedule, ep)) continue;
            candidate.parallel.ep = ep;
            candidate.parallel.etp = etp;
            for (const int node_ranks :
                 node_choices(candidate, ranks.per_node, space, constraints, can_exchange)) {
              candidate.expert_node_ranks = node_ranks;
              for (const auto& [stage, group] : zero) {
                candidate.zero_stage = stage;
                candidate.zero_shard_group = group;
                candidates.push_back(candidate);
              }
            }
          }
        }
  };
  for (const ParallelConfig& mesh : all_meshes)
    for (const bool sp : sp_choices(mesh.tp, model.moe.has_value(), constraints))
      for (const program::ContextMethod method : method_choices(mesh.cp, space, constraints))
        add_all(mesh, sp, method);
  return candidates;
}

Space space_of(const SearchRequest& request) {
  Space space = request.space;
  const sim::SoftwareFeatures& can = sim::load_execution_profile(request.stack.software).can;
  const auto lacks = [](const auto& all) {
    return [&all](auto choice) { return std::ranges::count(all, choice) == 0; };
  };
  std::erase_if(space.zero_stages, lacks(can.zero_stages));
  std::erase_if(space.schedules, lacks(can.schedules));
  space.zero_in_pipelines = space.zero_in_pipelines && can.shards_in_pipelines;
  space.expert_nodes = space.expert_nodes && request.stack.is_own();
  if (!sim::recomputes_selectively(request.stack, request.model))  // the same as none
    std::erase(space.recompute, Recompute{.kind = RecomputeKind::Selective});
  return space;
}

std::int64_t default_bucket_bytes(const ParallelConfig& parallel) {
  constexpr int kFewestMebibytes = 25;
  return std::int64_t{std::max(kFewestMebibytes, parallel.dp * parallel.cp)} << 20;
}

}  // namespace meshplan::planner
