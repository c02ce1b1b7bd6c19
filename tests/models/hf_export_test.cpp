#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "core/json_fields.hpp"
#include "models/hugging_face.hpp"
#include "models/spec_difference.hpp"

namespace meshplan::models {
namespace {

using Catch::Contains;

ModelSpec back_from(const ModelSpec& spec, const std::string& model_type) {
  ModelSpec back = import_hugging_face(export_hugging_face(spec, model_type), "config.json").spec;
  back.name = spec.name;
  return back;
}

std::string export_error(const ModelSpec& spec, const std::string& model_type) {
  try {
    export_hugging_face(spec, model_type);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

std::vector<std::string> fields_of(const std::vector<FieldDifference>& differences) {
  std::vector<std::string> fields;
  for (const FieldDifference& difference : differences) fields.push_back(difference.field);
  return fields;
}

}  // namespace

TEST_CASE("every kind of rope scaling survives export and import", "[models][hf][export]") {
  const std::vector<RopeScaling> scalings = {{.kind = RopeScalingKind::Linear, .factor = 4.0},
                                             {.kind = RopeScalingKind::Dynamic, .factor = 2.0},
                                             {.kind = RopeScalingKind::Llama3,
                                              .factor = 8.0,
                                              .original_max_positions = 64,
                                              .low_frequency_factor = 2.0,
                                              .high_frequency_factor = 5.0},
                                             {.kind = RopeScalingKind::Yarn,
                                              .factor = 4.0,
                                              .original_max_positions = 64,
                                              .beta_fast = 16.0,
                                              .beta_slow = 2.0,
                                              .truncate = false,
                                              .attention_factor = 1.5,
                                              .mscale = 0.5,
                                              .mscale_all_dim = 0.7}};
  for (const RopeScaling& scaling : scalings) {
    ModelSpec spec = load_preset("tiny-llama");
    spec.rope_scaling = scaling;
    CHECK(fields_of(differences(back_from(spec, "llama"), spec)).empty());
  }
  const ModelSpec deepseek = load_preset("deepseek-v3");
  CHECK(fields_of(differences(back_from(deepseek, "deepseek_v3"), deepseek)).empty());
}

TEST_CASE("gpt2's unscaled scores and dropout survive export and import", "[models][hf][export]") {
  ModelSpec spec = load_preset("gpt2-124m");
  spec.attention_scale = 1.0;
  spec.dropout = 0.1;
  CHECK(back_from(spec, "gpt2") == spec);
  spec.dropout = 0.0;
  CHECK(back_from(spec, "gpt2") == spec);
}

TEST_CASE("windows of every size survive export and import", "[models][hf][export]") {
  for (const auto& [preset, type] :
       {std::pair{"mistral-7b", "mistral"}, {"gemma2-2b", "gemma2"}, {"gpt-oss-20b", "gpt_oss"}}) {
    INFO(type);
    ModelSpec spec = load_preset(preset);
    spec.window = 77;
    CHECK(fields_of(differences(back_from(spec, type), spec)).size() ==
          (spec.moe ? 1 : 0));  // the balance loss
  }
}

TEST_CASE("router losses and capacities do not keep a model from being exported",
          "[models][hf][export]") {
  ModelSpec spec = load_preset("mixtral-8x7b");
  spec.moe->capacity_factor = 1.25;
  spec.moe->router.aux_loss_coefficient = 0.01;
  spec.moe->router.z_loss_coefficient = 0.001;
  CHECK(matching_model_type(spec) == "mixtral");
  CHECK(fields_of(differences(spec, back_from(spec, "mixtral"))) ==
        std::vector<std::string>{"moe.capacity_factor", "moe.router.aux_loss_coefficient",
                                 "moe.router.z_loss_coefficient"});
}

TEST_CASE("an exported config says nothing that its own import does not know",
          "[models][hf][export]") {
  for (const auto& [preset, type] : {std::pair{"gpt2-124m", "gpt2"},
                                     {"llama3.2-1b", "llama"},
                                     {"mistral-7b", "mistral"},
                                     {"qwen2.5-7b", "qwen2"},
                                     {"qwen3-8b", "qwen3"},
                                     {"mixtral-8x7b", "mixtral"},
                                     {"qwen3-30b-a3b", "qwen3_moe"},
                                     {"gpt-oss-20b", "gpt_oss"},
                                     {"gemma2-2b", "gemma2"},
                                     {"gemma3-1b", "gemma3_text"},
                                     {"gemma3-4b", "gemma3_text"},
                                     {"deepseek-v3", "deepseek_v3"}}) {
    INFO(type);
    const std::string text = export_hugging_face(load_preset(preset), type);
    for (const std::string& line : import_hugging_face(text, "config.json").assumptions)
      CHECK_THAT(line, !Contains("is left out"));
  }
}

TEST_CASE("a difference names the field and both values", "[models][hf][export]") {
  ModelSpec spec = load_preset("mixtral-8x7b");
  spec.moe->router.score = RouterScore::Sigmoid;
  const std::string message = export_error(spec, "mixtral");
  CHECK_THAT(message, Contains("moe.router.score = \"sigmoid\" would become \"softmax\""));
  CHECK_THAT(message, !Contains("{"));

  ModelSpec other = load_preset("mixtral-8x7b");
  other.moe.reset();
  other.ffn_size = 8;
  other.layer_pattern = {Mixer::Full, Mixer::Sliding};
  const std::vector<FieldDifference> found = differences(load_preset("mixtral-8x7b"), other);
  REQUIRE(fields_of(found) == std::vector<std::string>{"ffn_size", "layer_pattern[0]", "moe"});
  CHECK(found[0].left == "0");
  CHECK(found[0].right == "8");
  CHECK(found[1].left == "0 entries");
  CHECK(found[1].right == "\"full\"");
  CHECK(found[2].left == "given");
  CHECK(found[2].right == "absent");
}

}  // namespace meshplan::models
