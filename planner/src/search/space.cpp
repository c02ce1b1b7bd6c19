#include "planner/search/space.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <numeric>
#include <string_view>

#include "core/error.hpp"
#include "program/plan/plan_names.hpp"

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

std::vector<Recompute> recompute_choices(const Constraints& constraints) {
  std::vector<Recompute> choices;
  for (const RecomputeKind kind :
       pinned_or(constraints.recompute,
                 {RecomputeKind::None, RecomputeKind::Selective, RecomputeKind::Full}))
    choices.push_back(
        {kind, kind == RecomputeKind::Full ? constraints.recompute_layers : std::nullopt});
  return choices;
}

std::vector<int> micro_batch_choices(const program::Workload& workload, int dp,
                                     const Constraints& constraints) {
  if (constraints.micro_batch_size) return {*constraints.micro_batch_size};
  if (workload.global_batch_size % dp != 0) return {1};
  return divisors(workload.global_batch_size / dp, constraints.max_micro_batch_size);
}

std::vector<bool> sp_choices(int tp, bool experts, const Constraints& constraints) {
  if (constraints.sp) return {*constraints.sp};
  if (experts) return {tp > 1};  // else every tp rank's experts would compute the same
  return tp > 1 ? std::vector<bool>{true, false} : std::vector<bool>{false};
}

constexpr int kMostChunks = 8;

/// Numbers of chunks that a schedule can have; those of an interleaved one are powers of two.
std::vector<int> chunk_choices(ScheduleKind schedule) {
  switch (schedule) {
    case ScheduleKind::Interleaved: {
      std::vector<int> all;
      for (int vpp = 2; vpp <= kMostChunks; vpp *= 2) all.push_back(vpp);
      return all;
    }
    case ScheduleKind::ZbV:
    case ScheduleKind::DualPipeV:
      return {2};
    default:
      return {1};
  }
}

/// Schedules to try on `pp` stages; a pinned number of chunks per rank leaves those that have it.
std::vector<ScheduleKind> schedule_kinds(int pp, std::optional<int> vpp) {
  if (vpp == 2) return {ScheduleKind::Interleaved, ScheduleKind::ZbV, ScheduleKind::DualPipeV};
  if (vpp.value_or(1) > 1) return {ScheduleKind::Interleaved};
  if (pp > 1) return {ScheduleKind::OneFOneB, ScheduleKind::GPipe};
  return {ScheduleKind::OneFOneB};
}

std::vector<ScheduleChoice> schedule_choices(int pp, const Constraints& constraints) {
  const auto kinds = schedule_kinds(pp, constraints.vpp);
  std::vector<ScheduleChoice> choices;
  for (const ScheduleKind kind : pinned_or(constraints.schedule, kinds))
    for (const int vpp : pinned_or(constraints.vpp, chunk_choices(kind)))
      choices.push_back({kind, vpp});
  return choices;
}

constexpr std::int64_t kFewestContextTokens = 8192;  // of a sequence, that a rank is left

/// Degrees of cp whose chunks are whole and long enough to be worth it.
std::vector<int> context_choices(std::int64_t seq_len, int ranks, const Constraints& constraints) {
  if (constraints.cp) return {*constraints.cp};
  std::vector<int> all;
  for (const int cp : divisors(ranks, ranks))
    if (cp == 1 || (seq_len % (std::int64_t{2} * cp) == 0 && seq_len / cp >= kFewestContextTokens))
      all.push_back(cp);
  return all;
}

std::vector<program::ContextMethod> method_choices(int cp, const Constraints& constraints) {
  using program::ContextMethod;
  if (cp == 1) return {constraints.context_parallel.value_or(ContextMethod::AllGather)};
  return pinned_or(constraints.context_parallel,
                   {ContextMethod::AllGather, ContextMethod::Ring, ContextMethod::Ulysses});
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
  for (const int etp : pinned_or(constraints.etp, widths)) {
    std::vector<int> degrees;
    for (const int ep : divisors(model.moe->num_experts, ranks))
      if (ranks % (std::int64_t{ep} * std::max(1, etp)) == 0) degrees.push_back(ep);
    for (const int ep : pinned_or(constraints.ep, degrees)) all.emplace_back(ep, etp);
  }
  return all;
}

