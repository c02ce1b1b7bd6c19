// Configs are those of the public models, shortened to the keys that matter and a few that do not.
#include "models/hugging_face.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <string>

#include "core/error.hpp"
#include "models/counts.hpp"

namespace meshplan::models {
namespace {

using Catch::Contains;

/// The import of `config`, checked to be the preset of that name but for the name itself, and for
/// choices of training: published configs have dropout that the presets lack, and no balance loss.
ImportedModel import_as_preset(const std::string& config, const std::string& preset,
                               double dropout = 0.0) {
  ImportedModel model = import_hugging_face(config, "config.json");
  ModelSpec expected = load_preset(preset);
  expected.name = model.spec.name;
  expected.dropout = dropout;
  if (expected.moe) expected.moe->router.aux_loss_coefficient = 0.0;
  CHECK(to_json(model.spec) == to_json(expected));
  return model;
}

bool mentions(const ImportedModel& model, const std::string& text) {
  return std::any_of(model.assumptions.begin(), model.assumptions.end(),
                     [&](const std::string& line) { return line.find(text) != std::string::npos; });
}

std::string error_of(const std::string& config, const std::string& assume = "") {
  try {
    load_model(config, "config.json", assume);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

/// Why the import ignored a key; empty if it did not.
std::string reason_for(const ImportedModel& model, const std::string& key) {
  const auto found = std::ranges::find(model.ignored, key, &IgnoredKey::key);
  return found == model.ignored.end() ? "" : found->reason;
}

bool was_read(const ImportedModel& model, const std::string& key) {
  return std::ranges::find(model.read, key, &ReadKey::key) != model.read.end();
}

/// A small llama config; `extra` is inserted before the closing brace.
std::string llama(const std::string& extra) {
  return R"({"model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
             "num_attention_heads": 8, "num_hidden_layers": 2, "vocab_size": 256)" +
         extra + "}";
}

}  // namespace

TEST_CASE("gpt2 has its own names, ties by default and is 4 n_embd wide", "[models][hf]") {
  const ImportedModel model = import_as_preset(
      R"({"activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"],
          "attn_pdrop": 0.1, "bos_token_id": 50256, "initializer_range": 0.02,
          "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": 1024, "n_embd": 768,
          "n_head": 12, "n_layer": 12, "n_positions": 1024, "resid_pdrop": 0.1,
          "task_specific_params": {"text-generation": {"do_sample": true}}, "vocab_size": 50257})",
      "gpt2-124m", 0.1);
  CHECK(mentions(model, "embd_pdrop = 0.1 (gpt2 default)"));
  CHECK(mentions(model, "tie_word_embeddings = true (gpt2 default)"));
  CHECK(mentions(model, "n_inner = 3072"));
}

TEST_CASE("llama 2 names neither head_dim nor num_key_value_heads", "[models][hf]") {
  const ImportedModel model = import_as_preset(
      R"({"architectures": ["LlamaForCausalLM"], "hidden_act": "silu", "hidden_size": 4096,
          "initializer_range": 0.02, "intermediate_size": 11008,
          "max_position_embeddings": 4096, "model_type": "llama", "num_attention_heads": 32,
          "num_hidden_layers": 32, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
          "rope_scaling": null, "tie_word_embeddings": false, "torch_dtype": "float16",
          "vocab_size": 32000})",
      "llama2-7b");
  CHECK(mentions(model, "num_key_value_heads = 32 (num_attention_heads)"));
  CHECK(mentions(model, "head_dim = 128"));
  CHECK(mentions(model, "rope_theta = 10000.0 (llama default)"));
}

TEST_CASE("llama 3.2 scales its rope", "[models][hf]") {
  const ImportedModel model = import_as_preset(
      R"({"attention_bias": false, "head_dim": 64, "hidden_act": "silu", "hidden_size": 2048,
          "initializer_range": 0.02, "intermediate_size": 8192,
          "max_position_embeddings": 131072, "mlp_bias": false, "model_type": "llama",
          "num_attention_heads": 32, "num_hidden_layers": 16, "num_key_value_heads": 8,
          "rms_norm_eps": 1e-05,
          "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                           "original_max_position_embeddings": 8192, "rope_type": "llama3"},
          "rope_theta": 500000.0, "tie_word_embeddings": true, "vocab_size": 128256})",
      "llama3.2-1b");
  CHECK(model.assumptions.empty());
  CHECK(was_read(model, "rope_scaling.high_freq_factor"));
}

