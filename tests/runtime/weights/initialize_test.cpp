#include "weights/initialize.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "kernels/cpu_backend.hpp"
#include "program/lower/lower.hpp"
#include "program/plans.hpp"
#include "program/shard_layout.hpp"
#include "program/zero/zero.hpp"

namespace meshplan::runtime {
namespace {

using program::ParallelConfig;
using program::Parameter;
using program::Program;
using program::Region;

/// One rank's freshly initialized memory.
struct Fresh {
  Fresh(const program::Plan& plan, int stage, int tp_rank, std::uint64_t seed = 11,
        const program::ShardPlace& shard = {})
      : program(program::lower(plan, stage)) {
    const Program* list[] = {&program};
    arena = std::make_unique<Arena>(*backend, list);
    initialize_parameters(program, {.tp = tp_rank}, shard, seed, *backend, *arena);
  }
  const Parameter& parameter(const std::string& name) const {
    const auto found = std::ranges::find(program.parameters, name, &Parameter::name);
    REQUIRE(found != program.parameters.end());
    return *found;
  }
  const float* floats(Region region) const {
    return reinterpret_cast<const float*>(arena->region(region));
  }
  std::vector<float> values(const std::string& name, Region region = Region::Weights) const {
    const Parameter& p = parameter(name);
    const float* from = floats(region) + p.offset;
    return {from, from + p.elements()};
  }