/// (stage, ranks that share a copy).
std::vector<std::pair<int, int>> zero_choices(const ParallelConfig& mesh, int ranks_per_node,
                                              const Constraints& constraints) {
  const int sharing = mesh.dp * mesh.cp;
  std::vector<int> stages = {0};
  if (sharing > 1) stages.push_back(1);
  if (sharing > 1 && mesh.pp == 1) stages.insert(stages.end(), {2, 3});
  std::vector<std::pair<int, int>> all;
  for (const int stage : pinned_or(constraints.zero_stage, stages)) {
    std::vector<int> groups = {0};
    const int in_node = std::gcd(sharing, std::max(1, ranks_per_node / mesh.tp));
    if (stage >= 2 && in_node > 1 && in_node < sharing) groups.push_back(in_node);
    const bool may_pin = stage > 0 || constraints.zero_stage;
    for (const int group :
         may_pin ? pinned_or(constraints.zero_shard_group, groups) : std::vector<int>{0})
      all.emplace_back(stage, group);
  }
  return all;
}

// (tp, cp, pp, dp) whose product is the number of ranks.
std::vector<ParallelConfig> meshes(const program::Workload& workload, int num_ranks,
                                   const Constraints& constraints) {
  std::vector<ParallelConfig> found;
  for (const int tp : pinned_or(constraints.tp, divisors(num_ranks, num_ranks)))
    for (const int cp : context_choices(workload.seq_len, num_ranks / tp, constraints))
      for (const int pp : pinned_or(constraints.pp, divisors(num_ranks / tp / cp, num_ranks))) {
        if (num_ranks % (tp * cp * pp) != 0) continue;
        const int dp = num_ranks / (tp * cp * pp);
        if (constraints.dp && *constraints.dp != dp) continue;
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
  if (constraints.zero_shard_group && *constraints.zero_shard_group < 2)
    throw ConfigError(
        fmt::format("zero_shard_group = {} must be at least 2", *constraints.zero_shard_group));
}

}  // namespace

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
  if (constraints.max_micro_batch_size < 1)
    throw ConfigError(fmt::format("max_micro_batch_size = {} must be at least 1",
                                  constraints.max_micro_batch_size));
  const program::Mesh mesh(ParallelConfig{}, constraints.rank_order);  // checks the order
}

std::vector<Candidate> enumerate(const models::ModelSpec& model, const program::Workload& workload,
                                 const Ranks& ranks, const Constraints& constraints) {
  validate(constraints, ranks.count);
  const std::vector<ParallelConfig> all_meshes = meshes(workload, ranks.count, constraints);
  const bool some_sum = std::ranges::any_of(all_meshes, sums_gradients);
  std::vector<Candidate> candidates;
  const auto add_all = [&](const ParallelConfig& mesh, bool sp, program::ContextMethod method) {
    const auto experts = expert_choices(model, mesh, constraints);
    const auto zero = zero_choices(mesh, ranks.per_node, constraints);
    for (const int micro_batch_size : micro_batch_choices(workload, mesh.dp, constraints))
      for (const Recompute& recompute : recompute_choices(constraints))
        for (const auto& [schedule, vpp] : schedule_choices(mesh.pp, constraints)) {
          Candidate candidate{.parallel = mesh,
                              .micro_batch_size = micro_batch_size,
                              .recompute = recompute,
                              .schedule = schedule,
                              .layers_per_stage = constraints.layers_per_stage,
                              .count_ends_as_layers = constraints.count_ends_as_layers,
                              .context_parallel = method};
          candidate.parallel.sp = sp;
          candidate.parallel.vpp = vpp;
          if (sums_gradients(mesh) || !some_sum) candidate.compression = constraints.compression;
          for (const auto& [ep, etp] : experts)
            for (const auto& [stage, group] : zero) {
              candidate.parallel.ep = ep;
              candidate.parallel.etp = etp;
              candidate.zero_stage = stage;
              candidate.zero_shard_group = group;
              candidates.push_back(candidate);
            }
        }
  };
  for (const ParallelConfig& mesh : all_meshes)
    for (const bool sp : sp_choices(mesh.tp, model.moe.has_value(), constraints))
      for (const program::ContextMethod method : method_choices(mesh.cp, constraints))
        add_all(mesh, sp, method);
  return candidates;
}