TEST_CASE("rope_parameters of transformers 5 replace rope_theta", "[models][hf]") {
  const ModelSpec spec =
      import_hugging_face(
          llama(R"(, "rope_parameters": {"rope_theta": 500000.0, "rope_type": "default"})"), "f")
          .spec;
  CHECK(spec.rope_base == 500000.0);
}

TEST_CASE("rope scaling is read in every form that transformers writes", "[models][hf]") {
  const auto scaling = [](const std::string& keys) {
    return import_hugging_face(llama(", " + keys), "f").spec.rope_scaling;
  };
  const RopeScaling linear{.kind = RopeScalingKind::Linear, .factor = 2.0};
  CHECK(scaling(R"("rope_scaling": {"type": "linear", "factor": 2.0})") == linear);
  CHECK(scaling(R"("rope_parameters": {"rope_type": "linear", "factor": 2.0})") == linear);
  CHECK(scaling(R"("rope_scaling": {"type": "dynamic", "factor": 4})") ==
        RopeScaling{.kind = RopeScalingKind::Dynamic, .factor = 4.0});
  CHECK_FALSE(scaling(R"("rope_scaling": {"rope_type": "default"})").has_value());
  const auto yarn = scaling(
      R"("max_position_embeddings": 8192, "rope_scaling": {"rope_type": "yarn", "factor": null,
         "original_max_position_embeddings": 2048, "attention_factor": 0.9, "beta_fast": 16,
         "beta_slow": null})");
  CHECK(yarn == RopeScaling{.kind = RopeScalingKind::Yarn,
                            .factor = 4.0,
                            .original_max_positions = 2048,
                            .beta_fast = 16.0,
                            .attention_factor = 0.9});
}

TEST_CASE("rope scaling that is not known is refused by name", "[models][hf]") {
  CHECK_THAT(error_of(llama(R"(, "rope_scaling": {"rope_type": "lama3", "factor": 2})")),
             Contains("rope_scaling.rope_type: unknown rope type 'lama3'") &&
                 Contains("did you mean 'llama3'"));
  CHECK_THAT(error_of(llama(R"(, "rope_scaling": {"type": "linear", "factr": 2})")),
             Contains("rope_scaling.factor: required key is missing") && Contains("'factr'"));
  CHECK_THAT(error_of(R"({"hidden_size": 640, "intermediate_size": 2048,
               "model_type": "gemma3_text", "num_hidden_layers": 2,
               "layer_types": ["sliding_attention", "full_attention"],
               "rope_parameters": {"full_attention": {"rope_theta": 2e6},
                 "sliding_attention": {"rope_theta": 2e4, "rope_type": "linear", "factor": 2}}})"),
             Contains("rope_parameters.sliding_attention.rope_type: a scaling of the sliding"));
}

TEST_CASE("what an imported file said is listed as read, ignored or unknown", "[models][hf]") {
  const ImportedModel model = import_hugging_face(
      llama(R"(, "torch_dtype": "bfloat16", "use_cache": true, "bos_token_id": 1,
               "rope_thetta": 5.0, "rope_scaling": {"type": "linear", "factor": 2, "alpha": 3},
               "mlp_bias": true)"),
      "f");
  CHECK(was_read(model, "mlp_bias"));
  CHECK(was_read(model, "rope_scaling.factor"));
  CHECK_THAT(reason_for(model, "torch_dtype"), Contains("describes the files"));
  CHECK_THAT(reason_for(model, "use_cache"), Contains("text generation"));
  CHECK_THAT(reason_for(model, "rope_thetta"),
             Contains("unknown to a llama") && Contains("nearest: rope_theta"));
  CHECK_THAT(reason_for(model, "rope_scaling.alpha"), Contains("unknown"));
  CHECK(mentions(model, "rope_thetta is left out"));
  CHECK_FALSE(mentions(model, "torch_dtype"));
  // Every key of the file is in one of the lists, once.
  CHECK(model.read.size() + model.ignored.size() == 6 + 1 + 4 + 3);
}

