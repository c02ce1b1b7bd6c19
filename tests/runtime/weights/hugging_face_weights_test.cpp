#include "runtime/weights/hugging_face_weights.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "core/json_fields.hpp"
#include "runtime/temporary_folder.hpp"
#include "runtime/weights/checkpoint.hpp"
#include "runtime/weights/marked_model.hpp"
#include "weights/safetensors.hpp"

namespace meshplan::runtime {
namespace {

using Catch::Matchers::Contains;
using test::MarkedModel, test::names, test::Shape, test::small, test::value;

/// Names of a Gemma of one layer, as its modeling file has them.
/// @param more  of the layer
std::vector<std::string> tensors_of_gemma(const std::vector<std::string>& more) {
  const std::string layer = "model.layers.0.";
  std::vector<std::string> all = {"model.embed_tokens.weight",
                                  layer + "input_layernorm.weight",
                                  layer + "mlp.down_proj.weight",
                                  layer + "mlp.gate_proj.weight",
                                  layer + "mlp.up_proj.weight",
                                  layer + "post_attention_layernorm.weight",
                                  layer + "post_feedforward_layernorm.weight",
                                  layer + "pre_feedforward_layernorm.weight",
                                  layer + "self_attn.k_proj.weight",
                                  layer + "self_attn.o_proj.weight",
                                  layer + "self_attn.q_proj.weight",
                                  layer + "self_attn.v_proj.weight",
                                  "model.norm.weight"};
  for (const std::string& name : more) all.push_back(layer + name);
  std::ranges::sort(all);
  return all;
}

}  // namespace

TEST_CASE("a llama's tensors are those of its modeling file", "[runtime][hugging_face]") {
  const test::TemporaryFolder folder;
  models::ModelSpec spec = small("llama");
  spec.num_layers = 1;
  MarkedModel model(spec);
  export_hugging_face(model, spec, {}, {.folder = folder.path() + "/out"});
  const SafetensorsFile file(folder.path() + "/out/model.safetensors");
  const std::string layer = "model.layers.0.";
  CHECK(names(file) == std::vector<std::string>{
                           "lm_head.weight", "model.embed_tokens.weight",
                           layer + "input_layernorm.weight", layer + "mlp.down_proj.weight",
                           layer + "mlp.gate_proj.weight", layer + "mlp.up_proj.weight",
                           layer + "post_attention_layernorm.weight",
                           layer + "self_attn.k_proj.weight", layer + "self_attn.o_proj.weight",
                           layer + "self_attn.q_proj.weight", layer + "self_attn.v_proj.weight",
                           "model.norm.weight"});
  CHECK(file.metadata().at("format") == "pt");
  // Our fused rows: q 0..7, k 8..11, v 12..15; gate 0..11, up 12..23.
  const char* qkv = "layers.0.self_attn.qkv_proj.weight";
  CHECK(file.at(layer + "self_attn.k_proj.weight").shape == Shape{4, 8});
  CHECK(value(file, layer + "self_attn.q_proj.weight", {7, 3}) == model.at(qkv, {7, 3}));
  CHECK(value(file, layer + "self_attn.k_proj.weight", {1, 5}) == model.at(qkv, {9, 5}));
  CHECK(value(file, layer + "self_attn.v_proj.weight", {3, 0}) == model.at(qkv, {15, 0}));
  CHECK(value(file, layer + "mlp.up_proj.weight", {2, 1}) ==
        model.at("layers.0.mlp.gate_up_proj.weight", {14, 1}));
}

// transformers, modeling_gemma2.py: Gemma2RMSNorm multiplies by 1 + weight.
TEST_CASE("a Gemma 2's norms are stored less one", "[runtime][hugging_face]") {
  const test::TemporaryFolder folder;
  models::ModelSpec spec = small("gemma2");
  spec.num_layers = 1;
  spec.layer_pattern = {models::Mixer::Sliding};
  MarkedModel model(spec);
  export_hugging_face(model, spec, {}, {.folder = folder.path() + "/out"});
  const SafetensorsFile file(folder.path() + "/out/model.safetensors");
  const std::string layer = "model.layers.0.";
  CHECK(names(file) == tensors_of_gemma({}));
  CHECK(value(file, "model.norm.weight", {5}) == model.at("head.norm.weight", {5}) - 1);
  CHECK(value(file, layer + "pre_feedforward_layernorm.weight", {2}) ==
        model.at("layers.0.pre_feedforward_layernorm.weight", {2}) - 1);
  CHECK(value(file, layer + "mlp.up_proj.weight", {2, 1}) ==
        model.at("layers.0.mlp.gate_up_proj.weight", {14, 1}));
}

// transformers, modeling_gemma3.py: Gemma3RMSNorm, of heads too, multiplies by 1 + weight.
TEST_CASE("a Gemma 3's norms, of heads too, are stored less one", "[runtime][hugging_face]") {
  const test::TemporaryFolder folder;
  models::ModelSpec spec = small("gemma3_text");
  spec.num_layers = 1;
  spec.layer_pattern = {models::Mixer::Sliding};
  MarkedModel model(spec);
  export_hugging_face(model, spec, {}, {.folder = folder.path() + "/out"});
  const SafetensorsFile file(folder.path() + "/out/model.safetensors");
  const std::string layer = "model.layers.0.";
  CHECK(names(file) == tensors_of_gemma({"self_attn.k_norm.weight", "self_attn.q_norm.weight"}));
  CHECK(file.at(layer + "self_attn.k_norm.weight").shape == Shape{4});
  for (const char* norm : {"self_attn.q_norm.weight", "self_attn.k_norm.weight",
                           "post_attention_layernorm.weight", "input_layernorm.weight"})
    CHECK(value(file, layer + norm, {2}) == model.at(std::string("layers.0.") + norm, {2}) - 1);
  const Json config = Json::parse(read_text(folder.path() + "/out/config.json"));
  CHECK(config["architectures"] == Json{"Gemma3ForCausalLM"});
  CHECK(config["model_type"] == "gemma3_text");
}

TEST_CASE("a BERT's tensors are those of its modeling file", "[runtime][hugging_face]") {
  const test::TemporaryFolder folder;
  models::ModelSpec spec = small("bert");
  spec.num_layers = 1;
  MarkedModel model(spec);
  export_hugging_face(model, spec, {}, {.folder = folder.path() + "/out"});
  const SafetensorsFile file(folder.path() + "/out/model.safetensors");
  const std::string layer = "bert.encoder.layer.0.";
  std::vector<std::string> expected;
  for (const std::string& name :
       {layer + "attention.output.LayerNorm", layer + "attention.output.dense",
        layer + "attention.self.key", layer + "attention.self.query",
        layer + "attention.self.value", layer + "intermediate.dense", layer + "output.LayerNorm",
        layer + "output.dense", std::string("bert.embeddings.LayerNorm"),
        std::string("bert.pooler.dense"), std::string("classifier")})
    for (const char* suffix : {".bias", ".weight"}) expected.push_back(name + suffix);
  for (const char* table : {"position", "token_type", "word"})
    expected.push_back(std::string("bert.embeddings.") + table + "_embeddings.weight");
  std::ranges::sort(expected);
  CHECK(names(file) == expected);
  CHECK(value(file, layer + "attention.self.value.bias", {3}) ==
        model.at("layers.0.self_attn.qkv_proj.bias", {19}));
  CHECK(value(file, layer + "output.LayerNorm.weight", {3}) ==
        model.at("layers.0.post_feedforward_layernorm.weight", {3}));
  CHECK(file.at("classifier.weight").shape == Shape{3, 8});
}

// google-bert/bert-base-uncased has norms by their old names, heads of pretraining, a buffer.
TEST_CASE("a BERT of older names and with the heads of its pretraining is read",
          "[runtime][hugging_face]") {
  CHECK(current_name("bert", "encoder.layer.0.output.LayerNorm.gamma") ==
        "encoder.layer.0.output.LayerNorm.weight");
  CHECK(current_name("bert", "embeddings.LayerNorm.beta") == "embeddings.LayerNorm.bias");
  CHECK(current_name("llama", "a.LayerNorm.beta") == "a.LayerNorm.beta");
  for (const char* name :
       {"cls.predictions.bias", "cls.seq_relationship.weight", "embeddings.position_ids"})
    CHECK(is_ignored(small("bert"), "bert", name));
  CHECK_FALSE(is_ignored(small("bert"), "bert", "classifier.weight"));
}

TEST_CASE("a BERT that was pretrained without a classifier gives the rest",
          "[runtime][hugging_face]") {
  const test::TemporaryFolder folder;
  const models::ModelSpec spec = small("bert");
  MarkedModel model(spec);
  export_hugging_face(model, spec, {}, {.folder = folder.path() + "/whole"});
  const SafetensorsFile whole(folder.path() + "/whole/model.safetensors");
  const std::string out = folder.path() + "/pretrained";
  std::filesystem::create_directory(out);
  std::filesystem::copy(folder.path() + "/whole/config.json", out);
  std::vector<SafeTensorSpec> kept;
  for (const auto& [name, tensor] : whole.tensors())
    if (!name.starts_with("classifier") && !name.starts_with("bert.pooler"))
      kept.push_back({.name = name, .dtype = tensor.dtype(), .shape = tensor.shape});
  SafetensorsWriter writer(out + "/model.safetensors", kept, {});
  for (const SafeTensorSpec& tensor : kept) writer.append(whole.at(tensor.name).data);
  writer.finish();

  HuggingFaceModel back(out);
  CHECK(back.beginning_anew() ==
        std::vector<std::string>{"head.pooler.dense.weight", "head.pooler.dense.bias",
                                 "head.classifier.weight", "head.classifier.bias"});
  CHECK(back.begins_anew("head.classifier.bias"));
  CHECK_FALSE(back.begins_anew("embedding.embed_norm.bias"));
  float value = 0;
  back.read("weights", "embedding.embed_norm.bias",
            {.data = &value, .box = {.begin = {3}, .size = {1}}, .strides = {1}});
  CHECK(value == model.at("embedding.embed_norm.bias", {3}));
}

TEST_CASE("a GPT-2's linear weights are transposed and tied", "[runtime][hugging_face]") {
  const test::TemporaryFolder folder;
  const models::ModelSpec spec = small("gpt2");
  MarkedModel model(spec);
  export_hugging_face(model, spec, {}, {.folder = folder.path() + "/out"});
  const SafetensorsFile file(folder.path() + "/out/model.safetensors");
  const SafeTensor& fused = file.at("transformer.h.1.attn.c_attn.weight");
  CHECK(fused.shape == Shape{8, 24});
  CHECK(value(file, "transformer.h.1.attn.c_attn.weight", {2, 17}) ==
        model.at("layers.1.self_attn.qkv_proj.weight", {17, 2}));
  CHECK(value(file, "transformer.h.1.attn.c_attn.bias", {17}) ==
        model.at("layers.1.self_attn.qkv_proj.bias", {17}));
  CHECK(value(file, "transformer.h.0.mlp.c_fc.weight", {7, 31}) ==
        model.at("layers.0.mlp.up_proj.weight", {31, 7}));
  CHECK(value(file, "transformer.wte.weight", {9, 1}) ==
        model.at("embedding.embed_tokens.weight", {9, 1}));
  CHECK(file.tensors().count("lm_head.weight") == 0);
  CHECK(file.tensors().size() == 2 + 2 * 12 + 2);
}

TEST_CASE("experts are separate tensors", "[runtime][hugging_face]") {
  const test::TemporaryFolder folder;
  const models::ModelSpec spec = small("mixtral");
  MarkedModel model(spec);
  export_hugging_face(model, spec, {}, {.folder = folder.path() + "/out"});
  const SafetensorsFile file(folder.path() + "/out/model.safetensors");
  const std::string moe = "model.layers.1.block_sparse_moe.";
  const char* gate_up = "layers.1.mlp.experts.gate_up_proj.weight";
  CHECK(file.at(moe + "experts.2.w1.weight").shape == Shape{12, 8});
  CHECK(value(file, moe + "experts.2.w1.weight", {3, 4}) == model.at(gate_up, {2, 3, 4}));
  CHECK(value(file, moe + "experts.0.w3.weight", {3, 4}) == model.at(gate_up, {0, 15, 4}));
  CHECK(value(file, moe + "experts.1.w2.weight", {7, 11}) ==
        model.at("layers.1.mlp.experts.down_proj.weight", {1, 7, 11}));
  CHECK(value(file, moe + "gate.weight", {2, 0}) == model.at("layers.1.mlp.gate.weight", {2, 0}));
}

TEST_CASE("gpt-oss stacks its experts, transposed, gate and up in turns",
          "[runtime][hugging_face]") {
  const test::TemporaryFolder folder;
  const models::ModelSpec spec = small("gpt_oss");
  MarkedModel model(spec);
  export_hugging_face(model, spec, {}, {.folder = folder.path() + "/out"});
  const SafetensorsFile file(folder.path() + "/out/model.safetensors");
  const std::string layer = "model.layers.1.";
  const std::string experts = layer + "mlp.experts.";
  CHECK(names(file).size() == 3 + 2 * (2 + 8 + 1 + 2 + 4));
  CHECK(file.at(layer + "self_attn.sinks").shape == Shape{4});
  CHECK(file.at(layer + "mlp.router.bias").shape == Shape{3});
  CHECK(value(file, layer + "mlp.router.weight", {2, 5}) ==
        model.at("layers.1.mlp.gate.weight", {2, 5}));
  // Ours: rows 0..5 of gate, 6..11 of up.
  const char* gate_up = "layers.1.mlp.experts.gate_up_proj.weight";
  const char* gate_up_bias = "layers.1.mlp.experts.gate_up_proj.bias";
  CHECK(file.at(experts + "gate_up_proj").shape == Shape{3, 8, 12});
  CHECK(value(file, experts + "gate_up_proj", {2, 7, 4}) == model.at(gate_up, {2, 2, 7}));
  CHECK(value(file, experts + "gate_up_proj", {1, 3, 11}) == model.at(gate_up, {1, 11, 3}));
  CHECK(value(file, experts + "gate_up_proj_bias", {2, 10}) == model.at(gate_up_bias, {2, 5}));
  CHECK(value(file, experts + "gate_up_proj_bias", {0, 1}) == model.at(gate_up_bias, {0, 6}));
  CHECK(file.at(experts + "down_proj").shape == Shape{3, 6, 8});
  CHECK(value(file, experts + "down_proj", {1, 5, 2}) ==
        model.at("layers.1.mlp.experts.down_proj.weight", {1, 2, 5}));
  CHECK(value(file, experts + "down_proj_bias", {2, 7}) ==
        model.at("layers.1.mlp.experts.down_proj.bias", {2, 7}));
}

TEST_CASE("DeepSeek's rotated rows are pairs in the file and halves with us",
          "[runtime][hugging_face]") {
  const test::TemporaryFolder folder;
  const models::ModelSpec spec = small("deepseek_v3");
  MarkedModel model(spec);
  export_hugging_face(model, spec, {}, {.folder = folder.path() + "/out"});
  const SafetensorsFile file(folder.path() + "/out/model.safetensors");
  const std::string attention = "model.layers.2.self_attn.";
  // A query head has 3 plain rows and 4 rotated ones; head 1 starts at row 7. Of the rotated rows
  // theirs are (0, 1), (2, 3) as pairs; ours are 0, 2 then 1, 3.
  const char* q = "layers.2.self_attn.q_b_proj.weight";
  const std::pair<int, int> rows[] = {{7, 7}, {9, 9}, {10, 10}, {11, 12}, {12, 11}, {13, 13}};
  for (const auto& [theirs, ours] : rows)
    CHECK(value(file, attention + "q_b_proj.weight", {theirs, 1}) == model.at(q, {ours, 1}));
  CHECK(value(file, attention + "kv_a_proj_with_mqa.weight", {6, 0}) ==
        model.at("layers.2.self_attn.kv_a_proj_with_mqa.weight", {7, 0}));
  CHECK(value(file, "model.layers.1.mlp.shared_experts.up_proj.weight", {0, 0}) ==
        model.at("layers.1.mlp.shared_expert.gate_up_proj.weight", {12, 0}));
  CHECK(file.at("model.layers.1.mlp.gate.e_score_correction_bias").shape == Shape{4});
  CHECK(file.tensors().count("model.layers.0.mlp.gate_proj.weight") == 1);
}

TEST_CASE("weights of a quantized model are refused by name", "[runtime][hugging_face]") {
  const test::TemporaryFolder folder;
  const models::ModelSpec spec = small("llama");
  MarkedModel model(spec);
  const std::string out = folder.path() + "/out";
  export_hugging_face(model, spec, {}, {.folder = out});
  Json config = Json::parse(read_text(out + "/config.json"));
  config["quantization_config"] = {{"quant_method", "fp8"}};
  folder.file("out/config.json", config.dump());
  CHECK_THROWS_WITH(HuggingFaceModel(out),
                    Contains("out/config.json: quantization_config: weights quantized by \"fp8\""));
}

TEST_CASE("losses and capacities of a router stand beside published weights",
          "[runtime][hugging_face]") {
  const test::TemporaryFolder folder;
  const models::ModelSpec published = small("mixtral");
  MarkedModel model(published);
  export_hugging_face(model, published, {}, {.folder = folder.path() + "/published"});
  const HuggingFaceModel source(folder.path() + "/published");

  models::ModelSpec trained = published;
  trained.moe->router.aux_loss_coefficient = 0.02;
  trained.moe->capacity_factor = 1.25;
  CHECK_NOTHROW(
      check_same_architecture(source.spec(), "published", trained, TrainingChoices::MayDiffer));
  CHECK_THROWS_WITH(check_same_architecture(source.spec(), "published", trained),
                    Contains("moe.capacity_factor is 0.0, but 1.25 in the plan; "
                             "moe.router.aux_loss_coefficient is 0.0, but 0.02 in the plan") &&
                        !Contains("{"));
  const ExportedModel written = export_hugging_face(model, trained, source.companions(),
                                                    {.folder = folder.path() + "/trained"});
  REQUIRE(written.left_out.size() == 2);
  CHECK_THAT(written.left_out.front(), Contains("moe.capacity_factor = 1.25"));
  trained.moe->top_k = 1;
  CHECK_THROWS_WITH(
      check_same_architecture(source.spec(), "published", trained, TrainingChoices::MayDiffer),
      Contains("moe.top_k is 2, but 1 in the plan"));
}

TEST_CASE("an export of a model without its prediction modules says so",
          "[runtime][hugging_face]") {
  const test::TemporaryFolder folder;
  const models::ModelSpec spec = small("deepseek_v3");
  MarkedModel model(spec);
  export_hugging_face(model, spec, {}, {.folder = folder.path() + "/plain"});
  Json config = Json::parse(read_text(folder.path() + "/plain/config.json"));
  config["num_nextn_predict_layers"] = 1;
  export_hugging_face(model, spec, {{"config.json", config.dump()}},
                      {.folder = folder.path() + "/out"});
  CHECK(HuggingFaceModel(folder.path() + "/out").spec().mtp_layers == 0);
}

TEST_CASE("prediction modules that a folder lacks begin anew", "[runtime][hugging_face]") {
  const test::TemporaryFolder folder;
  const models::ModelSpec spec = small("deepseek_v3");
  MarkedModel model(spec);
  const std::string out = folder.path() + "/out";
  export_hugging_face(model, spec, {}, {.folder = out});
  Json config = Json::parse(read_text(out + "/config.json"));
  config["num_nextn_predict_layers"] = 1;
  std::ofstream(out + "/config.json") << config.dump();
  const HuggingFaceModel back(out);
  CHECK(back.begins_anew("head.mtp.0.eh_proj.weight"));
  CHECK_FALSE(back.begins_anew("head.lm_head.weight"));
  CHECK(back.beginning_anew() == std::vector<std::string>{"prediction module 1"});
}

TEST_CASE("a prediction module of which a tensor is missing is refused",
          "[runtime][hugging_face]") {
  const test::TemporaryFolder folder;
  models::ModelSpec spec = small("deepseek_v3");
  spec.mtp_layers = 1;
  MarkedModel model(spec);
  const std::string out = folder.path() + "/out";
  export_hugging_face(model, spec, {}, {.folder = out});
  CHECK(HuggingFaceModel(out).beginning_anew().empty());
  std::string file = read_text(out + "/model.safetensors");
  file.replace(file.find("model.layers.3.enorm"), 20, "model.layers.3.xnorm");
  std::ofstream(out + "/model.safetensors", std::ios::binary) << file;
  CHECK_THROWS_WITH(HuggingFaceModel(out), Contains("model.layers.3.enorm.weight is missing"));
}

TEST_CASE("folders that are not what they claim are refused by name", "[runtime][hugging_face]") {
  const test::TemporaryFolder folder;
  models::ModelSpec spec = small("llama");
  spec.num_layers = 1;
  MarkedModel model(spec);
  const std::string out = folder.path() + "/out";
  export_hugging_face(model, spec, {}, {.folder = out});
  CHECK_THROWS_WITH(export_hugging_face(model, spec, {}, {.folder = out}),
                    Contains("exists and is not an empty folder"));
  CHECK_THROWS_WITH(
      export_hugging_face(model, spec, {}, {.folder = out + "2", .model_type = "qwen2"}),
      Contains("qkv_bias = false would become true"));
  std::string config = read_text(out + "/config.json");
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = config;
    changed.replace(changed.find(from), from.size(), to);
    folder.file("out/config.json", changed);
    return out;
  };
  CHECK_THROWS_WITH(HuggingFaceModel(with("\"num_hidden_layers\": 1", "\"num_hidden_layers\": 2")),
                    Contains("tensor model.layers.1.input_layernorm.weight is missing") &&
                        Contains("nearest: model.layers.0.input_layernorm.weight"));
  CHECK_THROWS_WITH(HuggingFaceModel(with("\"vocab_size\": 10", "\"vocab_size\": 11")),
                    Contains("model.embed_tokens.weight has shape [10, 8], but [11, 8]"));
  CHECK_THROWS_WITH(
      HuggingFaceModel(with("\"model_type\": \"llama\"", "\"model_type\": \"gemma3_text\"")),
      Contains("tensor model.layers.0.self_attn.q_norm.weight is missing"));
  models::ModelSpec biased = spec;
  biased.qkv_bias = biased.attention_out_bias = true;
  MarkedModel more(biased);
  export_hugging_face(more, biased, {}, {.folder = out + "3"});
  folder.file("out3/config.json", config);  // says attention_bias = false
  CHECK_THROWS_WITH(HuggingFaceModel(out + "3"), Contains("has no place for it"));
  CHECK_THROWS_WITH(HuggingFaceModel(folder.path()), Contains("config.json: no such file"));
  folder.file("config.json", config);
  folder.file("pytorch_model.bin", "");
  CHECK_THROWS_WITH(HuggingFaceModel(folder.path()), Contains("convert them to safetensors"));
}

}  // namespace meshplan::runtime
