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

std::vector<ScheduleKind> schedule_choices(int pp, const Constraints& constraints) {
  if (constraints.schedule) return {*constraints.schedule};
  return pp > 1 ? std::vector<ScheduleKind>{ScheduleKind::OneFOneB, ScheduleKind::GPipe}
                : std::vector<ScheduleKind>{ScheduleKind::OneFOneB};
}

// (tp, pp, dp) whose product is the number of ranks.
std::vector<ParallelConfig> meshes(int num_ranks, const Constraints& constraints) {
  std::vector<ParallelConfig> found;
  for (const int tp : pinned_or(constraints.tp, divisors(num_ranks, num_ranks)))
    for (const int pp : pinned_or(constraints.pp, divisors(num_ranks / tp, num_ranks))) {
      if (num_ranks % (tp * pp) != 0) continue;
      const int dp = num_ranks / (tp * pp);
      if (constraints.dp && *constraints.dp != dp) continue;
      found.push_back({.tp = tp, .pp = pp, .dp = dp});
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
  check_degrees({{"tp", constraints.tp}, {"pp", constraints.pp}, {"dp", constraints.dp}},
                num_ranks);
  if (constraints.micro_batch_size && *constraints.micro_batch_size < 1)
    throw ConfigError(
        fmt::format("micro_batch_size = {} must be at least 1", *constraints.micro_batch_size));
  if (constraints.recompute_layers && constraints.recompute != RecomputeKind::Full)
    throw ConfigError(
        fmt::format("recompute_layers = {} limits full recompute only; add recompute = full",
                    *constraints.recompute_layers));
  if (!constraints.layers_per_stage.empty() &&
      constraints.pp != static_cast<int>(constraints.layers_per_stage.size()))
    throw ConfigError(fmt::format("layers_per_stage has {} entries, so pp must be fixed to {}",
                                  constraints.layers_per_stage.size(),
                                  constraints.layers_per_stage.size()));
  if (constraints.max_micro_batch_size < 1)
    throw ConfigError(fmt::format("max_micro_batch_size = {} must be at least 1",
                                  constraints.max_micro_batch_size));
  const program::Mesh mesh(ParallelConfig{}, constraints.rank_order);  // checks the order
}

std::vector<Candidate> enumerate(const program::Workload& workload, int num_ranks,
                                 const Constraints& constraints) {
  validate(constraints, num_ranks);
  std::vector<Candidate> candidates;
  for (const ParallelConfig& mesh : meshes(num_ranks, constraints))
    for (const bool sp : sp_choices(mesh.tp, constraints))
      for (const int micro_batch_size : micro_batch_choices(workload, mesh.dp, constraints))
        for (const Recompute& recompute : recompute_choices(constraints))
          for (const ScheduleKind schedule : schedule_choices(mesh.pp, constraints)) {
            Candidate candidate{.parallel = mesh,
                                .micro_batch_size = micro_batch_size,
                                .recompute = recompute,
                                .schedule = schedule,
                                .layers_per_stage = constraints.layers_per_stage};
            candidate.parallel.sp = sp;
            candidates.push_back(std::move(candidate));
          }
  return candidates;
}

std::string describe(const Candidate& candidate) {
  std::string text =
      fmt::format("{} mbs{}", program::to_string(candidate.parallel), candidate.micro_batch_size);
  const Recompute& recompute = candidate.recompute;
  if (recompute.kind != RecomputeKind::None)
    text += fmt::format(" {}-recompute", name_of(recompute.kind));
  if (recompute.kind == RecomputeKind::Full && recompute.num_layers)
    text += fmt::format("({} layers)", *recompute.num_layers);
  if (candidate.parallel.pp > 1 && candidate.schedule == ScheduleKind::GPipe) text += " gpipe";
  if (!candidate.layers_per_stage.empty()) text += " uneven";
  return text;
}

Candidate candidate_of(const program::Plan& plan) {
  return {.parallel = plan.parallel,
          .micro_batch_size = plan.micro_batch_size,
          .recompute = plan.recompute,
          .schedule = plan.schedule,
          .layers_per_stage = plan.layers_per_stage};
}

std::string label(Choice choice, const Candidate& candidate) {
  switch (choice) {
    case Choice::Tp:
      return fmt::format("tp={}", candidate.parallel.tp);
    case Choice::Sp:
      return candidate.parallel.sp ? "sp" : "no sp";
    case Choice::Pp:
      return fmt::format("pp={}", candidate.parallel.pp);
    case Choice::Dp:
      return fmt::format("dp={}", candidate.parallel.dp);
    case Choice::MicroBatch:
      return fmt::format("mbs={}", candidate.micro_batch_size);
    case Choice::Recompute:
      return fmt::format("recompute={}", name_of(candidate.recompute.kind));
    case Choice::Schedule:
      return candidate.schedule == ScheduleKind::GPipe ? "gpipe" : "1f1b";
  }
  throw InvariantError("unknown choice");
}

}  // namespace meshplan::planner