TEST_CASE("what changes the function is done or refused by name", "[models][hf]") {
  const std::string gpt2 = R"({"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4,
                               "vocab_size": 256, )";
  CHECK(import_hugging_face(gpt2 + R"("scale_attn_weights": false})", "f").spec.attention_scale ==
        1.0);
  CHECK_THAT(error_of(gpt2 + R"("scale_attn_by_inverse_layer_idx": true})"),
             Contains("scale_attn_by_inverse_layer_idx: true is not supported"));
  CHECK_THAT(error_of(gpt2 + R"("resid_pdrop": 1.5})"), Contains("resid_pdrop: expected a rate"));
  CHECK(import_hugging_face(gpt2 + R"("attn_pdrop": 0.0, "embd_pdrop": 0.3, "resid_pdrop": 0.2})",
                            "f")
            .spec.dropout == 0.3);
  CHECK(import_hugging_face(llama(R"(, "attention_dropout": 0.25)"), "f").spec.dropout == 0.25);
  const std::string mixtral = R"({"model_type": "mixtral", "hidden_size": 64,
      "intermediate_size": 128, "num_attention_heads": 8, "num_hidden_layers": 2,
      "vocab_size": 256, )";
  CHECK_THAT(error_of(mixtral + R"("router_jitter_noise": 0.1})"),
             Contains("router_jitter_noise: 0.1") && Contains("set it to 0"));
  const ImportedModel jointly = import_hugging_face(
      mixtral + R"("output_router_logits": true, "router_aux_loss_coef": 0.02})", "f");
  REQUIRE(jointly.spec.only_predicted.size() == 1);
  CHECK_THAT(jointly.spec.only_predicted.front(), Contains("a balance loss over the whole batch") &&
                                                      Contains("moe.router.aux_loss_coefficient"));
  const ImportedModel silent =
      import_hugging_face(mixtral + R"("router_aux_loss_coef": 0.02})", "f");
  CHECK(silent.spec.moe->router.aux_loss_coefficient == 0.0);
  CHECK_THAT(reason_for(silent, "router_aux_loss_coef"), Contains("without a balance loss"));
}

TEST_CASE("deepseek's low-rank norms keep 1e-6 whatever rms_norm_eps is", "[models][hf]") {
  const ModelSpec spec =
      import_hugging_face(
          R"({"hidden_size": 256, "intermediate_size": 512, "model_type": "deepseek_v3",
              "moe_intermediate_size": 64, "num_attention_heads": 4, "num_hidden_layers": 6,
              "rms_norm_eps": 1e-3, "vocab_size": 256})",
          "f")
          .spec;
  CHECK(spec.norm_epsilon == 1e-3);
  CHECK(spec.mla->norm_epsilon == 1e-6);
}

TEST_CASE("llama's attention_bias covers four projections", "[models][hf]") {
  const ModelSpec spec =
      import_hugging_face(llama(R"(, "attention_bias": true, "mlp_bias": true)"), "f").spec;
  CHECK(spec.qkv_bias);
  CHECK(spec.attention_out_bias);
  CHECK(spec.mlp_bias);
}

TEST_CASE("mistral: a null window is none, an absent one is 4096", "[models][hf]") {
  const std::string sizes =
      R"({"hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
          "intermediate_size": 14336, "max_position_embeddings": 32768,
          "model_type": "mistral", "num_attention_heads": 32, "num_hidden_layers": 32,
          "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_theta": 10000.0,
          "tie_word_embeddings": false, "vocab_size": 32000)";
  import_as_preset(sizes + R"(, "sliding_window": 4096})", "mistral-7b");
  const ImportedModel absent = import_as_preset(sizes + "}", "mistral-7b");
  CHECK(mentions(absent, "sliding_window = 4096 (mistral default)"));
  const ModelSpec none = import_hugging_face(sizes + R"(, "sliding_window": null})", "f").spec;
  CHECK(none.layer_pattern.empty());
  CHECK(none.window == 0);
}

