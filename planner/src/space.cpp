#include "planner/space.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <string_view>

#include "core/error.hpp"

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

std::string_view name_of(RecomputeKind kind) {
  switch (kind) {
    case RecomputeKind::None:
      return "none";
    case RecomputeKind::Selective:
      return "selective";
    case RecomputeKind::Full:
      return "full";
  }
  return "";
}

std::string_view name_of(program::ContextMethod method) {
  switch (method) {
    case program::ContextMethod::AllGather:
      return "all_gather";
    case program::ContextMethod::Ring:
      return "ring";
    case program::ContextMethod::Ulysses:
      return "ulysses";
  }
  return "";
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

std::vector<bool> sp_choices(int tp, const Constraints& constraints) {
  if (constraints.sp) return {*constraints.sp};
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

std::vector<ScheduleChoice> schedule_choices(int pp, const Constraints& constraints) {
  std::vector<ScheduleKind> kinds = {ScheduleKind::OneFOneB};
  if (pp > 1) kinds.push_back(ScheduleKind::GPipe);
  if (constraints.vpp.value_or(1) > 1) kinds = {ScheduleKind::Interleaved};
  if (constraints.vpp == 2)
    kinds = {ScheduleKind::Interleaved, ScheduleKind::ZbV, ScheduleKind::DualPipeV};
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
    if (cp == 1 || (seq_len % (2 * cp) == 0 && seq_len / cp >= kFewestContextTokens))
      all.push_back(cp);
  return all;
}

std::vector<program::ContextMethod> method_choices(int cp, const Constraints& constraints) {
  using program::ContextMethod;
  if (cp == 1) return {constraints.context_parallel.value_or(ContextMethod::AllGather)};
  return pinned_or(constraints.context_parallel,
                   {ContextMethod::AllGather, ContextMethod::Ring, ContextMethod::Ulysses});
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
  const int stages = constraints.pp.value_or(0) * constraints.vpp.value_or(1);
  if (!constraints.layers_per_stage.empty() &&
      stages != static_cast<int>(constraints.layers_per_stage.size()))
    throw ConfigError(
        fmt::format("layers_per_stage has {} entries, so pp must be fixed to {}{}",
                    constraints.layers_per_stage.size(), constraints.layers_per_stage.size(),
                    constraints.vpp ? " / vpp" : ", or pp * vpp with vpp fixed as well"));
  if (constraints.max_micro_batch_size < 1)
    throw ConfigError(fmt::format("max_micro_batch_size = {} must be at least 1",
                                  constraints.max_micro_batch_size));
  const program::Mesh mesh(ParallelConfig{}, constraints.rank_order);  // checks the order
}

std::vector<Candidate> enumerate(const program::Workload& workload, int num_ranks,
                                 const Constraints& constraints) {
  validate(constraints, num_ranks);
  std::vector<Candidate> candidates;
  const auto add_all = [&](const ParallelConfig& mesh, bool sp, program::ContextMethod method) {
    for (const int micro_batch_size : micro_batch_choices(workload, mesh.dp, constraints))
      for (const Recompute& recompute : recompute_choices(constraints))
        for (const auto& [schedule, vpp] : schedule_choices(mesh.pp, constraints)) {
          Candidate candidate{.parallel = mesh,
                              .micro_batch_size = micro_batch_size,
                              .recompute = recompute,
                              .schedule = schedule,
                              .layers_per_stage = constraints.layers_per_stage,
                              .context_parallel = method};
          candidate.parallel.sp = sp;
          candidate.parallel.vpp = vpp;
          candidates.push_back(std::move(candidate));
        }
  };
  for (const ParallelConfig& mesh : meshes(workload, num_ranks, constraints))
    for (const bool sp : sp_choices(mesh.tp, constraints))
      for (const program::ContextMethod method : method_choices(mesh.cp, constraints))
        add_all(mesh, sp, method);
  return candidates;
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
  return text;
}

std::vector<ScheduleChoice> chunked_schedules(int pp, int num_layers) {
  std::vector<ScheduleChoice> choices;
  if (pp == 1) return choices;
  for (const ScheduleKind kind :
       {ScheduleKind::Interleaved, ScheduleKind::ZbH1, ScheduleKind::ZbV, ScheduleKind::DualPipeV})
    for (const int vpp : chunk_choices(kind))
      if (pp * vpp <= num_layers) choices.push_back({kind, vpp});
  return choices;
}

std::string_view name_of(ScheduleKind schedule) {
  switch (schedule) {
    case ScheduleKind::GPipe:
      return "gpipe";
    case ScheduleKind::OneFOneB:
      return "1f1b";
    case ScheduleKind::Interleaved:
      return "interleaved";
    case ScheduleKind::ZbH1:
      return "zb-h1";
    case ScheduleKind::ZbV:
      return "zb-v";
    case ScheduleKind::DualPipeV:
      return "dualpipe-v";
    case ScheduleKind::Custom:
      return "custom";
  }
  throw InvariantError("schedule without a name");
}

Candidate candidate_of(const program::Plan& plan) {
  return {.parallel = plan.parallel,
          .micro_batch_size = plan.micro_batch_size,
          .recompute = plan.recompute,
          .schedule = plan.schedule,
          .layers_per_stage = plan.layers_per_stage,
          .context_parallel = plan.context_parallel};
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
