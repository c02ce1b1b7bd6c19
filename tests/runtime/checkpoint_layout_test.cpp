#include "runtime/checkpoint_layout.hpp"

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

void add(const Program& program, const std::vector<HeldPiece>& pieces, Cover& cover) {
  for (const HeldPiece& piece : pieces) {
    const auto& parameter = program.parameters[static_cast<std::size_t>(piece.parameter)];
    auto& counts = cover[parameter.name];
    counts.resize(static_cast<std::size_t>(elements(parameter.global_shape)));
    count(piece.box, dense_strides(parameter.global_shape), 0, 0, counts);
  }
}

}  // namespace

TEST_CASE("all ranks together save every element of the model once",
          "[runtime][checkpoint_layout]") {
  for (const auto& model : {program::test::llama_style(), program::test::gpt2_style()})
    for (const ParallelConfig& parallel :
         {ParallelConfig{}, ParallelConfig{.tp = 4}, ParallelConfig{.pp = 2},
          ParallelConfig{.tp = 2, .pp = 2, .dp = 3}}) {
      Cover cover;
      const auto plan = program::test::make_plan(model, parallel);
      for (int stage = 0; stage < parallel.pp; ++stage) {
        const Program program = program::lower(plan, stage);
        for (int tp = 0; tp < parallel.tp; ++tp)
          for (int dp = 0; dp < parallel.dp; ++dp)
            add(program, saved_pieces(program, tp, share_of_replica(program, dp, parallel.dp)),
                cover);
      }
      CAPTURE(model.name, program::to_string(parallel));
      const auto one = program::test::make_plan(model, {});
      const Program whole = program::lower(one, 0);
      CHECK(cover.size() == whole.parameters.size());
      for (const auto& parameter : whole.parameters) {
        CAPTURE(parameter.name);
        const std::vector<int> once(static_cast<std::size_t>(elements(parameter.global_shape)), 1);
        CHECK(cover[parameter.name] == once);
      }
    }
}

TEST_CASE("what a rank holds lies where its shard lies", "[runtime][checkpoint_layout]") {
  // Rows of the fused QKV: q 0..63, k 64..95, v 96..127; tp rank 1 of 2 has the second halves.
  const Program program =
      program::lower(program::test::make_plan(program::test::llama_style(), {.tp = 2}), 0);
  const auto& qkv = program::test::parameter_named(program, "layers.0.self_attn.qkv_proj.weight");
  std::vector<HeldPiece> pieces;
  for (HeldPiece& piece : held_pieces(program, 1))
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

TEST_CASE("shares of replicas follow one another and differ by at most a few elements",
          "[runtime][checkpoint_layout]") {
  Program program;
  program.parameter_elements = 1000;
  std::int64_t end = 0;
  for (int replica = 0; replica < 7; ++replica) {
    const auto share = share_of_replica(program, replica, 7);
    CHECK(share.begin == end);
    CHECK(std::abs(share.size() - 1000 / 7) <= 1);
    end = share.end;
  }
  CHECK(end == 1000);
}

}  // namespace meshplan::runtime
