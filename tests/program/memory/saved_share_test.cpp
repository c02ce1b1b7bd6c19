#include "program/memory/saved_share.hpp"

#include <catch2/catch.hpp>

#include "models/counts.hpp"
#include "program/lower/lower.hpp"
#include "program/plans.hpp"

namespace meshplan::program {
namespace {

std::int64_t parameters_of(const models::ModelSpec& model) {
  return models::count_parameters(models::build_graph(model)).total;
}

struct Case {
  ParallelConfig parallel;
  int zero_stage = 0;
};

}  // namespace

// Two moments and fp32 weights: 12 bytes a parameter of the model as its graph counts it, which
// knows nothing of shards, padding of the vocabulary (300 rows) and tied copies.
TEST_CASE("all ranks together save twelve bytes a parameter", "[program][saved_share]") {
  const std::vector<Case> cases = {{{}},           {{.tp = 4}},
                                   {{.pp = 4}},    {{.tp = 2, .pp = 2, .dp = 3, .sp = true}, 1},
                                   {{.dp = 7}, 3}, {{.dp = 7}}};
  for (const auto& model : {test::llama_style(), test::gpt2_style()})
    for (const Case& one : cases) {
      Plan plan = test::make_plan(model, one.parallel);
      plan.zero_stage = one.zero_stage;
      CAPTURE(model.name, to_string(one.parallel), one.zero_stage);
      const SavedBytes bytes = saved_bytes(lower_all(plan));
      CHECK(bytes.all_ranks == 12 * parameters_of(model));
      CHECK(bytes.fullest_rank * plan.parallel.world_size() >= bytes.all_ranks);
    }
}

TEST_CASE("replicas save equal shares, and the first tp rank what all hold",
          "[program][saved_share]") {
  const models::ModelSpec model = test::llama_style();
  const std::int64_t all = parameters_of(model);
  const SavedBytes halves = saved_bytes(lower_all(test::make_plan(model, {.dp = 2})));
  CHECK(halves.fullest_rank == 12 * ((all + 1) / 2));
  // 304 rows of embedding and head after padding: tp rank 0 has 152 of them and rank 1 148 real
  // ones. Norms, two a layer and a last one, are rank 0's alone.
  const std::int64_t norms = (2 * model.num_layers + 1) * model.hidden_size;
  const std::int64_t vocabulary = 2 * 300 * model.hidden_size;
  const Plan plan = test::make_plan(model, {.tp = 2});
  const Program program = lower(plan, 0);
  const auto rows = std::ranges::find_if(program.parameters, [](const Parameter& parameter) {
    return parameter.name.find("embed") != std::string::npos;
  });
  REQUIRE(rows != program.parameters.end());
  const std::int64_t of_first =
      2 * std::min<std::int64_t>(rows->local_shape[0], 300) * model.hidden_size;
  CHECK(saved_bytes(program).fullest_rank ==
        12 * ((all - norms - vocabulary) / 2 + norms + of_first));
}

TEST_CASE("frozen parameters are saved without moments, and SGD keeps one",
          "[program][saved_share]") {
  const models::ModelSpec model = test::llama_style();
  const std::int64_t all = parameters_of(model);
  Plan plan = test::make_plan(model, {.dp = 2});
  plan.frozen = {"layers.0"};
  const std::int64_t layer = (all - (2 * 300 + 1) * model.hidden_size) /
                             model.num_layers;  // without vocabulary, last norm
  CHECK(saved_bytes(lower_all(plan)).all_ranks == 12 * all - 8 * layer);
  Plan sgd = test::make_plan(model, {.dp = 2});
  sgd.workload.optimizer.kind = OptimizerKind::Sgd;
  CHECK(saved_bytes(lower_all(sgd)).all_ranks == 8 * all);
}

}  // namespace meshplan::program
