// Products in FP8: what is quantized when, into which layout, and what is kept of it.
#include <catch2/catch.hpp>
#include <set>

#include "checks/program_errors.hpp"
#include "program/inspect.hpp"
#include "program/memory/address.hpp"
#include "program/plans.hpp"

namespace meshplan::program {
namespace {

using Catch::Contains;
using test::block_named;
using test::gpt2_style;
using test::llama_style;
using test::make_plan;
using test::region_bytes;

/// GPT-2's shape in FP8: 64 tokens, F = 4 D.
Plan fp8_plan(const ParallelConfig& parallel = {}, RecomputeKind recompute = RecomputeKind::None) {
  Plan plan = make_plan(gpt2_style(), parallel, 3);
  plan.model.hidden_size = 128;
  plan.model.ffn_size = 512;
  plan.model.head_size = 16;
  plan.workload.seq_len = 64;
  set_precision(plan.workload, Precision::Fp8);
  plan.recompute.kind = recompute;
  return plan;
}

const ComputeOp* of_kind(const Operation& operation, ComputeKind kind) {
  const auto* work = std::get_if<ComputeOp>(&operation.work);
  return work != nullptr && work->kind == kind ? work : nullptr;
}

int count(const std::vector<Operation>& operations, ComputeKind kind) {
  return static_cast<int>(std::ranges::count_if(
      operations, [&](const Operation& operation) { return of_kind(operation, kind) != nullptr; }));
}

const Operation& operation_named(const std::vector<Operation>& operations, std::string_view name) {
  const auto found = std::ranges::find(operations, name, &Operation::name);
  REQUIRE(found != operations.end());
  return *found;
}

/// "e4m3" or "e5m2" of the codes that `id` holds, and the tensor that they were made of.
std::pair<std::string, std::string> origin(const Block& block, ValueId id) {
  for (const auto* list : {&block.forward, &block.backward})
    for (const Operation& operation : *list) {
      const ComputeOp* work = of_kind(operation, ComputeKind::Quantize);
      if (work == nullptr || std::ranges::find(operation.outputs, id) == operation.outputs.end())
        continue;
      return {work->cast->gradient ? "e5m2" : "e4m3",
              block.values[static_cast<std::size_t>(operation.inputs.front())].name};
    }
  return {};
}

std::vector<std::int64_t> shape_of(const Program& program, const Block& block, ValueId id) {
  return local_shape(program, block.values[static_cast<std::size_t>(id)]);
}

}  // namespace

TEST_CASE("The layers' linears are products in FP8, the head's is not", "[program][fp8]") {
  const Program program = lower(fp8_plan(), 0);
  const Block& layer = block_named(program, "dense");
  CHECK(count(layer.forward, ComputeKind::ScaledLinear) == 4);
  CHECK(count(layer.backward, ComputeKind::ScaledLinear) == 8);
  const Block& head = block_named(program, "head");
  for (const Block* block : {&layer, &head})
    for (const auto* list : {&block->forward, &block->backward}) {
      const bool in_layer = block == &layer;
      CHECK((count(*list, ComputeKind::Linear) == 0) == in_layer);
      CHECK((count(*list, ComputeKind::Quantize) == 0) != in_layer);
    }
}

// Micikevicius et al. 2022: values and weights E4M3, gradients E5M2; operands (M, K) and (N, K).
TEST_CASE("Each product reads its operands with the summed dimension last", "[program][fp8]") {
  const Program program = lower(fp8_plan(), 0);
  const Block& block = block_named(program, "dense");
  struct Expected {
    const char* name;
    const char* a_format;
    std::vector<std::int64_t> a, b;
  };
  constexpr std::int64_t kT = 64, kD = 128, kF = 512;
  for (const Expected& expected : {Expected{"mlp_up", "e4m3", {kT, kD}, {kF, kD}},
                                   Expected{"mlp_up.input_grad", "e5m2", {kT, kF}, {kD, kF}},
                                   Expected{"mlp_up.weight_grad", "e5m2", {kF, kT}, {kD, kT}}}) {
    const bool forward = std::string_view(expected.name) == "mlp_up";
    const Operation& product =
        operation_named(forward ? block.forward : block.backward, expected.name);
    INFO(expected.name);
    CHECK(shape_of(program, block, product.inputs[0]) == expected.a);
    CHECK(shape_of(program, block, product.inputs[2]) == expected.b);
    CHECK(origin(block, product.inputs[0]).first == expected.a_format);
    CHECK(origin(block, product.inputs[2]).first == "e4m3");
    // A scale belongs to its codes.
    for (const std::size_t operand : {0U, 2U})
      CHECK(origin(block, product.inputs[operand]) == origin(block, product.inputs[operand + 1]));
  }
  const Operation& bias = operation_named(block.backward, "mlp_up.weight_grad.bias");
  CHECK(of_kind(bias, ComputeKind::BiasAdd) != nullptr);
  CHECK(block.values[static_cast<std::size_t>(bias.inputs[0])].dtype == DType::BF16);
}

TEST_CASE("Weights are quantized once a step, activations and gradients once a micro-batch",
          "[program][fp8]") {
  constexpr int kLayers = 4, kLinears = 4, kMicrobatches = 3;
  const auto quantizations = [](const Program& program) {
    std::array<int, 2> found{};  // of weights, of all else
    for (const OperationInstance& instance : program.instances) {
      const Operation& operation = operation_of(program, instance);
      if (of_kind(operation, ComputeKind::Quantize) == nullptr) continue;
      const LayerInstance& layer = layer_of(program, instance);
      const Value& read = program.blocks[static_cast<std::size_t>(layer.block)]
                              .values[static_cast<std::size_t>(operation.inputs[0])];
      ++found[read.storage == Storage::Parameter ? 0 : 1];
    }
    return found;
  };
  using Counts = std::array<int, 2>;
  constexpr int kTensors = kLayers * kLinears * kMicrobatches;
  CHECK(quantizations(lower(fp8_plan(), 0)) == Counts{kLayers * kLinears, 2 * kTensors});
  // Computed again: the inputs of the last linear of each half only for its weight gradient.
  CHECK(quantizations(lower(fp8_plan({}, RecomputeKind::Full), 0))[0] == kLayers * kLinears);
  CHECK(quantizations(lower(fp8_plan(), 0, Pass::ForwardOnly)) ==
        Counts{kLayers * kLinears, kTensors});
  Plan gathered = fp8_plan({.dp = 2});  // ZeRO-3: whenever they are there, forward and backward
  gathered.zero_stage = 3;
  CHECK(quantizations(lower(gathered, 0)) == Counts{2 * kTensors, 2 * kTensors});
  CHECK(region_bytes(lower(gathered, 0), Region::QuantizedWeights) == 0);
}

TEST_CASE("Quantized weights take two bytes each and a scale", "[program][fp8][memory]") {
  // qkv 3 D D, out D D, up and down 4 D D each.
  constexpr std::int64_t kLayer = 12 * 128 * 128 * 2 + 4 * kAlignment;
  CHECK(region_bytes(lower(fp8_plan(), 0), Region::QuantizedWeights) == 4 * kLayer);
  CHECK(region_bytes(lower(fp8_plan({.pp = 2}), 0), Region::QuantizedWeights) == 2 * kLayer);
  Plan plain = fp8_plan();
  set_precision(plain.workload, Precision::BF16);
  CHECK(region_bytes(lower(plain, 0), Region::QuantizedWeights) == 0);
}

TEST_CASE("What weight gradients read is kept in FP8", "[program][fp8][memory]") {
  // In s b h bytes (Korthikanti et al. 2022, section 4.1, in 16 bits): input 2, norm 1, qkv 6,
  // attention 2 (for its own gradient) + 1, sum 2, norm 1, up 8, activation 4; in bf16 32.
  constexpr std::int64_t kStream = 64 * 128;
  constexpr std::int64_t kStatistics = 64 * 8 * 4 + 2 * 2 * 64 * 4;
  constexpr std::int64_t kScales = 4 * kAlignment;
  const auto saved = [](RecomputeKind recompute) {
    return block_named(lower(fp8_plan({}, recompute), 0), "dense").saved_bytes;
  };
  CHECK(saved(RecomputeKind::None) == 27 * kStream + kStatistics + kScales);
  CHECK(saved(RecomputeKind::Full) == 2 * kStream);
}

TEST_CASE("Of a layer with experts, their products and gates stay in bf16", "[program][fp8]") {
  Plan plan =
      make_plan(models::load_preset("tiny-moe"), {.tp = 2, .dp = 2, .ep = 2, .sp = true}, 3);
  plan.workload.seq_len = 64;
  set_precision(plan.workload, Precision::Fp8);
  plan.model.moe->shared_expert_ffn_size = 64;
  plan.model.moe->shared_expert_gate = true;
  const std::vector<Program> programs = lower_all(plan);
  CHECK(program_errors(programs) == std::vector<std::string>{});
  const Block& layer = block_named(programs[0], "moe");
  CHECK(count(layer.forward, ComputeKind::GroupedLinear) == 2);
  CHECK(count(layer.forward, ComputeKind::Linear) == 1);  // the gate, of one feature
  CHECK(operation_named(layer.forward, "shared_gate").outputs.size() == 1);
  CHECK(count(layer.forward, ComputeKind::ScaledLinear) == 4);  // qkv, out, shared up and down
  CHECK(count(layer.backward, ComputeKind::ScaledLinear) == 8);
}

// Down-projections read rows that sp has divided; up-projections are cut by heads.
TEST_CASE("Low-rank projections of latent attention are products in FP8", "[program][fp8]") {
  Plan plan = make_plan(models::load_preset("deepseek-v3"), {.tp = 2, .ep = 1, .sp = true}, 1);
  plan.workload.seq_len = 64;
  set_precision(plan.workload, Precision::Fp8);
  plan.model.mtp_layers = 0;
  plan.model.num_layers = 2;
  plan.model.moe->dense_layers = {0};
  const std::vector<Program> programs = lower_all(plan);
  CHECK(program_errors(programs) == std::vector<std::string>{});
  // q down and up, keys and values down and up, out, gate and up, down
  CHECK(count(block_named(programs[0], "dense").forward, ComputeKind::ScaledLinear) == 7);
}

TEST_CASE("Programs in FP8 are sound over every mesh, schedule and recompute", "[program][fp8]") {
  for (const Plan& plan : test::float8_plans()) {
    INFO(test::describe(plan));
    const std::vector<Program> programs = lower_all(plan);
    CHECK(program_errors(programs) == std::vector<std::string>{});
    for (const Program& program : programs) {
      std::set<std::uint64_t> ids;
      for (const OperationInstance& instance : program.instances)
        if (instance.layer) CHECK(ids.insert(instance.id).second);
    }
  }
}

}  // namespace meshplan::program