TEST_CASE("qwen2 has a qkv bias without saying so, and no window unless it is used",
          "[models][hf]") {
  const ImportedModel model = import_as_preset(
      R"({"hidden_act": "silu", "hidden_size": 896, "initializer_range": 0.02,
          "intermediate_size": 4864, "max_position_embeddings": 32768,
          "max_window_layers": 24, "model_type": "qwen2", "num_attention_heads": 14,
          "num_hidden_layers": 24, "num_key_value_heads": 2, "rms_norm_eps": 1e-06,
          "rope_theta": 1000000.0, "sliding_window": 32768, "tie_word_embeddings": true,
          "use_mrope": false, "use_sliding_window": false, "vocab_size": 151936})",
      "qwen2.5-0.5b");
  CHECK(mentions(model, "qkv bias = true"));
}

TEST_CASE("qwen2's window starts at max_window_layers", "[models][hf]") {
  const ModelSpec spec = import_hugging_face(
                             R"({"hidden_size": 64, "intermediate_size": 128, "model_type": "qwen2",
              "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 4,
              "max_window_layers": 3, "sliding_window": 512, "use_sliding_window": true,
              "vocab_size": 256})",
                             "f")
                             .spec;
  CHECK(mixer_of_layer(spec, 2) == Mixer::Full);
  CHECK(mixer_of_layer(spec, 3) == Mixer::Sliding);
  CHECK(spec.window == 512);
}

TEST_CASE("qwen3's heads are 128 wide by default and normed", "[models][hf]") {
  const ImportedModel model = import_as_preset(
      R"({"attention_bias": false, "hidden_act": "silu", "hidden_size": 4096,
          "initializer_range": 0.02, "intermediate_size": 12288,
          "max_position_embeddings": 40960, "max_window_layers": 36, "model_type": "qwen3",
          "num_attention_heads": 32, "num_hidden_layers": 36, "num_key_value_heads": 8,
          "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1000000,
          "sliding_window": null, "tie_word_embeddings": false, "use_sliding_window": false,
          "vocab_size": 151936})",
      "qwen3-8b");
  CHECK(mentions(model, "head_dim = 128 (qwen3 default)"));
}

TEST_CASE("qwen3_moe reads the expert width and ignores the unused dense one", "[models][hf]") {
  import_as_preset(
      R"({"attention_bias": false, "decoder_sparse_step": 1, "head_dim": 128,
          "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02,
          "intermediate_size": 6144, "max_position_embeddings": 40960, "mlp_only_layers": [],
          "model_type": "qwen3_moe", "moe_intermediate_size": 768, "norm_topk_prob": true,
          "num_attention_heads": 32, "num_experts": 128, "num_experts_per_tok": 8,
          "num_hidden_layers": 48, "num_key_value_heads": 4, "rms_norm_eps": 1e-06,
          "rope_theta": 1000000.0, "router_aux_loss_coef": 0.001, "sliding_window": null,
          "tie_word_embeddings": false, "use_sliding_window": false, "vocab_size": 151936})",
      "qwen3-30b-a3b");
}

TEST_CASE("qwen3_moe layers are dense by step and by list", "[models][hf]") {
  const ModelSpec spec = import_hugging_face(
                             R"({"decoder_sparse_step": 2, "hidden_size": 64, "head_dim": 16,
              "intermediate_size": 128, "mlp_only_layers": [3], "model_type": "qwen3_moe",
              "moe_intermediate_size": 32, "num_attention_heads": 4, "num_experts": 8,
              "num_hidden_layers": 6, "vocab_size": 256})",
                             "f")
                             .spec;
  // Layers 1, 3 and 5 are sparse by step; the list makes 3 dense.
  CHECK(spec.moe->dense_layers == std::vector<int>{0, 2, 3, 4});
  CHECK(spec.ffn_size == 128);
  CHECK_FALSE(spec.moe->router.normalize_top_k);  // the class's default
}

