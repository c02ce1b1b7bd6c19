#include "plan/techniques.hpp"

#include <algorithm>

#include "core/error.hpp"

namespace meshplan::program {
namespace {

template <ScheduleKind kind>
bool scheduled(const Plan& plan) {
  return plan.parallel.pp > 1 && plan.schedule == kind;
}
template <ContextMethod method>
bool over_context(const Plan& plan) {
  return plan.parallel.cp > 1 && plan.context_parallel == method;
}
template <int stage>
bool zero(const Plan& plan) {
  return plan.zero_stage == stage;
}
template <RecomputeKind kind>
bool recomputes(const Plan& plan) {
  return plan.recompute.kind == kind && plan.recompute.modules.empty();
}
template <CompressionKind kind>
bool compresses(const Plan& plan) {
  return plan.compression.kind == kind;
}
template <Precision precision>
bool trained_in(const Plan& plan) {
  return precision_of(plan.workload) == precision;
}

}  // namespace

const std::vector<Technique>& techniques() {
  static const std::vector<Technique> kAll = {
      {"tp", [](const Plan& p) { return p.parallel.tp > 1; }},
      {"sp", [](const Plan& p) { return p.parallel.sp; }},
      {"pp", [](const Plan& p) { return p.parallel.pp > 1; }},
      {"vpp", [](const Plan& p) { return p.parallel.vpp > 1; }},
      {"gpipe", scheduled<ScheduleKind::GPipe>},
      {"1f1b", scheduled<ScheduleKind::OneFOneB>},
      {"interleaved", scheduled<ScheduleKind::Interleaved>},
      {"1f1b-overlapped", scheduled<ScheduleKind::OverlappedOneFOneB>},
      {"zb-h1", scheduled<ScheduleKind::ZbH1>},
      {"zb-v", scheduled<ScheduleKind::ZbV>},
      {"dualpipe-v", scheduled<ScheduleKind::DualPipeV>},
      {"cp-gather", over_context<ContextMethod::AllGather>},
      {"cp-ring", over_context<ContextMethod::Ring>},
      {"cp-ulysses", over_context<ContextMethod::Ulysses>},
      {"cp-hybrid", [](const Plan& p) { return p.max_tokens_per_rank > 0; }},
      {"dp", [](const Plan& p) { return p.parallel.dp > 1; }},
      {"uneven", [](const Plan& p) { return p.empty_sequences() > 0; }},
      {"zero1", zero<1>},
      {"zero2", zero<2>},
      {"zero3", zero<3>},
      {"zero-hybrid", [](const Plan& p) { return p.zero_shard_group > 0; }},
      {"experts", [](const Plan& p) { return p.model.moe.has_value(); }},
      {"ep", [](const Plan& p) { return p.parallel.ep > 1; }},
      {"etp", [](const Plan& p) { return p.parallel.etp > 1; }},
      {"by-node", [](const Plan& p) { return p.expert_node_ranks > 0; }},
      {"fp8-dispatch", [](const Plan& p) { return p.expert_dispatch_fp8; }},
      {"latent", [](const Plan& p) { return p.model.mla.has_value(); }},
      {"selective", recomputes<RecomputeKind::Selective>},
      {"modules", [](const Plan& p) { return !p.recompute.modules.empty(); }},
      {"full", recomputes<RecomputeKind::Full>},
      {"packed", [](const Plan& p) { return p.workload.documents.packed; }},
      {"int8", compresses<CompressionKind::Int8>},
      {"top-k", compresses<CompressionKind::TopK>},
      {"bf16", trained_in<Precision::BF16>},
      {"fp16", trained_in<Precision::F16>},
      {"fp8", trained_in<Precision::Fp8>},
      {"frozen", [](const Plan& p) { return !p.frozen.empty(); }},
  };
  return kAll;
}

std::vector<std::size_t> techniques_of(const Plan& plan, std::span<const Technique> all) {
  require_invariant(all.size() <= kMostTechniques, "a bit for every pair");
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < all.size(); ++i)
    if (all[i].used(plan)) found.push_back(i);
  return found;
}

PairSet pairs_of(const Plan& plan, std::span<const Technique> all) {
  PairSet pairs;
  const std::vector<std::size_t> own = techniques_of(plan, all);
  for (std::size_t i = 0; i < own.size(); ++i)
    for (std::size_t j = i; j < own.size(); ++j) pairs.set(pair_index(own[i], own[j]));
  return pairs;
}

std::vector<std::size_t> covering_sets(std::span<const PairSet> sets, PairSet covered) {
  std::vector<std::size_t> chosen;
  for (;;) {
    std::size_t best = 0, most = 0;
    for (std::size_t i = 0; i < sets.size(); ++i)
      if (const std::size_t fresh = (sets[i] & ~covered).count(); fresh > most) {
        best = i;
        most = fresh;
      }
    if (most == 0) break;
    covered |= sets[best];
    chosen.push_back(best);
  }
  std::ranges::sort(chosen);
  return chosen;
}

}  // namespace meshplan::program
