#include "models/graph.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "models/counts.hpp"

namespace meshplan::models {
namespace {

using Names = std::vector<std::string>;

Names op_names(const LayerGraph& layer) {
  Names names;
  for (const Op& op : layer.ops) names.push_back(op.name);
  return names;
}

const Op& op_named(const LayerGraph& layer, const std::string& name) {
  const auto found = std::find_if(layer.ops.begin(), layer.ops.end(),
                                  [&](const Op& op) { return op.name == name; });
  REQUIRE(found != layer.ops.end());
  return *found;
}

const Tensor& tensor(const LayerGraph& layer, TensorId id) {
  return layer.tensors.at(static_cast<std::size_t>(id));
}

std::vector<std::int64_t> sizes(const Tensor& tensor, const SymbolValues& values = {}) {
  std::vector<std::int64_t> result;
  for (const Dim& dim : tensor.shape) result.push_back(evaluate(dim, values));
  return result;
}

Names parameter_names(const LayerGraph& layer) {
  Names names;
  for (const Op& op : layer.ops)
    for (const TensorId id : op.parameters) names.push_back(tensor(layer, id).name);
  return names;
}

ModelGraph graph_of(const std::string& preset) {
  return build_graph(load_preset(preset));
}

/// Every tensor has one writer at most, is written before it is read, and has a unique name.
void check_dataflow(const LayerGraph& layer) {
  std::set<TensorId> written;
  std::set<TensorId> produced;
  std::set<std::string> names;
  for (const Tensor& t : layer.tensors) CHECK(names.insert(t.name).second);
  for (const Op& op : layer.ops)
    for (const TensorId id : op.outputs) CHECK(produced.insert(id).second);
  for (const Op& op : layer.ops) {
    INFO(layer.name << " " << op.name);
    for (const TensorId id : op.inputs) CHECK((written.contains(id) || !produced.contains(id)));
    for (const TensorId id : op.parameters)
      CHECK(tensor(layer, id).tensor_class == TensorClass::Parameter);
    CHECK_FALSE(op.outputs.empty());
    written.insert(op.outputs.begin(), op.outputs.end());
  }
  if (layer.output) CHECK(written.contains(*layer.output));
}

}  // namespace

TEST_CASE("every preset builds a graph whose data flows forward", "[models][graph]") {
  for (const std::string& name : preset_names()) {
    INFO(name);
    const ModelSpec spec = load_preset(name);
    const ModelGraph model = build_graph(spec);
    CHECK(model.layer_kind.size() == static_cast<std::size_t>(spec.num_layers));
    check_dataflow(model.embedding);
    check_dataflow(model.head);
    for (const LayerGraph& kind : model.kinds) check_dataflow(kind);
    CHECK_FALSE(model.embedding.input.has_value());
    CHECK_FALSE(model.head.output.has_value());
  }
}

TEST_CASE("a Llama layer is the contract's operation sequence", "[models][graph]") {
  const ModelGraph model = graph_of("tiny-llama");
  REQUIRE(model.kinds.size() == 1);
  const LayerGraph& layer = model.kinds.front();
  CHECK(layer.name == "dense");
  CHECK(op_names(layer) == Names{"attention_norm", "qkv", "rope", "attention", "attention_out",
                                 "attention_add", "mlp_norm", "gate_up", "activation", "mlp_down",
                                 "mlp_add"});
  CHECK(parameter_names(layer) == Names{"input_layernorm.weight", "self_attn.qkv_proj.weight",
                                        "self_attn.o_proj.weight",
                                        "post_attention_layernorm.weight",
                                        "mlp.gate_up_proj.weight", "mlp.down_proj.weight"});
  CHECK(op_names(model.embedding) == Names{"embedding"});
  CHECK(op_names(model.head) == Names{"final_norm", "lm_head", "loss"});
}

TEST_CASE("shapes, sections and splits of a Llama layer", "[models][graph]") {
  // hidden 256, 8 heads of 32, 4 key/value heads, FFN 704
  const ModelGraph model = graph_of("tiny-llama");
  const LayerGraph& layer = model.kinds.front();
  const SymbolValues values{.tokens = 64, .sequences = 2};
  const Op& qkv = op_named(layer, "qkv");
  CHECK(qkv.split == Split::Column);
  CHECK(sizes(tensor(layer, qkv.parameters[0])) == std::vector<std::int64_t>{512, 256});
  CHECK(tensor(layer, qkv.parameters[0]).sections == std::vector<std::int64_t>{256, 128, 128});
  CHECK(tensor(layer, qkv.outputs[0]).sections == std::vector<std::int64_t>{256, 128, 128});
  CHECK(sizes(tensor(layer, qkv.outputs[0]), values) == std::vector<std::int64_t>{64, 512});

  const Op& attention = op_named(layer, "attention");
  CHECK(sizes(tensor(layer, attention.outputs[0]), values) == std::vector<std::int64_t>{64, 256});
  CHECK(sizes(tensor(layer, attention.outputs[1]), values) == std::vector<std::int64_t>{64, 8});
  CHECK(tensor(layer, attention.outputs[1]).tensor_class == TensorClass::Statistic);
  CHECK(attention.attributes.scale == Approx(1 / std::sqrt(32.0)));

  const Op& gate_up = op_named(layer, "gate_up");
  CHECK(tensor(layer, gate_up.parameters[0]).sections == std::vector<std::int64_t>{704, 704});
  const Op& down = op_named(layer, "mlp_down");
  CHECK(down.split == Split::Row);
  CHECK(tensor(layer, down.parameters[0]).init == Init::ScaledNormal);
  const Op& norm = op_named(layer, "mlp_norm");
  CHECK(sizes(tensor(layer, norm.outputs[1]), values) == std::vector<std::int64_t>{64});
}

TEST_CASE("a model ends in its head and the prediction modules that share with it",
          "[models][graph]") {
  ModelSpec spec = load_preset("llama3-8b");
  CHECK(build_graph(spec).ending == build_graph(spec).head);
  spec.mtp_layers = 2;
  spec.mtp_loss_coefficient = 0.5;
  const ModelGraph graph = build_graph(spec);
  const LayerGraph& ending = graph.ending;
  std::set<std::string> names;
  for (const Tensor& tensor : ending.tensors) CHECK(names.insert(tensor.name).second);
  CHECK_FALSE(ending.output.has_value());
  // The first module reads what the head's norm makes, the second what the first's makes.
  CHECK(op_named(ending, "mtp.0.mtp_hidden_norm").inputs.front() ==
        op_named(ending, "final_norm").outputs.front());
  CHECK(op_named(ending, "mtp.1.mtp_hidden_norm").inputs.front() ==
        op_named(ending, "mtp.0.mtp_final_norm").outputs.front());
  for (const std::string module : {"mtp.0.", "mtp.1."}) {
    CHECK(op_named(ending, module + "lm_head").parameters ==
          op_named(ending, "lm_head").parameters);
    CHECK(op_named(ending, module + "loss").attributes.scale == 0.25);
    CHECK(tensor(ending, op_named(ending, module + "embedding").parameters.front()).name ==
          "embed_tokens.weight");
  }
  const std::size_t of_modules = graph.mtp[0].ops.size() + graph.mtp[1].ops.size();
  CHECK(ending.ops.size() == graph.head.ops.size() + of_modules + 2 * 3);  // lookup, logits, loss
  spec.tied_embeddings = true;
  const LayerGraph tied = build_graph(spec).ending;
  CHECK(op_named(tied, "mtp.0.embedding").parameters == op_named(tied, "lm_head").parameters);
}

TEST_CASE("GPT-2 has learned positions, biases and a plain MLP", "[models][graph]") {
  const ModelGraph model = graph_of("tiny-gpt2");
  const LayerGraph& layer = model.kinds.front();
  CHECK(op_names(layer) == Names{"attention_norm", "qkv", "attention", "attention_out",
                                 "attention_add", "mlp_norm", "mlp_up", "activation", "mlp_down",
                                 "mlp_add"});
  CHECK(op_named(layer, "mlp_up").parameters.size() == 2);
  CHECK(op_named(layer, "attention_norm").outputs.size() == 3);
  CHECK(op_names(model.embedding) == Names{"embedding", "position_embedding"});
  CHECK(model.tied_embeddings);
  const Op& lm_head = op_named(model.head, "lm_head");
  CHECK(tensor(model.head, lm_head.parameters[0]).name == "embed_tokens.weight");
}

TEST_CASE("matrices decay, norms and biases do not", "[models][graph]") {
  const LayerGraph layer = graph_of("tiny-gpt2").kinds.front();
  for (const Tensor& t : layer.tensors)
    if (t.tensor_class == TensorClass::Parameter) {
      INFO(t.name);
      CHECK(t.weight_decay == (t.shape.size() == 2));
      CHECK(t.trained);
    }
}

TEST_CASE("Gemma has four norms a layer, a scaled embedding and local rope", "[models][graph]") {
  const ModelGraph model = graph_of("gemma3-1b");
  REQUIRE(model.kinds.size() == 2);
  CHECK(model.kinds[0].name == "sliding_dense");
  CHECK(model.kinds[1].name == "dense");
  CHECK(model.layer_kind[4] == 0);
  CHECK(model.layer_kind[5] == 1);
  const LayerGraph& sliding = model.kinds[0];
  CHECK(op_names(sliding) == Names{"attention_norm", "qkv", "qk_norm", "rope", "attention",
                                   "attention_out", "post_attention_norm", "attention_add",
                                   "mlp_norm", "gate_up", "activation", "mlp_down", "post_mlp_norm",
                                   "mlp_add"});
  CHECK(parameter_names(sliding) ==
        Names{"input_layernorm.weight", "self_attn.qkv_proj.weight", "self_attn.q_norm.weight",
              "self_attn.k_norm.weight", "self_attn.o_proj.weight",
              "post_attention_layernorm.weight", "pre_feedforward_layernorm.weight",
              "mlp.gate_up_proj.weight", "mlp.down_proj.weight",
              "post_feedforward_layernorm.weight"});
  CHECK(op_named(sliding, "attention").attributes.window == 512);
  CHECK(op_named(sliding, "rope").attributes.rope_base == 1e4);
  CHECK(op_named(model.kinds[1], "attention").attributes.window == 0);
  CHECK(op_named(model.kinds[1], "rope").attributes.rope_base == 1e6);
  CHECK(op_named(model.embedding, "embedding_scale").attributes.scale == Approx(std::sqrt(1152.0)));
}

TEST_CASE("Gemma 2 caps scores and logits", "[models][graph]") {
  const ModelGraph model = graph_of("gemma2-2b");
  CHECK(op_named(model.kinds[0], "attention").attributes.softcap == 50.0);
  CHECK(op_named(model.head, "loss").attributes.softcap == 30.0);
}

TEST_CASE("a MoE layer routes, dispatches and combines", "[models][graph]") {
  const ModelGraph model = graph_of("tiny-moe");
  const LayerGraph& layer = model.kinds.front();
  CHECK(layer.name == "moe");
  const Names ops = op_names(layer);
  CHECK(Names(ops.begin() + 6, ops.end()) == Names{"mlp_norm", "router", "dispatch",
                                                   "expert_gate_up", "expert_activation",
                                                   "expert_down", "combine", "mlp_add"});
  const SymbolValues values{.tokens = 64, .sequences = 2, .routed_tokens = 128};
  const Op& router = op_named(layer, "router");
  CHECK(sizes(tensor(layer, router.outputs[0]), values) == std::vector<std::int64_t>{64, 2});
  CHECK(tensor(layer, router.outputs[1]).tensor_class == TensorClass::Index);
  CHECK(sizes(tensor(layer, router.outputs[2]), values) == std::vector<std::int64_t>{64, 8});
  const Op& up = op_named(layer, "expert_gate_up");
  CHECK(up.kind == OpKind::GroupedLinear);
  CHECK(sizes(tensor(layer, up.parameters[0])) == std::vector<std::int64_t>{8, 704, 256});
  CHECK(sizes(tensor(layer, up.outputs[0]), values) == std::vector<std::int64_t>{128, 704});
}

TEST_CASE("gpt-oss has biases everywhere, sinks and alternating windows", "[models][graph]") {
  const ModelGraph model = graph_of("gpt-oss-20b");
  REQUIRE(model.kinds.size() == 2);
  CHECK(model.kinds[0].name == "sliding_moe");
  const LayerGraph& layer = model.kinds[0];
  CHECK(op_named(layer, "router").parameters.size() == 2);
  CHECK(op_named(layer, "expert_down").parameters.size() == 2);
  CHECK(sizes(tensor(layer, op_named(layer, "attention").parameters[0])) ==
        std::vector<std::int64_t>{64});
}

TEST_CASE("DeepSeek's first layers are dense and its correction bias is not trained",
          "[models][graph]") {
  const ModelGraph model = graph_of("deepseek-v3");
  REQUIRE(model.kinds.size() == 2);
  CHECK(model.layer_kind[2] == 0);
  CHECK(model.layer_kind[3] == 1);
  const Names ops = op_names(model.kinds[0]);
  CHECK(Names(ops.begin(), ops.begin() + 11) ==
        Names{"attention_norm", "q_down", "q_low_norm", "q_up", "kv_down", "kv_low", "kv_low_norm",
              "kv_up", "rope", "attention", "attention_out"});
  const Op& router = op_named(model.kinds[1], "router");
  REQUIRE(router.parameters.size() == 2);
  CHECK_FALSE(tensor(model.kinds[1], router.parameters[1]).trained);
  CHECK(router.attributes.router.score == RouterScore::Sigmoid);
}

TEST_CASE("uncompressed latent queries need no down-projection", "[models][graph]") {
  ModelSpec spec = load_preset("deepseek-v3");
  spec.mla->q_lora_rank.reset();
  const ModelGraph model = build_graph(spec);
  CHECK(op_names(model.kinds[0])[1] == "q_up");
}

TEST_CASE("Qwen3-Next gates its attention and its shared expert", "[models][graph]") {
  const ModelGraph model = graph_of("qwen3-next-80b-a3b");
  REQUIRE(model.kinds.size() == 2);
  CHECK(model.kinds[0].name == "linear_moe");
  CHECK(model.layer_kind[3] == 1);
  CHECK(op_named(model.kinds[1], "gated_attention").kind == OpKind::SigmoidGate);
  CHECK(op_named(model.kinds[0], "gated_shared").kind == OpKind::SigmoidGate);
  CHECK(op_named(model.kinds[1], "rope").attributes.rope_size == 64);
}

TEST_CASE("an encoder masks padding, norms after each sum and classifies", "[models][graph]") {
  const ModelGraph model = graph_of("bert-base");
  const LayerGraph& layer = model.kinds.front();
  CHECK(op_names(layer) == Names{"qkv", "attention", "attention_out", "attention_add",
                                 "attention_norm", "mlp_up", "activation", "mlp_down", "mlp_add",
                                 "mlp_norm"});
  const Op& attention = op_named(layer, "attention");
  CHECK_FALSE(attention.attributes.causal);
  REQUIRE(attention.inputs.size() == 2);
  CHECK(tensor(layer, attention.inputs[1]).name == "lengths");
  CHECK(op_names(model.embedding) == Names{"embedding", "position_embedding",
                                           "token_type_embedding", "token_type_add",
                                           "embedding_norm"});
  CHECK(op_names(model.head) == Names{"pool", "pooler", "pooler_activation", "classifier", "loss"});
  const Op& loss = op_named(model.head, "loss");
  CHECK(sizes(tensor(model.head, loss.inputs[0]), {.tokens = 64, .sequences = 2}) ==
        std::vector<std::int64_t>{2, 2});
}

TEST_CASE("a dimension that its sharding does not divide is a bug", "[models][graph]") {
  CHECK(evaluate({.count = 6, .symbol = Symbol::Tokens, .divisor = 4}, {.tokens = 2}) == 3);
  CHECK_THROWS_AS(evaluate({.count = 6, .symbol = Symbol::One, .divisor = 4}, {}), InvariantError);
}

// (in + out) * rank parameters beside each linear (Hu et al. 2021, LoRA, section 4.2).
TEST_CASE("Adapters stand beside the linears that the model names", "[models][graph]") {
  ModelSpec spec = load_preset("llama3-8b");
  const std::int64_t before = parameter_count(build_graph(spec).kinds.front());
  const std::int64_t d = spec.hidden_size, kv = 1024, f = spec.ffn_size, rank = 16;
  spec.adapters = AdapterSpec{.rank = 16, .alpha = 32, .modules = {"qkv_proj", "down_proj"}};
  const LayerGraph layer = build_graph(spec).kinds.front();
  check_dataflow(layer);
  CHECK(parameter_count(layer) - before == rank * (d + d + 2 * kv) + rank * (f + d));
  const Op& scale = op_named(layer, "mlp_down.lora_scale");
  CHECK(scale.attributes.scale == 2.0);
  CHECK(op_named(layer, "qkv.lora_a").split == Split::None);
  CHECK(op_named(layer, "qkv.lora_b").split == Split::Column);
  CHECK(op_named(layer, "mlp_down.lora_a").split == Split::Row);
  CHECK(op_named(layer, "mlp_down.lora_b").split == Split::None);
  CHECK(tensor(layer, op_named(layer, "rope").inputs.front()).name == "qkv.lora_add");

  spec.adapters->modules = {"q_proj", "v_proj"};  // as peft does by default for a Llama
  spec.adapters->alpha = 0;
  const LayerGraph apart = build_graph(spec).kinds.front();
  check_dataflow(apart);
  CHECK(parameter_count(apart) - before == rank * (d + d) + rank * (d + kv));
  CHECK(op_named(apart, "qkv.lora_add").inputs.size() == 3);
}

TEST_CASE("Adapters that a model cannot have are refused by name", "[models][graph]") {
  ModelSpec spec = load_preset("gpt2-124m");
  const auto message = [&](Names modules) {
    spec.adapters = AdapterSpec{.rank = 4, .modules = std::move(modules)};
    try {
      validate(spec, "model.json");
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(message({"o_proj"}).empty());
  CHECK(message({"out_proj"}) ==
        "model.json: adapters.modules: 'out_proj' is no linear of the model's layers, which have "
        "qkv_proj, o_proj, up_proj, down_proj, q_proj, k_proj, v_proj; nearest: 'o_proj'");
  CHECK(message({}).find("adapters.modules is empty") != std::string::npos);
  CHECK(message({"qkv_proj", "k_proj"}).find("which is a part of it") != std::string::npos);
  CHECK(message({"o_proj", "o_proj"}).find("twice") != std::string::npos);
}

}  // namespace meshplan::models
