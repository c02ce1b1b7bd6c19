#include "formats/torchtitan/model_tree.hpp"

#include <algorithm>
#include <array>
#include <fmt/format.h>

#include "core/error.hpp"
#include "formats/text/settings.hpp"
#include "formats/torchtitan/models.hpp"
#include "python/tree.hpp"

namespace meshplan::planner::torchtitan {
namespace {

using models::Mixer;
using models::ModelSpec;

/// What a layer's configuration comes to.
struct Layer {
  int heads = 0, kv_heads = 0, head_size = 0;
  bool qkv_bias = false, out_bias = false, qk_norm = false, sinks = false, gate = false;
  std::optional<models::MlaSpec> mla;
  int ffn = 0;  // 0: experts instead
  bool mlp_bias = false;
  std::optional<models::MoeSpec> moe;
  bool clamped = false;
  bool post_norms = false;
  double norm_epsilon = 1e-5;
  double rope_base = 10000;
  int max_positions = 0;
  int window = 0;
  bool operator==(const Layer&) const = default;
};

std::string short_text(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 100);
}

/// The largest extent of anything in a model's shape.
const Bounds kExtent = between(1, 1 << 24);

class LayerReader {
 public:
  LayerReader(const Json& tree, const std::string& where) : in_(tree, where) {}

  Layer run() {
    if (in_.has("delta_net") && in_.value("delta_net") != nullptr)
      in_.fail("delta_net", "no linear attention, which is not read here; give the model itself");
    layer_.post_norms = in_.value("post_attention_norm") != nullptr;
    layer_.norm_epsilon = in_.number("attention_norm.eps").value_or(1e-5);
    attention();
    rope();
    const bool has_moe = in_.value("moe") != nullptr;
    if (has_moe)
      experts();
    else
      layer_.ffn = extent("feed_forward.w1.out_features");
    layer_.mlp_bias = !has_moe && in_.flag("feed_forward.w1.bias").value_or(false);
    return layer_;
  }

 private:
  int extent(const std::string& path) {
    const auto value = in_.small(path, kExtent);
    if (!value) in_.fail(path, "a number");
    return *value;
  }

  void attention() {
    if (in_.value("attention.kv_lora_rank") != nullptr) return latent_attention();
    layer_.heads = extent("attention.n_heads");
    layer_.kv_heads = in_.small("attention.n_kv_heads", kExtent).value_or(layer_.heads);
    layer_.head_size =
        in_.small("attention.head_dim", kExtent).value_or(extent("attention.dim") / layer_.heads);
    layer_.qk_norm = in_.value("attention.qk_norm") != nullptr;
    for (const char* path : {"attention.qkv_linear.wqkv.bias", "attention.qkv_linear.wq.bias"})
      layer_.qkv_bias = layer_.qkv_bias || in_.flag(path).value_or(false);
    layer_.out_bias = in_.flag("attention.wo.bias").value_or(false);
    layer_.sinks = in_.has("attention.param_init.sinks");
    layer_.gate = in_.value("attention.o_gate") != nullptr;
    for (const char* path : {"attention.sliding_window_size", "attention.window_size"})
      layer_.window = std::max(layer_.window, in_.small(path, kExtent).value_or(0));
  }

  void latent_attention() {
    models::MlaSpec mla;
    layer_.heads = layer_.kv_heads = extent("attention.n_heads");
    const int queries = in_.small("attention.q_lora_rank", between(0, 1 << 24)).value_or(0);
    if (queries > 0) mla.q_lora_rank = queries;
    mla.kv_lora_rank = extent("attention.kv_lora_rank");
    mla.qk_nope_head_size = extent("attention.qk_nope_head_dim");
    mla.qk_rope_head_size = extent("attention.qk_rope_head_dim");
    mla.v_head_size = extent("attention.v_head_dim");
    mla.norm_epsilon = in_.number("attention.kv_norm.eps").value_or(1e-5);
    layer_.head_size = mla.qk_nope_head_size + mla.qk_rope_head_size;
    layer_.mla = mla;
  }

  void rope() {
    layer_.max_positions = in_.small("attention.rope.max_context_length", kExtent).value_or(0);
    layer_.rope_base = in_.number("attention.rope.theta", between(1, 1e12)).value_or(10000);
  }