  Program program;
  std::unique_ptr<kernels::Backend> backend = kernels::make_cpu_backend(1);
  std::unique_ptr<Arena> arena;
};

program::Plan plan_of(const models::ModelSpec& model, const ParallelConfig& parallel = {}) {
  return program::test::make_plan(model, parallel);
}

std::int64_t columns_of(const std::vector<std::int64_t>& shape) {
  return shape.size() > 1 ? shape[1] : 1;
}

/// What tp rank `tp_rank` must hold: slices of the one-rank values, zeros where nothing is.
std::vector<float> slices(const Parameter& local, const std::vector<float>& global, int tp_rank) {
  std::vector<float> expected(static_cast<std::size_t>(local.elements()), 0.0F);
  const std::int64_t columns = columns_of(local.local_shape);
  const std::int64_t global_columns = columns_of(local.global_shape);
  for (const program::ShardPiece& piece : program::shard_pieces(local, tp_rank))
    for (std::int64_t i = 0; i < piece.size; ++i)
      if (local.shard_dim == 1)
        for (std::int64_t r = 0; r < local.local_shape[0]; ++r)
          expected[static_cast<std::size_t>(r * columns + piece.local_begin + i)] =
              global[static_cast<std::size_t>(r * global_columns + piece.global_begin + i)];
      else
        for (std::int64_t c = 0; c < columns; ++c)
          expected[static_cast<std::size_t>((piece.local_begin + i) * columns + c)] =
              global[static_cast<std::size_t>((piece.global_begin + i) * global_columns + c)];
  return expected;
}

struct Moments {
  double mean = 0;
  double stddev = 0;
};
Moments moments(const std::vector<float>& values) {
  double sum = 0;
  double squares = 0;
  for (const float x : values) {
    sum += x;
    squares += static_cast<double>(x) * x;
  }
  const auto n = static_cast<double>(values.size());
  return {sum / n, std::sqrt(squares / n - sum / n * sum / n)};
}

}  // namespace

TEST_CASE("shards of tp 2 and 4 are slices of the one-rank weights", "[runtime][initialize]") {
  for (const auto& model : {program::test::llama_style(), program::test::gpt2_style()}) {
    const Fresh whole(plan_of(model), 0, 0);
    for (const int tp : {2, 4})
      for (int tp_rank = 0; tp_rank < tp; ++tp_rank) {
        const Fresh shard(plan_of(model, {.tp = tp}), 0, tp_rank);
        for (const Parameter& parameter : shard.program.parameters) {
          INFO(model.name << " tp " << tp << " rank " << tp_rank << " " << parameter.name);
          CHECK(shard.values(parameter.name) ==
                slices(parameter, whole.values(parameter.name), tp_rank));
        }
      }
  }
}

TEST_CASE("a fused QKV shard holds whole heads of q, k and v", "[runtime][initialize]") {
  // 8 query and 4 key heads of 8 rows: q rows 0-63, k 64-95, v 96-127; rank 1 of 2 has the second
  // half of each.
  const std::string name = "layers.2.self_attn.qkv_proj.weight";
  const auto whole = Fresh(plan_of(program::test::llama_style()), 0, 0).values(name);
  const auto shard = Fresh(plan_of(program::test::llama_style(), {.tp = 2}), 0, 1).values(name);
  REQUIRE(shard.size() == 64 * 64);
  const auto row = [](const std::vector<float>& values, int r) {
    return std::vector<float>(values.begin() + r * 64, values.begin() + (r + 1) * 64);
  };
  CHECK(row(shard, 0) == row(whole, 32));    // q
  CHECK(row(shard, 31) == row(whole, 63));   //
  CHECK(row(shard, 32) == row(whole, 80));   // k
  CHECK(row(shard, 48) == row(whole, 112));  // v
  CHECK(row(shard, 63) == row(whole, 127));
}

TEST_CASE("rows that pad the vocabulary are zero", "[runtime][initialize]") {
  // 300 tokens, padded to a multiple of 128 tp = 256: 512 rows; rank 1 has 256..299 and 212 of
  // zero.
  const Fresh last(plan_of(program::test::llama_style(), {.tp = 2}), 0, 1);
  const auto values = last.values("embedding.embed_tokens.weight");
  REQUIRE(values.size() == 256 * 64);
  const auto padding = values.begin() + 44 * 64;
  CHECK(std::all_of(padding, values.end(), [](float x) { return x == 0.0F; }));
  CHECK(std::none_of(values.begin(), padding, [](float x) { return x == 0.0F; }));
}

TEST_CASE("a stage holds the weights that one rank has for its layers", "[runtime][initialize]") {
  for (const auto& model : {program::test::llama_style(), program::test::gpt2_style()}) {
    const Fresh whole(plan_of(model), 0, 0);
    for (int stage = 0; stage < 4; ++stage) {
      const Fresh part(plan_of(model, {.pp = 4}), stage, 0);
      for (const Parameter& parameter : part.program.parameters) {
        INFO(model.name << " stage " << stage << " " << parameter.name);  // tied copies too
        CHECK(part.values(parameter.name) == whole.values(parameter.name));
      }
    }
  }
}

TEST_CASE("norms start at one, biases and optimizer state at zero", "[runtime][initialize]") {
  const Fresh fresh(plan_of(program::test::gpt2_style()), 0, 0);
  int norms = 0;
  int biases = 0;
  for (const Parameter& parameter : fresh.program.parameters) {
    INFO(parameter.name);
    if (parameter.local_shape.size() > 1) continue;
    const bool bias = parameter.name.ends_with("bias");
    (bias ? biases : norms) += 1;
    for (const float x : fresh.values(parameter.name)) REQUIRE(x == (bias ? 0.0F : 1.0F));
  }
  CHECK(norms == 4 * 2 + 1);         // two a layer and the last
  CHECK(biases == 4 * (2 + 4) + 1);  // of the norms; qkv, attention out, two of the MLP
  for (const Region region : {Region::Gradients, Region::Moment1, Region::Moment2})
    for (std::int64_t i = 0; i < fresh.program.parameter_elements; ++i)
      REQUIRE(fresh.floats(region)[i] == 0.0F);
}

TEST_CASE("outputs of residual branches start smaller by sqrt(2 layers)", "[runtime][initialize]") {
  // 4 layers: 1/sqrt(8). The standard error of n samples' deviation is 1/sqrt(2 n): 1.1% of 4096.
  models::ModelSpec model = program::test::llama_style();
  model.init_std = 0.02;
  const Fresh fresh(plan_of(model), 0, 0);
  const auto check = [&](const std::string& name, double expected) {
    INFO(name);
    std::vector<float> values = fresh.values(name);
    const Parameter& parameter = fresh.parameter(name);  // without the rows that pad a vocabulary
    values.resize(static_cast<std::size_t>(parameter.global_shape[0] * parameter.global_shape[1]));
    const Moments m = moments(values);
    CHECK(m.stddev == Approx(expected).epsilon(0.05));
    CHECK(std::abs(m.mean) < 0.08 * expected);  // 5 standard errors
  };
  check("embedding.embed_tokens.weight", 0.02);
  check("layers.0.self_attn.qkv_proj.weight", 0.02);
  check("layers.0.mlp.gate_up_proj.weight", 0.02);
  check("layers.0.self_attn.o_proj.weight", 0.02 / std::sqrt(8.0));
  check("layers.3.mlp.down_proj.weight", 0.02 / std::sqrt(8.0));
}

TEST_CASE("each parameter, layer and seed has values of its own", "[runtime][initialize]") {
  const Fresh a(plan_of(program::test::llama_style()), 0, 0, 1);
  const Fresh b(plan_of(program::test::llama_style()), 0, 0, 2);
  const Fresh again(plan_of(program::test::llama_style()), 0, 0, 1);
  const std::string name = "layers.0.self_attn.o_proj.weight";
  CHECK(a.values(name) != b.values(name));
  CHECK(a.values(name) == again.values(name));
  CHECK(a.values(name) != a.values("layers.1.self_attn.o_proj.weight"));
}

TEST_CASE("ranks of ZeRO-3 begin with their parts of the frozen bf16 weights that one rank has",
          "[runtime][initialize][frozen]") {
  program::Plan plan = plan_of(program::test::llama_style());
  plan.workload.precision = DType::BF16;
  plan.frozen = {"embedding", "layers.0-1", "*.mlp"};
  const Fresh whole(plan, 0, 0);
  const auto bits_of = [](const Fresh& fresh) {
    return reinterpret_cast<const std::uint16_t*>(fresh.arena->region(Region::Weights));
  };
  plan.parallel.dp = 4;
  plan.zero_stage = 3;
  std::map<std::string, std::int64_t> covered;
  for (int rank = 0; rank < plan.parallel.dp; ++rank) {
    const program::ShardPlace place{.dense = rank};
    const Fresh part(plan, 0, 0, 11, place);
    const auto runs = program::owned_runs(part.program, Region::Weights, place);
    for (const Parameter& parameter : part.program.parameters) {
      if (!parameter.frozen) continue;
      const program::HeldRun held =
          program::clipped(runs[static_cast<std::size_t>(parameter.bucket)],
                           {parameter.offset, parameter.offset + parameter.elements()});
      const std::uint16_t* expected = bits_of(whole) + whole.parameter(parameter.name).offset +
                                      (held.range.begin - parameter.offset);
      INFO(parameter.name << " on rank " << rank);
      CHECK(std::equal(expected, expected + held.range.size(), bits_of(part) + held.offset));
      covered[parameter.name] += held.range.size();
    }
  }
  for (const Parameter& parameter : whole.program.parameters)
    if (parameter.frozen) CHECK(covered[parameter.name] == parameter.elements());
}

TEST_CASE("bf16 weights are the rounded fp32 masters", "[runtime][initialize]") {
  program::Plan plan = plan_of(program::test::llama_style());
  plan.workload.precision = DType::BF16;
  const Fresh fresh(plan, 0, 0);
  const Fresh fp32(plan_of(program::test::llama_style()), 0, 0);
  const auto* rounded =
      reinterpret_cast<const std::uint16_t*>(fresh.arena->region(Region::Weights));
  for (const Parameter& parameter : fresh.program.parameters) {
    INFO(parameter.name);
    const auto master = fresh.values(parameter.name, Region::MasterWeights);
    CHECK(master == fp32.values(parameter.name));
    for (std::size_t i = 0; i < master.size(); ++i) {
      const auto bits =
          static_cast<std::uint32_t>(rounded[static_cast<std::size_t>(parameter.offset) + i]) << 16;
      float value = 0;
      std::memcpy(&value, &bits, sizeof value);
      REQUIRE(std::abs(value - master[i]) <= std::abs(master[i]) / 256);  // 8 bits of mantissa
    }
  }
}

}  // namespace meshplan::runtime
