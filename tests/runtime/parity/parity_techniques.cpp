#include "runtime/parity/parity_techniques.hpp"

#include <algorithm>
#include <cstdlib>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fstream>

#include "core/error.hpp"

namespace meshplan::test {
namespace {

using program::CompressionKind;
using program::ContextMethod;
using program::Plan;
using program::Precision;
using program::RecomputeKind;
using program::ScheduleKind;

struct Technique {
  std::string name;
  bool (*used)(const Plan&);
};

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
  return plan.recompute.kind == kind;
}
template <CompressionKind kind>
bool compresses(const Plan& plan) {
  return plan.compression.kind == kind;
}
template <Precision precision>
bool in(const Plan& plan) {
  return precision_of(plan.workload) == precision;
}

const std::vector<Technique>& techniques() {
  static const std::vector<Technique> kAll = {
      {"tp", [](const Plan& p) { return p.parallel.tp > 1; }},
      {"sp", [](const Plan& p) { return p.parallel.sp; }},
      {"pp", [](const Plan& p) { return p.parallel.pp > 1; }},
      {"vpp", [](const Plan& p) { return p.parallel.vpp > 1; }},
      {"gpipe", scheduled<ScheduleKind::GPipe>},
      {"1f1b", scheduled<ScheduleKind::OneFOneB>},
      {"interleaved", scheduled<ScheduleKind::Interleaved>},
      {"zb-h1", scheduled<ScheduleKind::ZbH1>},
      {"zb-v", scheduled<ScheduleKind::ZbV>},
      {"dualpipe-v", scheduled<ScheduleKind::DualPipeV>},
      {"cp-gather", over_context<ContextMethod::AllGather>},
      {"cp-ring", over_context<ContextMethod::Ring>},
      {"cp-ulysses", over_context<ContextMethod::Ulysses>},
      {"cp-hybrid", [](const Plan& p) { return p.max_tokens_per_rank > 0; }},
      {"dp", [](const Plan& p) { return p.parallel.dp > 1; }},
      {"zero1", zero<1>},
      {"zero2", zero<2>},
      {"zero3", zero<3>},
      {"zero-hybrid", [](const Plan& p) { return p.zero_shard_group > 0; }},
      {"experts", [](const Plan& p) { return p.model.moe.has_value(); }},
      {"ep", [](const Plan& p) { return p.parallel.ep > 1; }},
      {"etp", [](const Plan& p) { return p.parallel.etp > 1; }},
      {"latent", [](const Plan& p) { return p.model.mla.has_value(); }},
      {"selective", recomputes<RecomputeKind::Selective>},
      {"full", recomputes<RecomputeKind::Full>},
      {"packed", [](const Plan& p) { return p.workload.documents.packed; }},
      {"int8", compresses<CompressionKind::Int8>},
      {"top-k", compresses<CompressionKind::TopK>},
      {"bf16", in<Precision::BF16>},
      {"fp16", in<Precision::F16>},
      {"fp8", in<Precision::Fp8>},
      {"frozen", [](const Plan& p) { return !p.frozen.empty(); }},
  };
  return kAll;
}

}  // namespace

const std::vector<std::string>& all_techniques() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names;
    for (const Technique& technique : techniques()) names.push_back(technique.name);
    require_invariant(names.size() <= kMostTechniques, "a bit for every pair");
    return names;
  }();
  return kNames;
}

std::vector<std::size_t> techniques_of(const Plan& plan) {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < techniques().size(); ++i)
    if (techniques()[i].used(plan)) found.push_back(i);
  return found;
}

PairSet pairs_of(const Plan& plan) {
  PairSet pairs;
  const std::vector<std::size_t> own = techniques_of(plan);
  for (std::size_t i = 0; i < own.size(); ++i)
    for (std::size_t j = i; j < own.size(); ++j) pairs.set(pair_index(own[i], own[j]));
  return pairs;
}

bool full_parity() {
  const char* wanted = std::getenv("MESHPLAN_PARITY");
  return wanted != nullptr && std::string_view(wanted) == "full";
}

std::vector<std::size_t> covering_plans(const std::vector<Plan>& plans, PairSet covered) {
  std::vector<PairSet> pairs;
  for (const Plan& plan : plans) pairs.push_back(pairs_of(plan));
  std::vector<std::size_t> chosen;
  for (;;) {
    std::size_t best = 0, most = 0;
    for (std::size_t i = 0; i < plans.size(); ++i)
      if (const std::size_t fresh = (pairs[i] & ~covered).count(); fresh > most) {
        best = i;
        most = fresh;
      }
    if (most == 0) break;
    covered |= pairs[best];
    chosen.push_back(best);
  }
  std::ranges::sort(chosen);
  return chosen;
}

std::vector<std::size_t> plans_to_run(const std::vector<Plan>& plans) {
  if (!full_parity()) return covering_plans(plans);
  std::vector<std::size_t> all(plans.size());
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
  return all;
}

void record_parity(std::string_view suite, const Plan& plan, double error) {
  const char* file = std::getenv("MESHPLAN_PARITY_LOG");
  if (file == nullptr) return;
  std::vector<std::string> names;
  for (const std::size_t i : techniques_of(plan)) names.push_back(all_techniques()[i]);
  std::ofstream(file, std::ios::app)
      << fmt::format("{}\t{}\t{}\t{:.3e}\n", suite, plan.model.name, fmt::join(names, ","), error);
}

}  // namespace meshplan::test