  void experts() {
    models::MoeSpec moe;
    moe.num_experts = extent("moe.num_experts");
    moe.top_k = in_.small("moe.router.top_k", kExtent).value_or(1);
    moe.expert_ffn_size = extent("moe.routed_experts.inner_experts.hidden_dim");
    const Json* inner = in_.value("moe.routed_experts.inner_experts");
    layer_.clamped =
        inner != nullptr && python::call_name(*inner).find("GptOss") != std::string::npos;
    moe.expert_bias = layer_.clamped;
    if (in_.value("moe.shared_experts") != nullptr) {
      moe.shared_expert_ffn_size = extent("moe.shared_experts.w1.out_features");
      moe.shared_expert_gate = in_.value("moe.shared_experts.gate") != nullptr;
    }
    constexpr std::array<std::string_view, 2> kScores = {"sigmoid", "softmax"};
    const auto score = in_.word("moe.router.score_func", kScores).value_or("sigmoid");
    moe.router.score =
        score == "sigmoid" ? models::RouterScore::Sigmoid : models::RouterScore::Softmax;
    moe.router.normalize_top_k = in_.flag("moe.router.route_norm").value_or(false);
    moe.router.scaling_factor = in_.number("moe.router.route_scale").value_or(1);
    moe.router.bias = in_.flag("moe.router.gate.bias").value_or(false);
    moe.router.num_groups = in_.small("moe.router.num_expert_groups", kExtent).value_or(1);
    moe.router.top_groups = in_.small("moe.router.num_limited_groups", kExtent).value_or(1);
    // torchtitan balances by a bias of its own unless the coefficient is None.
    const bool balanced =
        !in_.has("moe.load_balance_coeff") || in_.value("moe.load_balance_coeff") != nullptr;
    moe.router.correction_bias = balanced;
    if (balanced)
      moe.router.correction_bias_rate = in_.number("moe.load_balance_coeff").value_or(1e-3);
    layer_.moe = moe;
  }

  Settings in_;
  Layer layer_;
};

class ModelReader {
 public:
  ModelReader(const Json& tree, std::string name, std::string where)
      : tree_(tree), name_(std::move(name)), where_(std::move(where)) {}

  DescribedModel run() {
    const Json& model = tree_;
    if (!model.is_object() || python::is_unknown(model) || !python::is_call(model))
      fail(model, "is not understood");
    result_.converters = converters_of(model, where_);
    if (model.contains(python::kTouched)) fail(model.at(python::kTouched)[0], "may change it");
    Json ends = model;
    ends.erase("layers");
    Settings in(ends, where_);
    for (const char* part : {"vision_encoder", "vision_projection"})
      if (in.value(part) != nullptr)
        throw ConfigError(fmt::format(
            "{}.{}: the model has a vision encoder, which is not predicted; give its text decoder "
            "with --model",
            where_, part));
    layers(model);
    spec().name = name_;
    spec().hidden_size = extent(in, "dim");
    spec().vocab_size = extent(in, "vocab_size");
    spec().tied_embeddings = in.flag("enable_weight_tying").value_or(false);
    if (const auto cap = in.number("lm_head.output_soft_cap_temp")) spec().logit_softcap = *cap;
    if (const Json* mtp = in.value("mtp_layers"); mtp != nullptr && mtp->is_array())
      spec().mtp_layers = static_cast<int>(mtp->size());
    if (spec().max_positions == 0) spec().max_positions = 1 << 17;
    models::validate(spec(), where_);
    prefer_preset();
    return std::move(result_);
  }

 private:
  ModelSpec& spec() { return result_.spec; }

  [[noreturn]] void fail(const Json& value, std::string_view what) const {
    const std::string source = python::is_unknown(value)
                                   ? value.at(python::kSource).get<std::string>()
                                   : short_text(value);
    throw ConfigError(fmt::format(
        "{}: '{}' {}{}; give the model with --model", where_, source.substr(0, 100), what,
        python::is_unknown(value) && value.contains(python::kPlace)
            ? fmt::format(" ({})", value.at(python::kPlace).get<std::string>())
            : ""));
  }

  static int extent(Settings& in, const std::string& path) {
    const auto value = in.small(path, kExtent);
    if (!value) in.fail(path, "a number");
    return *value;
  }

  void layers(const Json& model) {
    const Json layers = model.value("layers", Json());
    if (!layers.is_array() || layers.empty() || layers.size() > limits::kLayers)
      throw ConfigError(
          fmt::format("{}: {} has no list of layers that is read; give the model with --model",
                      where_, python::call_name(model)));
    std::vector<Layer> all;
    for (std::size_t i = 0; i < layers.size(); ++i) {
      if (!python::is_call(layers[i]) || layers[i].contains(python::kTouched))
        fail(layers[i], "is no layer");
      all.push_back(LayerReader(layers[i], fmt::format("{}.layers[{}]", where_, i)).run());
    }
    spec().num_layers = static_cast<int>(all.size());
    attention_of(all);
    feed_forward_of(all);
  }