TEST_CASE("qwen3_next alternates linear attention and gates the rest", "[models][hf]") {
  import_as_preset(
      R"({"attention_bias": false, "decoder_sparse_step": 1, "full_attention_interval": 4,
          "head_dim": 256, "hidden_act": "silu", "hidden_size": 2048,
          "initializer_range": 0.02, "intermediate_size": 5120, "linear_conv_kernel_dim": 4,
          "linear_key_head_dim": 128, "linear_num_key_heads": 16,
          "linear_num_value_heads": 32, "linear_value_head_dim": 128,
          "max_position_embeddings": 262144, "mlp_only_layers": [],
          "model_type": "qwen3_next", "moe_intermediate_size": 512, "norm_topk_prob": true,
          "num_attention_heads": 16, "num_experts": 512, "num_experts_per_tok": 10,
          "num_hidden_layers": 48, "num_key_value_heads": 2, "partial_rotary_factor": 0.25,
          "rms_norm_eps": 1e-06, "rope_theta": 10000000, "router_aux_loss_coef": 0.001,
          "shared_expert_intermediate_size": 512, "tie_word_embeddings": false,
          "vocab_size": 151936})",
      "qwen3-next-80b-a3b");
}

TEST_CASE("mixtral's intermediate_size is the width of an expert", "[models][hf]") {
  import_as_preset(
      R"({"hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
          "intermediate_size": 14336, "max_position_embeddings": 32768,
          "model_type": "mixtral", "num_attention_heads": 32, "num_experts_per_tok": 2,
          "num_hidden_layers": 32, "num_key_value_heads": 8, "num_local_experts": 8,
          "output_router_logits": false, "rms_norm_eps": 1e-05, "rope_theta": 1000000.0,
          "router_aux_loss_coef": 0.02, "sliding_window": null,
          "tie_word_embeddings": false, "vocab_size": 32000})",
      "mixtral-8x7b");
}

TEST_CASE("gpt_oss has biases, sinks and alternating windows", "[models][hf]") {
  import_as_preset(
      R"({"attention_bias": true, "experts_per_token": 4, "head_dim": 64, "hidden_act": "silu",
          "hidden_size": 2880, "initial_context_length": 4096, "initializer_range": 0.02,
          "intermediate_size": 2880,
          "layer_types": ["sliding_attention", "full_attention", "sliding_attention",
            "full_attention", "sliding_attention", "full_attention", "sliding_attention",
            "full_attention", "sliding_attention", "full_attention", "sliding_attention",
            "full_attention", "sliding_attention", "full_attention", "sliding_attention",
            "full_attention", "sliding_attention", "full_attention", "sliding_attention",
            "full_attention", "sliding_attention", "full_attention", "sliding_attention",
            "full_attention"],
          "max_position_embeddings": 131072, "model_type": "gpt_oss",
          "num_attention_heads": 64, "num_experts_per_tok": 4, "num_hidden_layers": 24,
          "num_key_value_heads": 8, "num_local_experts": 32,
          "quantization_config": {"quant_method": "mxfp4"}, "rms_norm_eps": 1e-05,
          "rope_scaling": {"beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0,
            "original_max_position_embeddings": 4096, "rope_type": "yarn", "truncate": false},
          "rope_theta": 150000,
          "router_aux_loss_coef": 0.9, "sliding_window": 128, "swiglu_limit": 7.0,
          "tie_word_embeddings": false, "vocab_size": 201088})",
      "gpt-oss-20b");
}

