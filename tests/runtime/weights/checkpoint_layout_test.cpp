#include "weights/checkpoint_layout.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <numeric>

#include "program/inspect.hpp"
#include "program/plans.hpp"

namespace meshplan::runtime {
namespace {

using program::ParallelConfig;
using program::Program;

std::int64_t elements(const std::vector<std::int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

/// How often each element of each global parameter is in the boxes.
using Cover = std::map<std::string, std::vector<int>>;

void count(const TensorBox& box, const std::vector<std::int64_t>& strides, std::size_t dim,
           std::int64_t at, std::vector<int>& counts) {
  for (std::int64_t i = 0; i < box.size[dim]; ++i) {
    const std::int64_t here = at + (box.begin[dim] + i) * strides[dim];
    if (dim + 1 == box.size.size())
      ++counts.at(static_cast<std::size_t>(here));
    else
      count(box, strides, dim + 1, here, counts);
  }
}

void add(const Program& program, const std::vector<PlacedBox>& pieces, Cover& cover) {
  for (const PlacedBox& piece : pieces) {
    const auto& parameter = program.parameters[static_cast<std::size_t>(piece.parameter)];
    auto& counts = cover[parameter.name];
    counts.resize(static_cast<std::size_t>(elements(parameter.global_shape)));
    count(piece.box, dense_strides(parameter.global_shape), 0, 0, counts);
  }
}

}  // namespace

namespace {

models::ModelSpec mixtral_style() {
  models::ModelSpec model = program::test::llama_style();
  model.name = "mixtral-style";
  model.moe = models::MoeSpec{.num_experts = 8, .top_k = 2, .expert_ffn_size = 32};
  return model;
}

/// Elements that a rank saves of a state, counted by the boxes that are copied.
std::int64_t elements_in_boxes(const Program& program, const StateRegion& state,
                               const SaverPlace& place) {
  std::int64_t sum = 0;
  for (const SnapshotRun& run : snapshot_runs(program, state, place))
    for (const PlacedBox& placed : saved_boxes(program, place.coordinates, run.range))
      sum += elements(placed.box.size);
  return sum;
}

/// program::saved_bytes, by the boxes that are copied.
program::SavedBytes bytes_in_boxes(const program::Plan& plan) {
  program::SavedBytes bytes;
  const program::Mesh mesh = program::mesh_of(plan);
  for (int rank = 0; rank < mesh.world_size(); ++rank) {
    const Program program = program::lower(plan, mesh.coordinates(rank).pp);
    const SaverPlace place = saver_place(plan, rank);
    std::int64_t saved = 0;
    for (const StateRegion& state : saved_states(program, place))
      saved += 4 * elements_in_boxes(program, state, place);
    bytes.all_ranks += saved;
    bytes.fullest_rank = std::max(bytes.fullest_rank, saved);
  }
  return bytes;
}

Cover saved_by_all(const program::Plan& plan) {
  Cover cover;
  const program::Mesh mesh = program::mesh_of(plan);
  for (int rank = 0; rank < mesh.world_size(); ++rank) {
    const Program program = program::lower(plan, mesh.coordinates(rank).pp);
    const SaverPlace place = saver_place(plan, rank);
    for (const SnapshotRun& run :
         snapshot_runs(program, {"moment1", program::Region::Moment1}, place))
      add(program, saved_boxes(program, place.coordinates, run.range), cover);
  }
  return cover;
}

}  // namespace

TEST_CASE("all ranks together save every element of the model once",
          "[runtime][checkpoint_layout]") {
  struct Case {
    ParallelConfig parallel;
    bool experts = false;
    int zero_stage = 0;
    int zero_shard_group = 0;
  };
  const std::vector<Case> cases = {{{}},
                                   {{.tp = 4}},
                                   {{.pp = 2}},
                                   {{.tp = 2, .pp = 2, .dp = 3}},
                                   {{.tp = 2, .dp = 4}, false, 1, 2},
                                   {{.tp = 2, .dp = 2, .sp = true}, true},
                                   {{.dp = 4, .ep = 2}, true},
                                   {{.tp = 2, .dp = 2, .ep = 4, .sp = true}, true},
                                   {{.tp = 2, .dp = 4, .ep = 2, .etp = 2, .sp = true}, true},
                                   {{.tp = 2, .pp = 2, .dp = 2, .etp = 2, .sp = true}, true, 1},
                                   {{.tp = 2, .dp = 4, .ep = 2, .sp = true}, true, 2},
                                   {{.tp = 2, .dp = 4, .ep = 2, .sp = true}, true, 3, 2},
                                   {{.tp = 2, .dp = 4, .sp = true}, true, 1, 4}};
  for (const auto& model :
       {program::test::llama_style(), program::test::gpt2_style(), mixtral_style()})
    for (const Case& one : cases) {
      if (one.experts != model.moe.has_value()) continue;
      auto plan = program::test::make_plan(model, one.parallel);
      plan.zero_stage = one.zero_stage;
      plan.zero_shard_group = one.zero_shard_group;
      plan.bucket_bytes = 16 << 10;
      CAPTURE(model.name, program::to_string(one.parallel), one.zero_stage);
      const program::SavedBytes counted = program::saved_bytes(program::lower_all(plan));
      const program::SavedBytes copied = bytes_in_boxes(plan);
      CHECK(counted.all_ranks == copied.all_ranks);
      CHECK(counted.fullest_rank == copied.fullest_rank);
      Cover cover = saved_by_all(plan);
      const Program whole = program::lower(program::test::make_plan(model, {}), 0);
      CHECK(cover.size() == whole.parameters.size());
      for (const auto& parameter : whole.parameters) {
        CAPTURE(parameter.name);
        const std::vector<int> once(static_cast<std::size_t>(elements(parameter.global_shape)), 1);
        CHECK(cover[parameter.name] == once);
      }
    }
}

TEST_CASE("what a rank holds of experts lies where ep and etp put it",
          "[runtime][checkpoint_layout]") {
  const auto plan =
      program::test::make_plan(mixtral_style(), {.tp = 2, .dp = 2, .ep = 2, .etp = 2, .sp = true});
  const Program program = program::lower(plan, 0);
  // (8 experts, 2 * 32 rows of gate and up, 64): of each half etp rank 1 has the last 16 rows.
  const auto& weight =
      program::test::parameter_named(program, "layers.0.mlp.experts.gate_up_proj.weight");
  std::vector<PlacedBox> pieces;
  for (PlacedBox& piece : held_boxes(program, {.tp = 1, .dp = 1, .etp = 1, .ep = 1}))
    if (program.parameters[static_cast<std::size_t>(piece.parameter)].name == weight.name)
      pieces.push_back(std::move(piece));
  REQUIRE(pieces.size() == 2);
  CHECK(pieces[0].box == TensorBox{{4, 16, 0}, {4, 16, 64}});
  CHECK(pieces[1].box == TensorBox{{4, 48, 0}, {4, 16, 64}});
  CHECK(pieces[0].offset == weight.offset);
  CHECK(pieces[1].offset == weight.offset + 16 * 64);
}

TEST_CASE("what a rank holds lies where its shard lies", "[runtime][checkpoint_layout]") {
  // Rows of the fused QKV: q 0..63, k 64..95, v 96..127; tp rank 1 of 2 has the second halves.
  const Program program =
      program::lower(program::test::make_plan(program::test::llama_style(), {.tp = 2}), 0);
  const auto& qkv = program::test::parameter_named(program, "layers.0.self_attn.qkv_proj.weight");
  std::vector<PlacedBox> pieces;
  for (PlacedBox& piece : held_boxes(program, {.tp = 1}))
    if (program.parameters[static_cast<std::size_t>(piece.parameter)].name == qkv.name)
      pieces.push_back(std::move(piece));
  REQUIRE(pieces.size() == 3);
  CHECK(pieces[0].box == TensorBox{{32, 0}, {32, 64}});
  CHECK(pieces[1].box == TensorBox{{80, 0}, {16, 64}});
  CHECK(pieces[2].box == TensorBox{{112, 0}, {16, 64}});
  CHECK(pieces[0].offset == qkv.offset);
  CHECK(pieces[1].offset == qkv.offset + 32 * 64);
  CHECK(pieces[2].offset == qkv.offset + 48 * 64);
  CHECK(pieces[2].strides == std::vector<std::int64_t>{64, 1});
}

TEST_CASE("replicas save shares that follow one another and differ by an element at most",
          "[runtime][checkpoint_layout]") {
  const auto plan = program::test::make_plan(program::test::llama_style(), {.dp = 7});
  const Program program = program::lower(plan, 0);
  std::int64_t end = 0;
  for (int rank = 0; rank < 7; ++rank) {
    const auto runs =
        snapshot_runs(program, {kWeights, program::Region::Weights}, saver_place(plan, rank));
    REQUIRE(runs.size() == 1);
    CHECK(runs[0].range.begin == end);
    CHECK(std::abs(runs[0].range.size() - program.parameter_elements / 7) <= 1);
    end = runs[0].range.end;
  }
  CHECK(end == program.parameter_elements);
}

}  // namespace meshplan::runtime
