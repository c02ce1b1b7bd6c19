// Every family of Hugging Face models: what can be planned can be read and written.
#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fmt/format.h>
#include <functional>
#include <unistd.h>

#include "core/json_fields.hpp"
#include "program/checks/check.hpp"
#include "runtime/temporary_folder.hpp"
#include "runtime/weights/checkpoint.hpp"
#include "runtime/weights/hugging_face_weights.hpp"
#include "runtime/weights/marked_model.hpp"

namespace meshplan::runtime {
namespace {

using Catch::Matchers::Contains;
using test::MarkedModel, test::Shape, test::small;

/// Without what is left out for planning: dropout and prediction modules.
bool can_be_planned(models::ModelSpec spec) {
  spec.dropout = 0;
  spec.mtp_layers = 0;
  return std::ranges::none_of(
      program::check(
          {.model = std::move(spec), .workload = {.seq_len = 1, .global_batch_size = 1}}),
      [](const program::Violation& violation) { return violation.rule == "not-lowered"; });
}

/// Options that change which parameters a family has, or how its files hold them.
const std::vector<std::pair<std::string, const char*>> kVariants = {
    {"bert", R"({"num_labels": 1})"},
    {"deepseek_v3", R"({"q_lora_rank": null})"},
    {"deepseek_v3", R"({"q_lora_rank": null, "rope_interleave": false})"},
    {"deepseek_v3", R"({"rope_interleave": false})"},
    {"deepseek_v3", R"({"attention_bias": true})"},
    {"deepseek_v3", R"({"n_shared_experts": null, "scoring_func": "softmax",
                        "topk_method": "greedy"})"},
    {"deepseek_v3", R"({"first_k_dense_replace": 2, "tie_word_embeddings": true})"},
    {"deepseek_v3", R"({"first_k_dense_replace": 3})"},
    {"glm_moe_dsa", R"({"rope_interleave": false})"},
    {"deepseek_v3", R"({"num_nextn_predict_layers": 1})"},
    {"deepseek_v3", R"({"num_nextn_predict_layers": 2, "tie_word_embeddings": true})"},
    {"gemma2", R"({"attention_bias": true})"},
    {"gemma2", R"({"tie_word_embeddings": false})"},
    {"gemma3_text", R"({"attention_bias": true})"},
    {"gemma3_text", R"({"tie_word_embeddings": false})"},
    {"gemma3_text", R"({"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0})"},
    {"gemma3_text", R"({"layer_types": ["full_attention", "full_attention", "full_attention"]})"},
    {"gpt2", R"({"n_inner": 20})"},
    {"gpt2", R"({"tie_word_embeddings": false})"},
    {"gpt_oss", R"({"attention_bias": false})"},
    {"gpt_oss", R"({"tie_word_embeddings": true})"},
    {"llama", R"({"attention_bias": true})"},
    {"llama", R"({"mlp_bias": true})"},
    {"llama", R"({"tie_word_embeddings": true, "head_dim": 6, "num_key_value_heads": 4})"},
    {"mistral", R"({"sliding_window": null, "tie_word_embeddings": true})"},
    {"mixtral", R"({"sliding_window": 4, "tie_word_embeddings": true})"},
    {"nemotron_h", R"({"use_bias": true, "mlp_bias": true, "attention_bias": true,
                       "use_conv_bias": false})"},
    {"nemotron_h", R"({"tie_word_embeddings": true, "n_shared_experts": 0})"},
    {"qwen2", R"({"tie_word_embeddings": false, "use_sliding_window": true,
                  "max_window_layers": 1, "sliding_window": 4})"},
    {"qwen3", R"({"attention_bias": true, "tie_word_embeddings": true})"},
    {"qwen3_moe", R"({"attention_bias": true, "tie_word_embeddings": true})"},
    {"qwen3_moe", R"({"mlp_only_layers": [], "decoder_sparse_step": 2})"},
    {"qwen3_next", R"({"attention_bias": true, "tie_word_embeddings": true})"},
    {"qwen3_next", R"({"mlp_only_layers": [], "shared_expert_intermediate_size": 0,
                       "full_attention_interval": 2})"}};

}  // namespace