TEST_CASE("deepseek_v3 ignores head_dim and key/value heads and counts MTP apart", "[models][hf]") {
  const std::string config =
      R"({"attention_bias": false, "ep_size": 1, "first_k_dense_replace": 3, "head_dim": 64,
          "hidden_act": "silu", "hidden_size": 7168, "initializer_range": 0.02,
          "intermediate_size": 18432, "kv_lora_rank": 512,
          "max_position_embeddings": 163840, "model_type": "deepseek_v3",
          "moe_intermediate_size": 2048, "moe_layer_freq": 1, "n_group": 8,
          "n_routed_experts": 256, "n_shared_experts": 1, "norm_topk_prob": true,
          "num_attention_heads": 128, "num_experts_per_tok": 8, "num_hidden_layers": 61,
          "num_key_value_heads": 1, "num_nextn_predict_layers": MTP, "q_lora_rank": 1536,
          "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
          "quantization_config": {"fmt": "e4m3"}, "rms_norm_eps": 1e-06,
          "rope_scaling": {"beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 1.0,
            "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096, "type": "yarn"},
          "rope_theta": 10000,
          "routed_scaling_factor": 2.5, "scoring_func": "sigmoid",
          "tie_word_embeddings": false, "topk_group": 4, "topk_method": "noaux_tc",
          "v_head_dim": 128, "vocab_size": 129280})";
  const auto with_mtp = [&](const std::string& count) {
    std::string text = config;
    return text.replace(text.find("MTP"), 3, count);
  };
  const ImportedModel main = import_as_preset(with_mtp("0"), "deepseek-v3");
  CHECK_THAT(reason_for(main, "head_dim"), Contains("qk_nope_head_dim"));
  CHECK_THAT(reason_for(main, "quantization_config"), Contains("refused by --init-from"));
  const ModelSpec released = import_hugging_face(with_mtp("1"), "f").spec;
  CHECK(released.mtp_layers == 1);
  CHECK(count_parameters(build_graph(released)).total == 671'026'419'200);
}

TEST_CASE("deepseek without query compression", "[models][hf]") {
  const ModelSpec spec =
      import_hugging_face(
          R"({"hidden_size": 256, "intermediate_size": 512, "model_type": "deepseek_v3",
              "moe_intermediate_size": 64, "moe_layer_freq": 2, "num_attention_heads": 4,
              "num_hidden_layers": 6, "q_lora_rank": null, "vocab_size": 256})",
          "f")
          .spec;
  CHECK_FALSE(spec.mla->q_lora_rank.has_value());
  // The first three are dense, then every other one.
  CHECK(spec.moe->dense_layers == std::vector<int>{0, 1, 2, 3, 5});
}

TEST_CASE("gemma2 ties although it does not say so", "[models][hf]") {
  const ImportedModel model = import_as_preset(
      R"({"attention_bias": false, "attn_logit_softcapping": 50.0,
          "cache_implementation": "hybrid", "final_logit_softcapping": 30.0,
          "head_dim": 256, "hidden_act": "gelu_pytorch_tanh",
          "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 2304,
          "initializer_range": 0.02, "intermediate_size": 9216,
          "max_position_embeddings": 8192, "model_type": "gemma2",
          "num_attention_heads": 8, "num_hidden_layers": 26, "num_key_value_heads": 4,
          "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06, "rope_theta": 10000.0,
          "sliding_window": 4096, "vocab_size": 256000})",
      "gemma2-2b");
  CHECK(mentions(model, "tie_word_embeddings = true (gemma2 default)"));
}

TEST_CASE("gemma's scores scale by query_pre_attn_scalar", "[models][hf]") {
  const ModelSpec spec = import_hugging_face(
                             R"({"head_dim": 128, "hidden_size": 4608, "intermediate_size": 36864,
              "model_type": "gemma2", "num_attention_heads": 32, "num_hidden_layers": 46,
              "num_key_value_heads": 16, "query_pre_attn_scalar": 144, "vocab_size": 256000})",
                             "f")
                             .spec;
  REQUIRE(spec.attention_scale.has_value());
  CHECK(*spec.attention_scale == Approx(1.0 / 12));
}

TEST_CASE("gemma3_text reads its pattern and both rope bases", "[models][hf]") {
  import_as_preset(
      R"({"architectures": ["Gemma3ForCausalLM"], "attention_bias": false,
          "attn_logit_softcapping": null, "final_logit_softcapping": null, "head_dim": 256,
          "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 1152,
          "initializer_range": 0.02, "intermediate_size": 6912,
          "max_position_embeddings": 32768, "model_type": "gemma3_text",
          "num_attention_heads": 4, "num_hidden_layers": 26, "num_key_value_heads": 1,
          "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06,
          "rope_local_base_freq": 10000, "rope_theta": 1000000, "sliding_window": 512,
          "sliding_window_pattern": 6, "vocab_size": 262144})",
      "gemma3-1b");
}