  /// What all layers share; windows may differ.
  void attention_of(std::vector<Layer>& all) {
    bool any_window = false;
    bool all_window = true;
    for (const Layer& layer : all) {
      Layer same = all[0];
      same.window = layer.window;
      same.ffn = layer.ffn;
      same.mlp_bias = layer.mlp_bias;
      same.moe = layer.moe;
      same.clamped = layer.clamped;
      if (same != layer) throw ConfigError(where_ + ".layers: their attention or norms differ");
      any_window = any_window || layer.window > 0;
      all_window = all_window && layer.window > 0;
      if (layer.window > 0 && spec().window > 0 && layer.window != spec().window)
        throw ConfigError(where_ + ".layers: their windows differ");
      if (layer.window > 0) spec().window = layer.window;
    }
    const Layer& first = all[0];
    spec().num_heads = first.heads;
    spec().num_kv_heads = first.kv_heads;
    spec().head_size = first.head_size;
    spec().qkv_bias = first.qkv_bias;
    spec().attention_out_bias = first.out_bias;
    spec().qk_norm = first.qk_norm;
    spec().attention_sinks = first.sinks;
    spec().attention_output_gate = first.gate;
    spec().mla = first.mla;
    spec().norm_epsilon = first.norm_epsilon;
    spec().rope_base = first.rope_base;
    spec().max_positions = first.max_positions;
    if (first.post_norms) spec().norm_placement = models::NormPlacement::PrePost;
    if (any_window) pattern_of(all);
  }

  void pattern_of(const std::vector<Layer>& all) {
    std::vector<Mixer> kinds;
    for (const Layer& layer : all) kinds.push_back(layer.window > 0 ? Mixer::Sliding : Mixer::Full);
    for (std::size_t period = 1; period <= kinds.size(); ++period) {
      bool repeats = true;
      for (std::size_t i = period; i < kinds.size(); ++i)
        repeats = repeats && kinds[i] == kinds[i - period];
      if (!repeats) continue;
      kinds.resize(period);
      break;
    }
    spec().layer_pattern = kinds;
  }

  void feed_forward_of(const std::vector<Layer>& all) {
    std::vector<int> dense;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const Layer& layer = all[i];
      if (layer.moe) {
        if (spec().moe && *spec().moe != *layer.moe)
          throw ConfigError(where_ + ".layers: their experts differ");
        spec().moe = layer.moe;
        if (layer.clamped) spec().activation = models::ActivationKind::ClampedSilu;
        continue;
      }
      if (spec().ffn_size > 0 && spec().ffn_size != layer.ffn)
        throw ConfigError(where_ + ".layers: their feed-forward parts differ");
      spec().ffn_size = layer.ffn;
      spec().mlp_bias = layer.mlp_bias;
      dense.push_back(static_cast<int>(i));
    }
    if (spec().moe) spec().moe->dense_layers = dense;
  }

  /// A preset of the same shape has the name that people know.
  void prefer_preset() {
    for (const std::string& name : models::preset_names()) {
      const ModelSpec preset = models::load_preset(name);
      if (!same_shape(spec(), preset)) continue;
      const int mtp_layers = spec().mtp_layers;
      spec() = preset;
      spec().mtp_layers = mtp_layers;
      return;
    }
  }

  const Json& tree_;
  std::string name_;
  std::string where_;
  DescribedModel result_;
};

}  // namespace

/// "converter.build().convert(model)", whose shapes stay.
std::vector<std::string> converters_of(const Json& tree, const std::string& where) {
  std::vector<std::string> names;
  if (!tree.is_object()) return names;
  for (const Json& built : tree.value(python::kTransforms, Json::array())) {
    const Json converter = built.is_object() ? built.value(python::kSelf, Json()) : Json();
    if (!python::is_call(converter))
      throw ConfigError(
          fmt::format("{}: {} is no converter that is understood", where, short_text(built)));
    names.push_back(python::call_name(converter));
  }
  return names;
}

DescribedModel described_model(const Json& tree, const std::string& name,
                               const std::string& where) {
  return ModelReader(tree, name, where).run();
}

}  // namespace meshplan::planner::torchtitan
