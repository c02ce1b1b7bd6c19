// The column `layout` of a published table, and how often a pipeline is flushed.
#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "sim/fit/published_table.hpp"

namespace meshplan::sim {
namespace {

/// 12 layers on pp 4, 32 sequences over two replicas one by one.
PublishedRow row_with_layout(const std::string& layout, const std::string& vpp = "",
                             const std::string& switches = "") {
  const std::string header =
      "id,family,suite,source,cluster,software,model,layers,hidden,ffn_hidden,heads,kv_heads,"
      "head_dim,vocab,activation,experts,topk,moe_ffn_hidden,shared_expert_ffn,arch_notes,seq_len,"
      "num_gpus,tp,pp,vpp,cp,ep,etp,dp,zero_stage,sequence_parallel,micro_batch_size,"
      "global_batch_size,precision,recompute,attention,overlap,switches,step_time_s,"
      "step_time_basis,peak_mem_gib,peak_mem_kind,notes,layout\n";
  return parse_published_table(
             header + fmt::format(",,,,dgx-h100,megatron-core,,12,2048,8192,16,16,128,32000,swiglu,"
                                  ",,,,,4096,8,1,4,{},1,1,,2,1,no,1,32,bf16,none,flash,dp,{},,,,,,"
                                  "\"{}\"\n",
                                  vpp, switches, layout),
             "made.csv")
      .front();
}

std::vector<int> layers_of(const PublishedRow& row) {
  std::vector<int> layers;
  for (const program::LayoutStage& stage : row.run.layout) layers.push_back(stage.layers);
  return layers;
}

}  // namespace

TEST_CASE("A row may say how its layers are dealt to stages", "[sim][validation]") {
  CHECK(row_with_layout("").run.layout.empty());
  const PublishedRow named = row_with_layout("Et*2|(t*4|)*2tt,L", "1");
  REQUIRE(named.error.empty());
  CHECK(layers_of(named) == std::vector<int>{2, 4, 4, 2});
  CHECK(named.run.layout.front().embedding);
  CHECK(named.run.layout.back().loss);
  CHECK(layers_of(row_with_layout("2,4,4,2")) == std::vector<int>{2, 4, 4, 2});
  CHECK(row_with_layout("2,4,4,2").run == named.run);
  CHECK(layers_of(row_with_layout("first:2;last:2")) == std::vector<int>{2, 4, 4, 2});
  CHECK(layers_of(row_with_layout("first:3")) == std::vector<int>{3, 3, 3, 3});
  CHECK(layers_of(row_with_layout("last:0")) == std::vector<int>{4, 4, 4, 0});
}

TEST_CASE("A layout says how many chunks a rank has, and what is predicted", "[sim][validation]") {
  const PublishedRow chunks = row_with_layout("E(t*2|)*6mL|", "2");
  CHECK_THAT(chunks.error, Catch::Contains("ends with L"));
  const PublishedRow two = row_with_layout("E(t*2|)*6|mL");
  REQUIRE(two.error.empty());
  CHECK(two.run.parallel.vpp == 2);
  CHECK(two.run.model.mtp_layers == 1);
  CHECK(two.run.layout.back().predictions == 1);
  const PublishedRow counted = row_with_layout("4,4,4,0", "", "mtp");
  CHECK(counted.run.model.mtp_layers == 1);
  CHECK(counted.run.layout.back().predictions == 1);
}

TEST_CASE("A layout that does not go with its row is named", "[sim][validation]") {
  using Catch::Contains;
  CHECK_THAT(row_with_layout("2,4,4").error, Contains("3 virtual stages; expected pp(4) * vpp(1)"));
  CHECK_THAT(row_with_layout("2,4,4,2", "2").error, Contains("expected pp(4) * vpp(2) = 8"));
  CHECK_THAT(row_with_layout("2,4,4,3").error, Contains("13 layers; expected the model's 12"));
  CHECK_THAT(row_with_layout("2,4,x,3").error, Contains("'x' is no number of layers"));
  CHECK_THAT(row_with_layout("first:1;last:2").error,
             Contains("9 of 12 layers are left for 2 stages"));
  CHECK_THAT(row_with_layout("Et*12|x|L").error, Contains("expected one of E, t, m, L"));
}

TEST_CASE("A pipeline may be flushed several times a step", "[sim][validation]") {
  CHECK(row_with_layout("", "", "flushes:4").run.flushes == 4);
  CHECK_THAT(row_with_layout("", "", "flushes:3").error,
             Catch::Contains("flushes:3: expected a divisor of the 16 micro-batches"));
  CHECK_THAT(row_with_layout("", "", "flushes:x").error, Catch::Contains("expected a divisor"));
}

}  // namespace meshplan::sim