TEST_CASE("gemma3 takes text_config and class defaults for all that it leaves out",
          "[models][hf]") {
  const ImportedModel model = import_as_preset(
      R"({"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3",
          "mm_tokens_per_image": 256,
          "text_config": {"hidden_size": 2560, "intermediate_size": 10240,
            "model_type": "gemma3_text", "num_hidden_layers": 34,
            "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024},
          "vision_config": {"hidden_size": 1152, "num_hidden_layers": 27}})",
      "gemma3-4b");
  for (const char* line : {"text_config is read", "num_attention_heads = 8 (gemma3_text default)",
                           "num_key_value_heads = 4", "head_dim = 256", "vocab_size = 262208",
                           "tie_word_embeddings = true"})
    CHECK(mentions(model, line));
}

TEST_CASE("a model that also speaks is read by the part that thinks", "[models][hf]") {
  Json text = {{"hidden_size", 3584},        {"num_hidden_layers", 28},
               {"num_attention_heads", 28},  {"num_key_value_heads", 4},
               {"intermediate_size", 18944}, {"vocab_size", 152064}};
  const Json vision = {{"depth", 32},
                       {"hidden_size", 1280},
                       {"intermediate_size", 3420},
                       {"num_heads", 16},
                       {"out_hidden_size", 3584}};
  text["model_type"] = "qwen2";
  const Json sees = {
      {"model_type", "qwen2_5_vl"}, {"text_config", text}, {"vision_config", vision}};
  text["model_type"] = "qwen2_5_omni_text";
  const Json speaks = {
      {"model_type", "qwen2_5_omni"},
      {"talker_config", {{"hidden_size", 896}}},
      {"thinker_config",
       {{"model_type", "qwen2_5_omni_thinker"}, {"text_config", text}, {"vision_config", vision}}}};
  const ImportedModel whole = load_model(speaks.dump(), "config.json");
  ModelSpec spec = whole.spec, expected = load_model(sees.dump(), "config.json").spec;
  REQUIRE(spec.vision);
  expected.name = spec.name;
  CHECK(spec == expected);
  CHECK(mentions(whole, "thinker_config.text_config is the decoder"));
  text["num_hidden_layers"] = "many";
  const Json wrong = {{"thinker_config", {{"text_config", text}}}};
  CHECK_THROWS_WITH(load_model(wrong.dump(), "config.json"),
                    Contains("thinker_config.text_config.num_hidden_layers"));
}

TEST_CASE("rope of transformers 5 may differ by layer type", "[models][hf]") {
  const ModelSpec spec =
      import_hugging_face(
          R"({"hidden_size": 640, "intermediate_size": 2048, "model_type": "gemma3_text",
              "num_hidden_layers": 2, "layer_types": ["sliding_attention", "full_attention"],
              "rope_parameters": {"full_attention": {"rope_theta": 2000000.0},
                                  "sliding_attention": {"rope_theta": 20000.0}}})",
          "f")
          .spec;
  CHECK(spec.rope_base == 2e6);
  CHECK(spec.local_rope_base == 2e4);
}

TEST_CASE("bert becomes an encoder with a classifier", "[models][hf]") {
  const ImportedModel model = import_as_preset(
      R"({"architectures": ["BertForMaskedLM"], "attention_probs_dropout_prob": 0.1,
          "hidden_act": "gelu", "hidden_size": 768, "initializer_range": 0.02,
          "intermediate_size": 3072, "layer_norm_eps": 1e-12,
          "max_position_embeddings": 512, "model_type": "bert", "num_attention_heads": 12,
          "num_hidden_layers": 12, "pad_token_id": 0, "type_vocab_size": 2,
          "vocab_size": 30522})",
      "bert-base", 0.1);
  CHECK(mentions(model, "num_labels = 2 (bert default)"));
}

TEST_CASE("an unknown model_type is told what it resembles and can be assumed", "[models][hf]") {
  const std::string config =
      R"({"model_type": "foo", "hidden_size": 64, "intermediate_size": 128,
          "num_attention_heads": 8, "num_hidden_layers": 2, "vocab_size": 256})";
  CHECK_THAT(error_of(config), Contains("unknown model_type 'foo'") &&
                                   Contains("2 layers of width 64") && Contains("--assume llama"));
  const ImportedModel model = load_model(config, "config.json", "llama");
  CHECK(model.spec.num_layers == 2);
  CHECK(mentions(model, "model_type 'foo' is read as 'llama'"));
  CHECK_THAT(error_of(config, "lama"), Contains("did you mean 'llama'"));
}