std::int64_t default_bucket_bytes(const ParallelConfig& parallel) {
  constexpr int kFewestMebibytes = 25;
  return std::int64_t{std::max(kFewestMebibytes, parallel.dp * parallel.cp)} << 20;
}

std::string describe(const Candidate& candidate) {
  std::string text =
      fmt::format("{} mbs{}", program::to_string(candidate.parallel), candidate.micro_batch_size);
  if (candidate.parallel.cp > 1) text += fmt::format(" {}", name_of(candidate.context_parallel));
  const Recompute& recompute = candidate.recompute;
  if (recompute.kind != RecomputeKind::None)
    text += fmt::format(" {}-recompute", name_of(recompute.kind));
  if (recompute.kind == RecomputeKind::Full && recompute.num_layers)
    text += fmt::format("({} layers)", *recompute.num_layers);
  if (candidate.parallel.pp > 1 && candidate.schedule != ScheduleKind::OneFOneB)
    text += fmt::format(" {}", name_of(candidate.schedule));
  if (!candidate.layers_per_stage.empty()) text += " uneven";
  if (candidate.parallel.pp > 1 && candidate.count_ends_as_layers) text += " ends-as-layers";
  if (candidate.zero_stage > 0) text += fmt::format(" zero{}", candidate.zero_stage);
  if (candidate.zero_shard_group > 0) text += fmt::format("/{}", candidate.zero_shard_group);
  return text;
}

bool ends_fill_up(int chunks, int num_layers) {
  return num_layers % chunks != 0 && (num_layers + 2) % chunks == 0;
}

std::vector<ScheduleChoice> chunked_schedules(int pp, int num_layers) {
  std::vector<ScheduleChoice> choices;
  if (pp == 1) return choices;
  const auto has_layers = [&](int chunks) {
    return chunks <= num_layers || ends_fill_up(chunks, num_layers);
  };
  for (const ScheduleKind kind :
       {ScheduleKind::Interleaved, ScheduleKind::ZbH1, ScheduleKind::ZbV, ScheduleKind::DualPipeV})
    for (const int vpp : chunk_choices(kind))
      if (has_layers(pp * vpp)) choices.push_back({kind, vpp});
  return choices;
}

Candidate candidate_of(const program::Plan& plan) {
  return {.parallel = plan.parallel,
          .micro_batch_size = plan.micro_batch_size,
          .recompute = plan.recompute,
          .schedule = plan.schedule,
          .layers_per_stage = plan.layers_per_stage,
          .count_ends_as_layers = plan.count_ends_as_layers,
          .context_parallel = plan.context_parallel,
          .zero_stage = plan.zero_stage,
          .zero_shard_group = plan.zero_shard_group,
          .compression = plan.compression};
}

std::string label(Choice choice, const Candidate& candidate) {
  switch (choice) {
    case Choice::Tp:
      return fmt::format("tp={}", candidate.parallel.tp);
    case Choice::Sp:
      return candidate.parallel.sp ? "sp" : "no sp";
    case Choice::Cp:
      return candidate.parallel.cp > 1 ? fmt::format("cp={} {}", candidate.parallel.cp,
                                                     name_of(candidate.context_parallel))
                                       : "cp=1";
    case Choice::Pp:
      return fmt::format("pp={}", candidate.parallel.pp);
    case Choice::Dp:
      return fmt::format("dp={}", candidate.parallel.dp);
    case Choice::Ep:
      return fmt::format("ep={}", candidate.parallel.ep);
    case Choice::Etp:
      return fmt::format("etp={}", candidate.parallel.etp);
    case Choice::Zero:
      return candidate.zero_shard_group > 0 ? fmt::format("zero={} in groups", candidate.zero_stage)
                                            : fmt::format("zero={}", candidate.zero_stage);
    case Choice::MicroBatch:
      return fmt::format("mbs={}", candidate.micro_batch_size);
    case Choice::Recompute:
      return fmt::format("recompute={}", name_of(candidate.recompute.kind));
    case Choice::Schedule:
      return candidate.schedule == ScheduleKind::Interleaved
                 ? fmt::format("interleaved vpp={}", candidate.parallel.vpp)
                 : std::string(name_of(candidate.schedule));
  }
  throw InvariantError("unknown choice");
}

}  // namespace meshplan::planner