TEST_CASE("every family comes back through its own names, in any dtype and any shards",
          "[runtime][hugging_face]") {
  for (const std::string& family : hugging_face_families())
    for (const DType dtype : {DType::F32, DType::BF16, DType::F16})
      for (const std::int64_t shard : {std::int64_t{1} << 30, std::int64_t{700}}) {
        const test::TemporaryFolder folder;
        const models::ModelSpec spec = small(family);
        MarkedModel model(spec);
        CAPTURE(family, name_of(dtype), shard);
        const std::string out = folder.path() + "/out";
        // What GLM-5 is made of is DeepSeek-V3.2's, too, which comes first.
        const ExportedModel written =
            export_hugging_face(model, spec, {{"tokenizer.json", "{\"version\": 1}"}},
                                {.folder = out,
                                 .model_type = family == "glm_moe_dsa" ? family : "",
                                 .dtype = dtype,
                                 .max_shard_bytes = shard});
        CHECK(written.model_type == family);
        HuggingFaceModel back(out);
        check_same_architecture(back.spec(), out, spec);
        CHECK((back.num_files() > 1) == (shard == 700));
        CHECK(back.num_tensors() == written.tensors);
        CHECK(back.companions().at("tokenizer.json") == "{\"version\": 1}");
        model.check_equals(back);
        CHECK_FALSE(std::filesystem::exists(fmt::format("{}.{}.tmp", out, getpid())));
      }
}

// Independent of the table of names: what can be planned is what the rules of plans say.
TEST_CASE("model types whose weights are read can be planned; weights of others are refused",
          "[runtime][hugging_face]") {
  const std::vector<std::string> types = models::hugging_face_model_types();
  for (const std::string& type : hugging_face_families()) {
    CAPTURE(type);
    CHECK(std::ranges::find(types, type) != types.end());
    CHECK(can_be_planned(small(type)));
  }
  for (const std::string type : {"olmo2", "granite", "smollm3"}) {
    CAPTURE(type);
    REQUIRE(std::ranges::find(types, type) != types.end());
    Json config = test::small_config("llama");
    config["model_type"] = type;
    const test::TemporaryFolder folder;
    folder.file("config.json", config.dump());
    CHECK_THROWS_WITH(HuggingFaceModel(folder.path()),
                      Contains("config.json: weights of model_type '" + type +
                               "' are not read yet; they are read of bert, ") &&
                          Contains("gemma3_text"));
  }
}

// DeepSeek's own code reads moe_layer_freq, and transformers' class does not: such a config may
// only travel along.
TEST_CASE("every how many layers have experts is written where it was read",
          "[runtime][hugging_face]") {
  Json config = test::small_config("deepseek_v3");
  config["first_k_dense_replace"] = 0;
  config["moe_layer_freq"] = 2;
  const models::ModelSpec spec = models::import_hugging_face(config.dump(), "file").spec;
  MarkedModel model(spec);
  const test::TemporaryFolder folder;
  export_hugging_face(model, spec, {{"config.json", config.dump()}},
                      {.folder = folder.path() + "/out"});
  HuggingFaceModel back(folder.path() + "/out");
  model.check_equals(back);
  CHECK_THROWS_WITH(
      export_hugging_face(model, spec, {},
                          {.folder = folder.path() + "/anew", .model_type = "deepseek_v3"}),
      Contains("moe.dense_layers"));
}

TEST_CASE("options of a family change which weights it has, and they come back",
          "[runtime][hugging_face]") {
  for (const auto& [family, options] : kVariants) {
    CAPTURE(family, options);
    Json config = test::small_config(family);
    const Json changed = Json::parse(options);
    for (const auto& [key, value] : changed.items()) config[key] = value;
    const models::ModelSpec spec = models::import_hugging_face(config.dump(), family).spec;
    REQUIRE(can_be_planned(spec));
    MarkedModel model(spec);
    // With the config.json that travelled along, and with one of our own.
    for (const std::map<std::string, std::string>& companions :
         {std::map<std::string, std::string>{{"config.json", config.dump()}}, {}}) {
      const test::TemporaryFolder folder;
      const std::string out = folder.path() + "/out";
      export_hugging_face(model, spec, companions, {.folder = out, .model_type = family});
      HuggingFaceModel back(out);
      check_same_architecture(back.spec(), out, spec);
      CHECK(back.ignored().empty());
      model.check_equals(back);
    }
  }
}

