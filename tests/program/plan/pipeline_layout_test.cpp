#include "program/plan/pipeline_layout.hpp"

#include <catch2/catch.hpp>

#include "core/error.hpp"

namespace meshplan::program {

// The example of Megatron-LM's parse_str_to_list: 61 layers, a prediction module and the loss in
// 32 virtual stages.
TEST_CASE("A pipeline layout says what each virtual stage holds", "[program][plan]") {
  const std::vector<LayoutStage> stages = parse_pipeline_layout("Ettt|(tt|)*29,m|L");
  REQUIRE(stages.size() == 32);
  CHECK(stages[0] == LayoutStage{.embedding = true, .layers = 3});
  for (std::size_t i = 1; i <= 29; ++i) CHECK(stages[i] == LayoutStage{.layers = 2});
  CHECK(stages[30] == LayoutStage{.predictions = 1});
  CHECK(stages[31] == LayoutStage{.loss = true});
  CHECK(parse_pipeline_layout("Et*2mL") ==
        std::vector<LayoutStage>{{.embedding = true, .layers = 2, .predictions = 1, .loss = true}});
  CHECK(layout_stages("Et,t|L") == std::vector<std::string>{"Ett", "L"});
}

TEST_CASE("A pipeline layout out of order is refused", "[program][plan]") {
  using Catch::Contains;
  CHECK_THROWS_WITH(parse_pipeline_layout("tt|tL"), Contains("begins with E"));
  CHECK_THROWS_WITH(parse_pipeline_layout("Et|EtL"), Contains("begins with E"));
  CHECK_THROWS_WITH(parse_pipeline_layout("EEtL"), Contains("once"));
  CHECK_THROWS_WITH(parse_pipeline_layout("tEL"), Contains("stands first"));
  CHECK_THROWS_WITH(parse_pipeline_layout("Et|t"), Contains("ends with L"));
  CHECK_THROWS_WITH(parse_pipeline_layout("EtL|tL"), Contains("ends with L"));
  CHECK_THROWS_WITH(parse_pipeline_layout("Et|Lt"), Contains("'t' behind the loss"));
  CHECK_THROWS_WITH(parse_pipeline_layout("Etm|t|L"), Contains("behind a prediction module"));
  CHECK_THROWS_WITH(parse_pipeline_layout("Emt|L"), Contains("behind a prediction module"));
  CHECK_THROWS_WITH(parse_pipeline_layout(""), Contains("begins with E"));
}

}  // namespace meshplan::program
