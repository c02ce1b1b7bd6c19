// What a request leaves open beside its plans: how another stack's experts exchange rows.
#include <catch2/catch.hpp>

#include "planner/search/search.hpp"

namespace meshplan::planner {
namespace {

using program::ExpertDispatch;

/// Qwen3 30B on two nodes of H100s, where eight copies of a token cross the network, or one.
SearchRequest experts_on_two_nodes() {
  SearchRequest request;
  request.model = models::load_preset("qwen3-30b-a3b");
  request.cluster = sim::with_ranks(sim::load_data_sheet("dgx-h100"), 16);
  request.stack.software = "megatron-core";
  request.workload.seq_len = 4096;
  request.workload.global_batch_size = 256;
  request.workload.precision = DType::BF16;
  request.constraints.ep = 16;
  request.constraints.tp = request.constraints.pp = 1;
  request.top = 1;
  request.alternatives = false;
  return request;
}

SearchResult searched(SearchRequest& request) {
  return std::get<SearchResult>(search_open_choices(request, serial()));
}

}  // namespace

TEST_CASE("Other stacks are searched with a fused dispatcher, too", "[planner][search]") {
  SearchRequest request = experts_on_two_nodes();
  const SearchResult both = searched(request);
  REQUIRE(both.dispatches.size() == 2);
  CHECK(both.dispatches[0].dispatch == ExpertDispatch::AllToAll);
  CHECK(both.dispatches[1].dispatch == ExpertDispatch::DeepEp);
  CHECK(both.dispatches[1].step_time_s < both.dispatches[0].step_time_s);
  CHECK(both.ranked.front().step_time_s() == both.dispatches[1].step_time_s);
  CHECK(both.ranked.front().plan.stack.settings.expert_dispatch == ExpertDispatch::DeepEp);
  CHECK(request.stack.settings.expert_dispatch == ExpertDispatch::DeepEp);

  SearchRequest stated = experts_on_two_nodes();
  stated.stack.settings.expert_dispatch = ExpertDispatch::AllToAll;
  const SearchResult one = searched(stated);
  CHECK(one.dispatches.empty());
  CHECK(one.ranked.front().step_time_s() == both.dispatches[0].step_time_s);
}

TEST_CASE("One dispatcher is searched where there is no choice", "[planner][search]") {
  SearchRequest whole = experts_on_two_nodes();
  whole.constraints.ep = 1;
  whole.constraints.tp = whole.constraints.pp = std::nullopt;
  CHECK(searched(whole).dispatches.empty());
  SearchRequest dropped = experts_on_two_nodes();
  dropped.stack.settings.token_drop = true;  // fused dispatchers have no capacities
  CHECK(searched(dropped).dispatches.empty());
  SearchRequest dense = experts_on_two_nodes();
  dense.model = models::load_preset("llama3-8b");
  dense.constraints.ep = std::nullopt;
  CHECK(searched(dense).dispatches.empty());
}

}  // namespace meshplan::planner