TEST_CASE("a known model_type is not overridden", "[models][hf]") {
  CHECK_THAT(error_of(llama(""), "qwen2"), Contains("do not assume 'qwen2'"));
  CHECK(load_model(llama(""), "f", "llama").spec.hidden_size == 64);
}

TEST_CASE("a wrong type or value names the key", "[models][hf]") {
  CHECK_THAT(error_of(R"({"model_type": "llama", "num_hidden_layers": "2"})"),
             Contains("config.json: num_hidden_layers: expected an integer, got \"2\""));
  CHECK_THAT(error_of(R"({"model_type": "llama", "num_hidden_layers": 0})"),
             Contains("num_hidden_layers: expected an integer of at least 1, got 0"));
  CHECK_THAT(error_of(llama(R"(, "hidden_act": "silo")")),
             Contains("hidden_act") && Contains("did you mean 'silu'"));
  CHECK_THAT(error_of(llama(R"(, "tie_word_embeddings": 1)")),
             Contains("tie_word_embeddings: expected true or false, got 1"));
  CHECK_THAT(error_of(llama(R"(, "num_key_value_heads": 3)")),
             Contains("num_key_value_heads: 3 does not divide num_attention_heads(8)"));
  CHECK_THAT(error_of(llama(R"(, "rope_scaling": 4)")),
             Contains("rope_scaling: expected an object, got 4"));
  CHECK_THAT(error_of(R"({"model_type": 3})"), Contains("model_type: expected a string, got 3"));
  CHECK_THAT(error_of(R"({"model_type": "gemma3", "text_config": {"num_hidden_layers": 1.5}})"),
             Contains("text_config.num_hidden_layers: expected an integer, got 1.5"));
}

TEST_CASE("a missing size is an error that suggests what the file has", "[models][hf]") {
  CHECK_THAT(
      error_of(R"({"model_type": "llama", "num_hidden_layer": 2})"),
      Contains("num_hidden_layers: required key is missing") && Contains("'num_hidden_layer'"));
}

TEST_CASE("heads that do not divide the width need head_dim", "[models][hf]") {
  CHECK_THAT(error_of(R"({"model_type": "llama", "hidden_size": 64, "num_attention_heads": 7,
                          "num_hidden_layers": 2, "vocab_size": 256, "intermediate_size": 8})"),
             Contains("hidden_size(64) must be a multiple of num_attention_heads(7)") &&
                 Contains("nearest: 8"));
}

TEST_CASE("absurd sizes are refused before anything is allocated", "[models][hf]") {
  CHECK_THAT(error_of(R"({"model_type": "llama", "num_hidden_layers": 2000000000})"),
             Contains("num_hidden_layers: expected at most 16384, got 2000000000"));
  CHECK_THAT(error_of(R"({"model_type": "llama", "num_hidden_layers": 20000000000})"),
             Contains("num_hidden_layers: expected an integer from 0 to 2147483647"));
}

TEST_CASE("layer_types must fit the layers", "[models][hf]") {
  CHECK_THAT(error_of(R"({"model_type": "qwen3", "hidden_size": 64, "num_attention_heads": 8,
                          "num_key_value_heads": 8, "num_hidden_layers": 2, "vocab_size": 256,
                          "intermediate_size": 8, "layer_types": ["full_attention"]})"),
             Contains("layer_types: has 1 entries, but num_hidden_layers is 2"));
}

TEST_CASE("load_model takes our own form and refuses what is neither", "[models][hf]") {
  const ModelSpec spec = load_preset("tiny-llama");
  const ImportedModel own = load_model(to_json(spec), "tiny.json");
  CHECK(own.spec == spec);
  CHECK(own.assumptions.empty());
  CHECK_THAT(error_of(R"({"hidden_size": 64})"),
             Contains("schema_version") && Contains("model_type"));
  CHECK_THAT(error_of("[1]"), Contains("expected a JSON object"));
  CHECK_THAT(error_of("{"), Contains("not valid JSON"));
}

}  // namespace meshplan::models
