#include "program/cost/cost.hpp"

#include <catch2/catch.hpp>
#include <functional>
#include <map>
#include <set>

#include "models/counts.hpp"
#include "program/cost/model_flops.hpp"
#include "program/inspect.hpp"
#include "program/plans.hpp"

namespace meshplan::program {
namespace {

using test::make_plan;

/// FLOPs of all instances of a step, by kind of operation.
std::map<ComputeKind, double> flops_by_kind(const Program& program) {
  std::map<ComputeKind, double> flops;
  for (const OperationInstance& instance : program.instances)
    if (const auto* compute = std::get_if<ComputeOp>(&operation_of(program, instance).work))
      flops[compute->kind] += operation_cost(program, instance).flops;
  return flops;
}

const OperationInstance& first_named(const Program& program, std::string_view name) {
  for (const OperationInstance& instance : program.instances)
    if (operation_of(program, instance).name == name) return instance;
  throw InvariantError("no such operation");
}

std::string signature_of(const Plan& plan, std::string_view name) {
  const Program program = lower(plan, 0);
  return signature(program, first_named(program, name));
}

/// 512 rows: a multiple of 128 * tp for tp up to 4, so that no work is padding.
Plan unpadded(const ParallelConfig& parallel = {}) {
  Plan plan = make_plan(test::llama_style(), parallel);
  plan.model.vocab_size = 512;
  return plan;
}

}  // namespace

TEST_CASE("Linears execute three times their forward, as the model's count says",
          "[program][cost]") {
  // 2 T in out per product: qkv 64*128, out 64*64, gate and up 64*192, down 96*64; head 64*512.
  const double per_token = 2.0 * (4 * (64 * 128 + 64 * 64 + 64 * 192 + 96 * 64) + 64 * 512);
  const double tokens = 8 * 16;
  CHECK(flops_by_kind(lower(unpadded(), 0))[ComputeKind::Linear] == 3 * per_token * tokens);
}

TEST_CASE("One rank executes the model's FLOPs, attention's diagonal and its recompute of scores",
          "[program][cost]") {
  const Plan plan = unpadded();
  const models::ModelGraph graph = models::build_graph(plan.model);
  const models::SymbolValues step{.tokens = 8 * 16, .sequences = 8};
  double linear = 0;
  double attention = 0;
  const auto add = [&](const models::LayerGraph& layer) {
    for (const models::Op& op : layer.ops)
      (op.kind == models::OpKind::Attention ? attention : linear) +=
          models::training_flops(op, layer, step, plan.workload.seq_len).value;
  };
  for (const int kind : graph.layer_kind) add(graph.kinds[static_cast<std::size_t>(kind)]);
  add(graph.head);
  auto executed = flops_by_kind(lower(plan, 0));
  CHECK(executed[ComputeKind::Linear] == Approx(linear).epsilon(1e-12));
  // The model counts S/2 keys and 6 products; executed are (S+1)/2 keys and 7 (scores once more).
  CHECK(executed[ComputeKind::Attention] ==
        Approx(attention * 17.0 / 16.0 * 7.0 / 6.0).epsilon(1e-12));
  CHECK(model_flops_per_step(plan) == Approx(linear + attention).epsilon(1e-12));
}

TEST_CASE("The FLOPs of a model that is frozen in parts are those of its gradients",
          "[program][cost][frozen]") {
  const models::ModelGraph graph = models::build_graph(unpadded().model);
  const models::SymbolValues step{.tokens = 8 * 16, .sequences = 8};
  double attention = 0;  // forward, of a layer
  for (const models::Op& op : graph.kinds.front().ops)
    if (op.kind == models::OpKind::Attention)
      attention += models::forward_flops(op, graph.kinds.front(), step, 16).value;
  struct Case {
    std::vector<std::string> frozen;
    int times_attention;  // forward 1, backward 2 a layer
  };
  const int layers = static_cast<int>(graph.layer_kind.size());
  for (const Case& one : {Case{{"*", "!head"}, layers}, Case{{"embedding"}, 3 * layers},
                          Case{{"embedding", "layers.0"}, 3 * layers - 2},
                          Case{{"*", "!layers.1.mlp.down_proj"}, 3 * layers - 4},
                          Case{{"*", "!*norm*"}, 3 * layers}}) {
    Plan plan = unpadded();
    plan.frozen = one.frozen;
    INFO(one.frozen.back());
    auto executed = flops_by_kind(lower(plan, 0));
    CHECK(model_flops_per_step(plan) - one.times_attention * attention ==
          Approx(executed[ComputeKind::Linear]).epsilon(1e-12));
  }
}

TEST_CASE("The shards of tensor parallelism add up to the whole", "[program][cost]") {
  auto whole = flops_by_kind(lower(unpadded(), 0));
  for (const bool sp : {false, true})
    for (const int tp : {2, 4}) {
      auto shard = flops_by_kind(lower(unpadded({.tp = tp, .sp = sp}), 0));
      CHECK(tp * shard[ComputeKind::Linear] == whole[ComputeKind::Linear]);
      CHECK(tp * shard[ComputeKind::Attention] == whole[ComputeKind::Attention]);
    }
}

TEST_CASE("The stages of a pipeline add up to the whole", "[program][cost]") {
  auto whole = flops_by_kind(lower(unpadded(), 0));
  std::map<ComputeKind, double> sum;
  for (const Program& program : lower_all(unpadded({.pp = 4})))
    for (const auto& [kind, flops] : flops_by_kind(program)) sum[kind] += flops;
  CHECK(sum == whole);
}

TEST_CASE("Full recompute executes every layer's forward again but its last linear",
          "[program][cost]") {
  Plan plan = unpadded();
  const double without = flops_by_kind(lower(plan, 0))[ComputeKind::Linear];
  plan.recompute.kind = RecomputeKind::Full;
  const double again = 2.0 * 8 * 16 * 4 * (64 * 128 + 64 * 64 + 64 * 192);
  CHECK(flops_by_kind(lower(plan, 0))[ComputeKind::Linear] == without + again);
}

TEST_CASE("A sliding window attends to its last tokens only", "[program][cost]") {
  // S = 16, window 8: the first 8 queries see 1..8 keys, the others 8: 36 + 64 = 100 pairs; causal
  // without a window: 136. Two products of 2 * 8 heads * 8 elements.
  const Program program = lower(make_plan(test::gemma_style(), {}, 1), 0);
  std::vector<double> flops;
  for (const OperationInstance& instance : program.instances)
    if (operation_of(program, instance).name == "attention")
      flops.push_back(operation_cost(program, instance).flops);
  CHECK(flops == std::vector<double>{100 * 256.0, 136 * 256.0, 100 * 256.0, 136 * 256.0});
}

namespace {

/// Tiles of 128 x 128 in which a causal mask with a window leaves a pair. @param window  0 = none
std::int64_t tiles_in_mask(std::int64_t seq_len, std::int64_t window) {
  constexpr std::int64_t kTile = 128;
  std::int64_t tiles = 0;
  for (std::int64_t rows = 0; rows < seq_len; rows += kTile)
    for (std::int64_t columns = 0; columns < seq_len; columns += kTile) {
      const std::int64_t last_query = rows + kTile - 1, last_key = columns + kTile - 1;
      const bool future = columns > last_query;
      const bool past = window > 0 && last_key <= rows - window;
      if (!future && !past) ++tiles;
    }
  return tiles;
}

/// Of the layers' attention, in the order in which backward comes to them.
std::vector<double> score_gradients(const Plan& plan) {
  const Program program = lower(plan, 0);
  std::vector<double> bytes;
  for (const OperationInstance& instance : program.instances)
    if (operation_of(program, instance).name == "attention.input_grad")
      bytes.push_back(score_gradient_bytes(program, instance));
  return bytes;
}

}  // namespace

TEST_CASE("A deterministic backward pass of cuDNN leaves the tiles of the mask in memory",
          "[program][cost]") {
  Plan plan = make_plan(test::gemma_style(), {}, 1);  // 4 layers, every second with a window
  plan.workload.precision = DType::BF16;
  plan.workload.seq_len = plan.model.max_positions = 1024;
  plan.model.window = 256;
  const auto of_tiles = [](std::int64_t tiles) {
    return Approx(2.0 * 8 * 128 * 128 * static_cast<double>(tiles)).epsilon(5e-3);  // 8 heads
  };
  const std::vector<double> bytes = score_gradients(plan);
  REQUIRE(bytes.size() == 4);
  CHECK(bytes[0] == of_tiles(tiles_in_mask(1024, 0)));  // the last layer first
  CHECK(bytes[1] == of_tiles(tiles_in_mask(1024, 256)));
  plan.parallel.cp = 2;  // a rank has chunks 0 and 3 of 4: a quarter, and all keys
  plan.context_parallel = ContextMethod::AllGather;
  CHECK(score_gradients(plan)[0] == of_tiles(tiles_in_mask(1024, 0) / 2));
}

TEST_CASE("What keeps no gradient of scores in memory moves none", "[program][cost]") {
  Plan plan = make_plan(test::llama_style(), {}, 1);
  plan.workload.precision = DType::BF16;
  const Plan stores = plan;
  CHECK(score_gradients(stores)[0] > 0);
  CHECK_THAT(signature_of(stores, "attention.input_grad"),
             Catch::Contains(std::string(kStoresScoreGradient)));
  CHECK_THAT(signature_of(stores, "attention"),
             !Catch::Contains(std::string(kStoresScoreGradient)));
  const auto moves_none = [&](const std::function<void(Plan&)>& change) {
    Plan changed = stores;
    change(changed);
    CHECK(score_gradients(changed)[0] == 0);
    CHECK_THAT(signature_of(changed, "attention.input_grad"),
               !Catch::Contains(std::string(kStoresScoreGradient)));
  };
  moves_none([](Plan& p) { p.deterministic = false; });
  moves_none([](Plan& p) { p.attention = AttentionKernels::Own; });
  moves_none([](Plan& p) { p.workload.precision = DType::F32; });
  moves_none([](Plan& p) { p.model = test::gemma2_style(); });         // soft caps
  moves_none([](Plan& p) { p.attention_workspace_bytes = 1 << 10; });  // our own kernel runs
}

TEST_CASE("Bytes count each operand once, and a gradient that is added to twice",
          "[program][cost]") {
  const Program program = lower(make_plan(test::llama_style()), 0);
  // x (16, 64), weight (96 * 2, 64), y (16, 192), fp32.
  CHECK(operation_cost(program, first_named(program, "gate_up")).bytes ==
        4 * (16 * 64 + 192 * 64 + 16 * 192));
  // An embedding reads one row per token and its int32 id, and writes the row.
  CHECK(operation_cost(program, first_named(program, "embedding")).bytes ==
        4 * (16 + 16 * 64 + 16 * 64));
  const OperationInstance& fresh = first_named(program, "gate_up.weight_grad");
  REQUIRE_FALSE(fresh.accumulate);
  OperationInstance added = fresh;
  added.accumulate = true;
  CHECK(operation_cost(program, added).bytes - operation_cost(program, fresh).bytes ==
        4 * 192 * 64);
}

TEST_CASE("A rotation passes over the heads that it turns, not over the values",
          "[program][cost]") {
  const Program program = lower(make_plan(test::llama_style()), 0);
  // 16 tokens, 8 query and 4 key heads of 8 elements in fp32 are read and written.
  const std::int64_t bytes = 2 * 16 * (8 + 4) * 8 * 4;
  CHECK(operation_cost(program, first_named(program, "rope")).bytes == bytes);
  CHECK(operation_cost(program, first_named(program, "rope.input_grad")).bytes == bytes);
}

TEST_CASE("Adam moves 28 bytes an element, and 2 more to write bf16 weights", "[program][cost]") {
  // Reads weight, gradient and two moments, writes weight and moments: 7 fp32 numbers.
  const auto bytes_per_element = [](DType precision, OptimizerKind kind) {
    Plan plan = make_plan(test::llama_style());
    plan.workload.precision = precision;
    plan.workload.optimizer.kind = kind;
    const Program program = lower(plan, 0);
    const auto& instance = program.instances[test::instances_named(program, "optimizer[").front()];
    const auto& step = std::get<StepOp>(operation_of(program, instance).work);
    return static_cast<double>(operation_cost(program, instance).bytes) /
           static_cast<double>(step.range.size());
  };
  CHECK(bytes_per_element(DType::F32, OptimizerKind::AdamW) == 28);
  CHECK(bytes_per_element(DType::BF16, OptimizerKind::AdamW) == 30);
  CHECK(bytes_per_element(DType::F32, OptimizerKind::Sgd) == 20);
}

TEST_CASE("A message is what one rank passes in", "[program][cost]") {
  const Program program = lower(make_plan(test::llama_style(), {.tp = 2, .pp = 2, .sp = true}), 0);
  const auto bytes = [&](const char* name) {
    return message_bytes(program, first_named(program, name));
  };
  CHECK(bytes("attention_norm.all_gather") == 16 * 64 / 2 * 4);  // its own part
  CHECK(bytes("attention_out.reduce_scatter") == 16 * 64 * 4);   // all of the buffer
  CHECK(bytes("send_forward") == 16 * 64 / 2 * 4);
  CHECK(bytes("loss_and_norm.all_reduce") == 16);  // two fp64 numbers
  CHECK(bytes("qkv") == 0);
}

TEST_CASE("Signatures state kind, phase, dtype and local shape", "[program][cost]") {
  const Plan plan = make_plan(test::llama_style(), {.tp = 2});
  CHECK(signature_of(plan, "qkv") == "linear.forward fp32 t=16 out=64 in=64");
  CHECK(signature_of(plan, "qkv.input_grad") == "linear.input_grad fp32 t=16 out=64 in=64");
  CHECK(signature_of(plan, "qkv.weight_grad") == "linear.weight_grad fp32 t=16 out=64 in=64");
  CHECK(signature_of(plan, "attention") == "attention.forward fp32 b=1 s=16 h=4 k=2 e=8 causal");
  CHECK(signature_of(plan, "attention_out.all_reduce").empty());
}

TEST_CASE("Equal shapes share a signature, different ones do not", "[program][cost]") {
  const Plan plan = make_plan(test::llama_style());
  Plan other = plan;
  other.model.num_layers = 2;  // the same layer in another model
  other.parallel.dp = 2;
  other.workload.global_batch_size *= 2;
  for (const char* name :
       {"qkv", "attention", "attention_norm", "activation", "mlp_down.weight_grad"})
    CHECK(signature_of(plan, name) == signature_of(other, name));

  const auto differs = [&](const char* name, auto change) {
    Plan changed = plan;
    change(changed);
    return signature_of(changed, name) != signature_of(plan, name);
  };
  CHECK(differs("qkv", [](Plan& p) { p.workload.precision = DType::BF16; }));
  CHECK(differs("qkv", [](Plan& p) { p.workload.seq_len = 32; }));
  CHECK(differs("qkv", [](Plan& p) { p.model.qkv_bias = true; }));
  CHECK(differs("qkv", [](Plan& p) { p.model.num_kv_heads = 8; }));
  CHECK(differs("attention", [](Plan& p) { p.micro_batch_size = 2; }));
  CHECK(differs("attention", [](Plan& p) { p.model.num_kv_heads = 8; }));
  CHECK(differs("embedding", [](Plan& p) { p.model.hidden_size = 128; }));
  CHECK(differs("activation",
                [](Plan& p) { p.model.activation = models::ActivationKind::GeluTanh; }));
  CHECK(differs("rope", [](Plan& p) { p.model.rope_size = 4; }));
  CHECK(differs("mlp_norm", [](Plan& p) { p.parallel = {.tp = 2, .sp = true}; }));
}

TEST_CASE("Every compute operation that does work has a signature", "[program][cost]") {
  for (const Plan& plan : test::varied_plans())
    for (const Program& program : lower_all(plan))
      for (const OperationInstance& instance : program.instances) {
        const Operation& operation = operation_of(program, instance);
        const bool communicates = !std::holds_alternative<ComputeOp>(operation.work) &&
                                  !std::holds_alternative<StepOp>(operation.work);
        if (communicates) REQUIRE(signature(program, instance).empty());
        if (std::holds_alternative<ComputeOp>(operation.work))
          REQUIRE_FALSE(signature(program, instance).empty());
        if (communicates) REQUIRE(message_bytes(program, instance) > 0);
      }
}

}  // namespace meshplan::program
