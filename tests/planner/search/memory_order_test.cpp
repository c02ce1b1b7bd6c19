// What a search relies on when it leaves plans unpriced because a smaller one does not fit.
#include <catch2/catch.hpp>
#include <map>
#include <tuple>
#include <vector>

#include "planner/search/reasons.hpp"
#include "planner/search/search.hpp"
#include "program/checks/check.hpp"
#include "sim/stacks/cluster_preset.hpp"

namespace meshplan::planner {
namespace {

using program::RecomputeKind;

struct Priced {
  Candidate candidate;
  std::int64_t sequences = 0;  // of a replica in a step
  double memory = 0;
};

std::map<std::string, std::vector<Priced>> by_what_is_equal(const SearchRequest& request) {
  const CostModel::Estimate estimate = cost_model(request).estimator();
  std::map<std::string, std::vector<Priced>> groups;
  for (const Candidate& candidate : enumerate(
           request.model, request.workload,
           {request.cluster.num_ranks(), request.cluster.devices_per_node}, request.constraints)) {
    const program::Plan plan = make_plan(request, candidate);
    if (!program::check(plan).empty()) continue;
    Candidate rest = candidate;
    rest.micro_batch_size = 1;
    rest.recompute = {};
    groups[describe(rest)].push_back({candidate,
                                      std::int64_t{plan.micro_batch_size} * plan.num_microbatches(),
                                      estimate(plan, {}).peak_memory_bytes});
  }
  return groups;
}

}  // namespace

TEST_CASE("A plan needs no less memory with larger micro-batches, nor if it recomputes nothing",
          "[planner][memory]") {
  struct Case {
    const char* model;
    int ranks;
    std::int64_t seq_len;
    std::int64_t global_batch_size = 64;
  };
  for (const Case& one :
       {Case{"gpt2-124m", 16, 1024}, Case{"tiny-moe", 16, 64}, Case{"llama3-8b", 32, 16384},
        Case{"qwen3-30b-a3b", 16, 4096}, Case{"llama3-8b", 24, 8192, 67}}) {
    SearchRequest request;
    request.model = models::load_preset(one.model);
    request.cluster = sim::with_ranks(sim::load_cluster_preset("dgx-h100"), one.ranks);
    request.workload = {.seq_len = one.seq_len,
                        .global_batch_size = one.global_batch_size,
                        .precision = DType::BF16};
    request.constraints.uneven_batch = one.global_batch_size % 2 != 0;
    int compared = 0;
    for (const auto& [rest, members] : by_what_is_equal(request))
      for (const Priced& a : members)
        for (const Priced& b : members) {
          const auto kind_a = a.candidate.recompute.kind, kind_b = b.candidate.recompute.kind;
          const bool smaller = a.candidate.micro_batch_size <= b.candidate.micro_batch_size &&
                               b.candidate.micro_batch_size % a.candidate.micro_batch_size == 0 &&
                               a.sequences <= b.sequences &&
                               (kind_a == kind_b || (kind_a == RecomputeKind::Selective &&
                                                     kind_b == RecomputeKind::None));
          if (!smaller) continue;
          ++compared;
          INFO(one.model << ": " << describe(a.candidate) << " and " << describe(b.candidate));
          CHECK(a.memory <= b.memory);
        }
    CHECK(compared > 100);
  }
}

}  // namespace meshplan::planner
