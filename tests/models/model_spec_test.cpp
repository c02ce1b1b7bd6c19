#include "models/model_spec.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "core/json_fields.hpp"
#include "models/refusal.hpp"
#include "models/spec_difference.hpp"

namespace meshplan::models {
namespace {

using Catch::Contains;

ModelSpec tiny() {
  return load_preset("tiny-llama");
}

/// tiny-llama's file with one piece of text replaced.
std::string edited(const std::string& from, const std::string& to) {
  std::string text = to_json(tiny());
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

std::string parse_error(const std::string& text) {
  try {
    parse_model_spec(text, "model.json");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("every preset survives writing and reading", "[models][spec]") {
  REQUIRE(preset_names().size() >= 29);
  for (const std::string& name : preset_names()) {
    INFO(name);
    const ModelSpec spec = load_preset(name);
    CHECK(spec.name == name);
    std::vector<std::string> assumed;
    CHECK(parse_model_spec(to_json(spec), name, &assumed) == spec);
    CHECK(assumed.empty());
  }
}

TEST_CASE("preset names are sorted and an unknown one suggests its neighbour", "[models][spec]") {
  const auto names = preset_names();
  CHECK(std::is_sorted(names.begin(), names.end()));
  CHECK_THROWS_WITH(load_preset("llama3-8"), Contains("llama3-8b"));
}

TEST_CASE("optional keys that are absent are listed with their defaults", "[models][spec]") {
  std::vector<std::string> assumed;
  parse_model_spec(R"({"schema_version": 1, "name": "m", "num_layers": 1, "hidden_size": 8,
    "ffn_size": 16, "num_heads": 2, "num_kv_heads": 1, "head_size": 4, "vocab_size": 32,
    "max_positions": 64})",
                   "model.json", &assumed);
  CHECK(std::find(assumed.begin(), assumed.end(), "rope_base = 10000.0") != assumed.end());
  CHECK(std::find(assumed.begin(), assumed.end(), "norm = \"rms_norm\"") != assumed.end());
}

TEST_CASE("a misspelled key names the nearest known one", "[models][spec]") {
  const std::string message = parse_error(edited("\"num_heads\"", "\"num_head\""));
  CHECK_THAT(message, Contains("num_head: unknown key") && Contains("'num_heads'"));
}

TEST_CASE("a wrong type names key, value and expectation", "[models][spec]") {
  CHECK_THAT(parse_error(edited("\"num_layers\": 8", "\"num_layers\": \"8\"")),
             Contains("num_layers: expected an integer, got \"8\""));
  CHECK_THAT(parse_error(edited("\"rms_norm\"", "\"rmsnorm\"")), Contains("rms_norm"));
  CHECK_THAT(parse_error(edited("\"schema_version\": 1", "\"schema_version\": 2")),
             Contains("schema_version"));
}

TEST_CASE("a number out of its bounds is refused in files and in code", "[models][spec]") {
  CHECK_THAT(parse_error(edited("\"num_layers\": 8", "\"num_layers\": 0")),
             Contains("num_layers: expected a number of at least 1, got 0"));
  ModelSpec spec = tiny();
  spec.hidden_size = 0;
  CHECK_THAT(refusal(spec), Contains("model.json: hidden_size: expected a number of at least 1"));
}

TEST_CASE("heads must be a multiple of key/value heads", "[models][spec]") {
  ModelSpec spec = tiny();
  spec.num_kv_heads = 3;
  CHECK_THAT(refusal(spec), Contains("num_heads(8) must be a multiple of num_kv_heads(3)") &&
                                Contains("nearest: num_kv_heads = 2"));
}

TEST_CASE("rope rotates an even part of a head", "[models][spec]") {
  ModelSpec spec = tiny();
  spec.rope_size = 7;
  CHECK_THAT(refusal(spec), Contains("7 elements") && Contains("nearest: 6"));
  spec.rope_size = 64;
  CHECK_THAT(refusal(spec), Contains("rope_size(64) is larger than head_size(32)"));
}

TEST_CASE("sliding layers and window come together", "[models][spec]") {
  ModelSpec spec = tiny();
  spec.window = 128;
  CHECK_THAT(refusal(spec), Contains("window is 128") && Contains("no sliding layer"));
  spec.layer_pattern = {Mixer::Sliding, Mixer::Full};
  CHECK(refusal(spec).empty());
  spec.window = 0;
  CHECK_THAT(refusal(spec), Contains("window must be at least 1"));
}

TEST_CASE("linear layers and their sizes come together", "[models][spec]") {
  ModelSpec spec = tiny();
  spec.layer_pattern = {Mixer::Linear, Mixer::Full};
  CHECK_THAT(refusal(spec), Contains("linear_attention is missing"));
  spec.linear_attention = LinearAttentionSpec{
      .num_key_heads = 3, .num_value_heads = 8, .key_head_size = 16, .value_head_size = 16};
  CHECK_THAT(refusal(spec), Contains("num_value_heads(8)") && Contains("num_key_heads = 2"));
}

TEST_CASE("the router's numbers must fit the experts", "[models][spec]") {
  ModelSpec spec = load_preset("tiny-moe");
  spec.moe->top_k = 9;
  CHECK_THAT(refusal(spec), Contains("top_k(9) exceeds the 8 experts"));
  spec.moe->top_k = 2;
  spec.moe->router.num_groups = 3;
  CHECK_THAT(refusal(spec), Contains("num_experts(8) must be a multiple of router.num_groups(3)"));
  spec.moe->router.num_groups = 4;
  spec.moe->router.top_groups = 5;
  CHECK_THAT(refusal(spec), Contains("top_groups(5) exceeds num_groups(4)"));
}

TEST_CASE("dense layers need a width and must exist", "[models][spec]") {
  ModelSpec spec = load_preset("tiny-moe");
  spec.moe->dense_layers = {0};
  CHECK_THAT(refusal(spec), Contains("ffn_size is 0, but 1 of 4 layers"));
  spec.ffn_size = 704;
  spec.moe->dense_layers = {4};
  CHECK_THAT(refusal(spec), Contains("moe.dense_layers: 4"));
  spec.moe->dense_layers = {1, 1};
  CHECK_THAT(refusal(spec), Contains("moe.dense_layers: 1"));
  spec.moe->dense_layers = {0, 1, 2, 3};
  CHECK_THAT(refusal(spec), Contains("lists all 4 layers"));
}

TEST_CASE("latent attention fixes head size and key/value heads", "[models][spec]") {
  ModelSpec spec = load_preset("deepseek-v3");
  spec.head_size = 64;
  CHECK_THAT(refusal(spec), Contains("head_size(64)") && Contains("= 192"));
  spec.head_size = 192;
  spec.num_kv_heads = 1;
  CHECK_THAT(refusal(spec), Contains("num_kv_heads(1) must be num_heads(128)"));
}

TEST_CASE("an encoder ends in a classifier and a decoder does not", "[models][spec]") {
  ModelSpec spec = tiny();
  spec.causal = false;
  CHECK_THAT(refusal(spec), Contains("num_classes must be at least 1"));
  spec.num_classes = 2;
  CHECK(refusal(spec).empty());
  spec.tied_embeddings = true;
  CHECK_THAT(refusal(spec), Contains("tied_embeddings"));
}

TEST_CASE("sizes that no model has are refused with the largest", "[models][spec]") {
  const std::pair<const char*, const char*> cases[] = {
      {"num_layers", "16385"},      {"hidden_size", "1048577"}, {"vocab_size", "16777217"},
      {"ffn_size", "2147483647"},   {"norm_epsilon", "1e30"},   {"rope_base", "1e30"},
      {"embedding_scale", "1e300"}, {"mtp_layers", "65"}};
  for (const auto& [key, value] : cases) {
    INFO(key);
    Json file = Json::parse(to_json(tiny()));
    file[key] = Json::parse(value);
    CHECK_THAT(parse_error(file.dump()),
               Contains(std::string("model.json: ") + key + ": expected a number of at most"));
  }
}

TEST_CASE("products of sizes are bounded, too", "[models][spec]") {
  ModelSpec spec = tiny();
  spec.num_heads = spec.num_kv_heads = 1 << 20;
  spec.head_size = 2;
  CHECK_THAT(refusal(spec), Contains("num_heads * head_size = 1048576 * 2 = 2097152") &&
                                Contains("at most 1048576"));
  spec = tiny();
  spec.hidden_size = spec.ffn_size = 1 << 20;
  spec.num_layers = 1 << 14;
  CHECK_THAT(refusal(spec), Contains("parameters; at most 1e+15 are supported"));
}

TEST_CASE("the schema lists every key and allows no other", "[models][spec]") {
  const std::string schema = model_json_schema();
  CHECK_THAT(schema, Contains("https://json-schema.org/draft/2020-12/schema"));
  CHECK_THAT(schema, Contains("\"additionalProperties\": false"));
  for (const char* key : {"num_kv_heads", "rope_base", "dense_layers", "kv_lora_rank"})
    CHECK_THAT(schema, Contains(std::string("\"") + key + "\""));
}

TEST_CASE("the layer pattern repeats over the layers", "[models][spec]") {
  const ModelSpec gemma = load_preset("gemma3-1b");  // 26 layers, five sliding then one full
  int full = 0;
  for (int i = 0; i < gemma.num_layers; ++i)
    full += mixer_of_layer(gemma, i) == Mixer::Full ? 1 : 0;
  CHECK(full == 4);  // layers 5, 11, 17, 23
  const ModelSpec deepseek = load_preset("deepseek-v3");
  CHECK_FALSE(is_moe_layer(deepseek, 2));
  CHECK(is_moe_layer(deepseek, 3));
}

TEST_CASE("Adapters are a part of a model's file where it has some", "[models]") {
  ModelSpec plain = load_preset("tiny-llama"), adapted = plain;
  CHECK(to_json(plain).find("adapters") == std::string::npos);  // files of before keep their hash
  adapted.adapters = AdapterSpec{.rank = 4, .alpha = 8, .modules = {"qkv_proj"}};
  CHECK(parse_model_spec(to_json(adapted), "model.json") == adapted);
  const std::vector<FieldDifference> found = differences(plain, adapted);
  REQUIRE(found.size() == 1);
  CHECK(found.front().field == "adapters");
  CHECK(found.front().left == "absent");
  CHECK(found.front().right == "given");
  CHECK(differences(adapted, plain).size() == 1);
  CHECK(differences(adapted, adapted).empty());
}

}  // namespace meshplan::models
