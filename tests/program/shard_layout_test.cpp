#include "program/shard_layout.hpp"

#include <catch2/catch.hpp>

#include "program/inspect.hpp"
#include "program/plans.hpp"

namespace meshplan::program {
namespace {

using Pieces = std::vector<ShardPiece>;

Pieces pieces(const char* name, int tp, int tp_rank) {
  const Program program = lower(test::make_plan(test::llama_style(), {.tp = tp}), 0);
  return shard_pieces(test::parameter_named(program, name), tp_rank);
}

}  // namespace

TEST_CASE("A fused QKV is cut section by section", "[program][shard_layout]") {
  // Rows: q 0..63, k 64..95, v 96..127.
  const char* qkv = "layers.0.self_attn.qkv_proj.weight";
  CHECK(pieces(qkv, 2, 0) == Pieces{{0, 0, 32}, {32, 64, 16}, {48, 96, 16}});
  CHECK(pieces(qkv, 2, 1) == Pieces{{0, 32, 32}, {32, 80, 16}, {48, 112, 16}});
  CHECK(pieces(qkv, 1, 0) == Pieces{{0, 0, 128}});
}

TEST_CASE("Key and value heads that are fewer than the ranks are held by several",
          "[program][shard_layout]") {
  // 8 query heads of 8 rows, 4 of keys and values. Over 8 ranks: one query head each, and ranks 4
  // and 5 hold key head 2 (rows 64 + 16) and value head 2 (rows 96 + 16).
  const char* qkv = "layers.0.self_attn.qkv_proj.weight";
  CHECK(pieces(qkv, 8, 4) == Pieces{{0, 32, 8}, {8, 80, 8, 0}, {16, 112, 8, 0}});
  CHECK(pieces(qkv, 8, 5) == Pieces{{0, 40, 8}, {8, 80, 8, 1}, {16, 112, 8, 1}});
  const Program program = lower(test::make_plan(test::llama_style(), {.tp = 8}), 0);
  // Rows of 64: one query head is held here alone, a key and a value head by two ranks.
  CHECK(copied_ranges(test::parameter_named(program, qkv), 8) ==
        std::vector<CopiedRange>{{{0, 8 * 64}, 1}, {{8 * 64, 24 * 64}, 2}});
  CHECK(copied_ranges(test::parameter_named(program, "head.norm.weight"), 8) ==
        std::vector<CopiedRange>{{{0, 64}, 8}});
}

TEST_CASE("A fused gate and up is cut so that each rank can multiply its halves",
          "[program][shard_layout]") {
  // Rows: gate 0..95, up 96..191.
  const char* gate_up = "layers.0.mlp.gate_up_proj.weight";
  CHECK(pieces(gate_up, 2, 0) == Pieces{{0, 0, 48}, {48, 96, 48}});
  CHECK(pieces(gate_up, 2, 1) == Pieces{{0, 48, 48}, {48, 144, 48}});
}

TEST_CASE("A row-parallel weight is cut along its columns", "[program][shard_layout]") {
  const Program program = lower(test::make_plan(test::llama_style(), {.tp = 2}), 0);
  const Parameter& down = test::parameter_named(program, "layers.2.mlp.down_proj.weight");
  CHECK(down.shard_dim == 1);
  CHECK(down.local_shape == std::vector<std::int64_t>{64, 48});
  CHECK(shard_pieces(down, 1) == Pieces{{0, 48, 48}});
}

TEST_CASE("Rows that pad the vocabulary belong to no piece", "[program][shard_layout]") {
  const char* table = "embedding.embed_tokens.weight";  // 300 rows, padded to 384 or 512
  CHECK(pieces(table, 1, 0) == Pieces{{0, 0, 300}});
  CHECK(pieces(table, 2, 0) == Pieces{{0, 0, 256}});
  CHECK(pieces(table, 2, 1) == Pieces{{0, 256, 44}});
  CHECK(pieces(table, 4, 2) == Pieces{{0, 256, 44}});
  CHECK(pieces(table, 4, 3) == Pieces{});
}

TEST_CASE("A replicated parameter is one whole piece on every rank", "[program][shard_layout]") {
  CHECK(pieces("head.norm.weight", 2, 0) == Pieces{{0, 0, 64}});
  CHECK(pieces("head.norm.weight", 2, 1) == Pieces{{0, 0, 64, 1}});
}

TEST_CASE("Biases of experts are matrices with a row for each expert", "[program][shard_layout]") {
  models::ModelSpec model = test::llama_style();
  model.ffn_size = 0;
  model.moe =
      models::MoeSpec{.num_experts = 4, .top_k = 2, .expert_ffn_size = 32, .expert_bias = true};
  const Plan plan = test::make_plan(model, {.dp = 4, .ep = 2, .etp = 2});
  const Program program = lower(plan, 0);
  for (const char* name : {"gate_up_proj.bias", "down_proj.bias"}) {
    CAPTURE(name);
    const Parameter& bias =
        test::parameter_named(program, std::string("layers.0.mlp.experts.") + name);
    const std::int64_t columns = bias.global_shape[1];
    std::vector<int> covered(static_cast<std::size_t>(4 * columns), 0);
    for (const int ep : {0, 1})
      for (const int etp : {0, 1})
        for (const MatrixPiece& piece : matrix_pieces(bias, {.etp = etp, .ep = ep})) {
          CHECK(piece.local_offset + piece.columns <= bias.elements());
          CHECK(piece.rows == 1);
          for (std::int64_t c = 0; c < piece.columns && piece.copy == 0; ++c)
            ++covered.at(
                static_cast<std::size_t>(piece.global_row * columns + piece.global_column + c));
        }
    CHECK(std::ranges::all_of(covered, [](int count) { return count == 1; }));
  }
}

TEST_CASE("The pieces of all ranks cover every global row once", "[program][shard_layout]") {
  for (const int tp : {1, 2, 4, 8})
    for (const auto& model : {test::llama_style(), test::gpt2_style()}) {
      const Program program = lower(test::make_plan(model, {.tp = tp}), 0);
      for (const Parameter& parameter : program.parameters) {
        if (!parameter.shard_dim) continue;
        CAPTURE(parameter.name, tp);
        const auto dim = static_cast<std::size_t>(*parameter.shard_dim);
        std::vector<int> covered(static_cast<std::size_t>(parameter.global_shape[dim]), 0);
        for (int rank = 0; rank < tp; ++rank)
          for (const ShardPiece& piece : shard_pieces(parameter, rank)) {
            CHECK(piece.local_begin + piece.size <= parameter.local_shape[dim]);
            for (std::int64_t i = 0; i < piece.size && piece.copy == 0; ++i)
              ++covered.at(static_cast<std::size_t>(piece.global_begin + i));
          }
        CHECK(std::ranges::all_of(covered, [](int count) { return count == 1; }));
      }
    }
}

}  // namespace meshplan::program