namespace {

/// As a multimodal Gemma 3 is published: the language model's tensors under a prefix, those of a
/// vision tower and a projector beside them, and a config of all.
void make_multimodal(const std::string& text_folder, const std::string& folder,
                     const std::function<std::string(const std::string&)>& name_of,
                     const std::string& beside) {
  std::filesystem::create_directories(folder);
  const SafetensorsFile text(text_folder + "/model.safetensors");
  const std::vector<float> zeros(6, 0.0F);
  std::vector<SafeTensorSpec> specs;
  std::vector<std::vector<std::byte>> contents;
  const auto add = [&](const std::string& name, const Shape& shape,
                       std::span<const std::byte> data) {
    specs.push_back({.name = name, .dtype = DType::F32, .shape = shape});
    contents.emplace_back(data.begin(), data.end());
  };
  for (const auto& [name, tensor] : text.tensors())
    add(name_of(name), tensor.shape, {tensor.data.data(), tensor.data.size()});
  for (const char* name : {"vision_tower.vision_model.embeddings.patch_embedding.weight",
                           "multi_modal_projector.mm_input_projection_weight"})
    add(beside + name, {2, 3}, std::as_bytes(std::span(zeros)));
  SafetensorsWriter writer(folder + "/model.safetensors", specs, {{"format", "pt"}});
  for (const std::vector<std::byte>& content : contents) writer.append(content);
  writer.finish();
  Json config{{"architectures", {"Gemma3ForConditionalGeneration"}},
              {"model_type", "gemma3"},
              {"vision_config", {{"hidden_size", 2}, {"model_type", "siglip_vision_model"}}},
              {"text_config", Json::parse(read_text(text_folder + "/config.json"))}};
  write_durably(folder + "/config.json", config.dump());
}

}  // namespace

// Gemma3ForConditionalGeneration: "language_model.model.layers..." in published files, and since
// transformers 4.52 "model.language_model.layers..." in its state.
TEST_CASE("a multimodal Gemma 3 gives its language model", "[runtime][hugging_face]") {
  const test::TemporaryFolder folder;
  const models::ModelSpec spec = small("gemma3_text");
  MarkedModel model(spec);
  const std::string text = folder.path() + "/text";
  export_hugging_face(model, spec, {}, {.folder = text});
  const auto older = [](const std::string& name) { return "language_model." + name; };
  const auto newer = [](const std::string& name) {
    return "model.language_model." + name.substr(std::string("model.").size());
  };
  make_multimodal(text, folder.path() + "/older", older, "");
  make_multimodal(text, folder.path() + "/newer", newer, "model.");
  for (const std::string layout : {"/older", "/newer"}) {
    CAPTURE(layout);
    HuggingFaceModel multimodal(folder.path() + layout);
    CHECK(multimodal.model_type() == "gemma3_text");
    CHECK(multimodal.ignored().size() == 2);
    check_same_architecture(multimodal.spec(), layout, spec);
    model.check_equals(multimodal);
    // What goes back is the language model, with a config of its own.
    const std::string back = folder.path() + layout + "-back";
    CHECK(export_hugging_face(multimodal, spec, multimodal.companions(), {.folder = back})
              .model_type == "gemma3_text");
    HuggingFaceModel again(back);
    CHECK(again.ignored().empty());
    model.check_equals(again);
  }
}

TEST_CASE("a language model that is quantized inside a multimodal one is refused",
          "[runtime][hugging_face]") {
  const test::TemporaryFolder folder;
  Json text = test::small_config("gemma3_text");
  text["quantization_config"] = {{"quant_method", "gptq"}};
  folder.file("config.json", Json{{"model_type", "gemma3"}, {"text_config", text}}.dump());
  CHECK_THROWS_WITH(HuggingFaceModel(folder.path()),
                    Contains("quantization_config: weights quantized by \"gptq\""));
}

TEST_CASE("weights of a model type that is read as another one come back as of that",
          "[runtime][hugging_face]") {
  const test::TemporaryFolder folder;
  const models::ModelSpec spec = small("llama");
  MarkedModel model(spec);
  const std::string out = folder.path() + "/out";
  export_hugging_face(model, spec, {{"tokenizer.json", "{}"}}, {.folder = out});
  Json config = Json::parse(read_text(out + "/config.json"));
  config["model_type"] = "lama";
  config["architectures"] = {"LamaModel"};
  folder.file("out/config.json", config.dump());
  CHECK_THROWS_WITH(HuggingFaceModel(out),
                    Contains("unknown model_type 'lama'") && Contains("use --assume llama"));
  CHECK_THROWS_WITH(HuggingFaceModel(out, "lama"), Contains("unknown model_type to assume"));
  HuggingFaceModel assumed(out, "llama");
  CHECK(assumed.model_type() == "llama");
  model.check_equals(assumed);
  CHECK(assumed.companions() == std::map<std::string, std::string>{{"tokenizer.json", "{}"}});
  const std::string back = folder.path() + "/back";
  export_hugging_face(assumed, spec, assumed.companions(), {.folder = back});
  HuggingFaceModel again(back);
  CHECK(again.model_type() == "llama");
  model.check_equals(again);
}

}  // namespace meshplan::runtime
