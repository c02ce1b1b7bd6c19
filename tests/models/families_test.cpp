// Configurations that others wrote, beside the number of elements of the parameters that their
// class in transformers makes of them (data/published_models.jsonl; counted with the classes of
// transformers of August 2026, whose tensors had shapes and no elements).
#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
#include <set>
#include <string>

#include "core/error.hpp"
#include "core/json_fields.hpp"
#include "core/relaxed_json.hpp"
#include "models/counts.hpp"
#include "models/describe.hpp"
#include "models/hugging_face.hpp"
#include "support/project_folder.hpp"

namespace meshplan::models {
namespace families_test {

using Catch::Matchers::Contains;

struct Published {
  std::string model;
  std::string family;
  double parameters = 0;
  double active = 0;  // 0 = not known
  double vision = 0;
  std::string config;
};

std::vector<Published> published_models() {
  std::ifstream file(test::project_folder() / "tests/models/data/published_models.jsonl");
  REQUIRE(file);
  std::vector<Published> models;
  for (std::string line; std::getline(file, line);) {
    const Json row = Json::parse(line);
    models.push_back({.model = row["model"],
                      .family = row["family"],
                      .parameters = row["parameters"],
                      .active = row["active"].is_null() ? 0.0 : row["active"].get<double>(),
                      .vision = row["vision"],
                      .config = row["config"]});
  }
  return models;
}

/// The sanitizers see here what a file with such values would do.
void check_read_or_refused(const std::string& config) {
  try {
    const ImportedModel model = import_hugging_face(config, "config.json");
    CHECK(count_parameters(build_graph(model.spec)).total > 0);
  } catch (const ConfigError& error) {
    CHECK_THAT(error.what(), Contains("config.json"));
  }
}

TEST_CASE("a published configuration with any number at an extreme is read or refused",
          "[models][hugging_face][families]") {
  for (const Published& published : published_models()) {
    const Json original = Json::parse(with_named_infinities(published.config));
    const Json flat = original.flatten();
    for (const auto& [pointer, value] : flat.items()) {
      if (!value.is_number()) continue;
      for (const std::int64_t extreme : {0, 1 << 16, 1 << 20, 2147483647}) {
        Json config = original;
        config[Json::json_pointer(pointer)] = extreme;
        CAPTURE(published.model, pointer, extreme);
        check_read_or_refused(config.dump());
      }
    }
  }
}

TEST_CASE("parameters of published configurations are those of their classes",
          "[models][hugging_face][families]") {
  const std::vector<Published> models = published_models();
  REQUIRE(models.size() > 90);
  std::set<std::string> families;
  for (const Published& published : models) {
    INFO(published.model);
    const ImportedModel model = import_hugging_face(published.config, "config.json");
    CHECK(model.model_type == published.family);
    families.insert(model.model_type);
    const ParameterCounts counts = count_parameters(build_graph(model.spec));
    CHECK(static_cast<double>(counts.total) == Approx(published.parameters).epsilon(0.005));
    if (published.active > 0)
      CHECK(static_cast<double>(counts.active) == Approx(published.active).epsilon(0.02));
    if (published.vision > 0 && counts.vision > 0)
      CHECK(static_cast<double>(counts.vision) == Approx(published.vision).epsilon(0.06));
  }
  CHECK(families.size() > 80);
}

TEST_CASE("an imported model comes back from its own form", "[models][hugging_face][families]") {
  for (const Published& published : published_models()) {
    INFO(published.model);
    const ModelSpec spec = import_hugging_face(published.config, "config.json").spec;
    CHECK(parse_model_spec(to_json(spec), "model.json") == spec);
  }
}

TEST_CASE("a file of an unknown type is told what its keys say", "[models][hugging_face]") {
  const char* unknown = R"({"model_type": "frobnicate", "num_hidden_layers": 4, "hidden_size": 64,
      "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 1000,
      "max_position_embeddings": 512, "moe_intermediate_size": 32, "num_experts": 16,
      "num_experts_per_tok": 2, "norm_topk_prob": true, "decoder_sparse_step": 1, "frob": 3})";
  CHECK_THROWS_WITH(import_hugging_face(unknown, "config.json"),
                    Contains("unknown model_type 'frobnicate'") && Contains("16 experts of 32") &&
                        Contains("without frob") && Contains("--assume qwen3_moe"));
  const ImportedModel assumed = import_hugging_face(unknown, "config.json", "qwen3_moe");
  CHECK(describe_parts(assumed.spec) ==
        "4 layers of width 64; attention of 4 query and 2 key heads of 16; 16 experts of 32, 2 a "
        "token");
}

TEST_CASE("the class says what an engine's own model_type does not", "[models][hugging_face]") {
  const ImportedModel model = import_hugging_face(
      R"({"model_type": "engine_own", "architectures": ["Qwen2ForCausalLM"],
          "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4,
          "num_key_value_heads": 2, "vocab_size": 1000, "intermediate_size": 128})",
      "config.json");
  CHECK(model.model_type == "qwen2");
  CHECK_THAT(model.assumptions.front(), Contains("as architectures says"));
}

TEST_CASE("a path in a file is not the model's name", "[models][hugging_face]") {
  const auto name_of = [](const std::string& name) {
    return import_hugging_face(
               R"({"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64,
                   "num_attention_heads": 4, "vocab_size": 1000, "intermediate_size": 128,
                   "_name_or_path": ")" +
                   name + "\"}",
               "config.json")
        .spec.name;
  };
  CHECK(name_of("meta-llama/Llama-3.1-8B") == "meta-llama/Llama-3.1-8B");
  for (const char* path : {"/home/someone/out", "./out", "../a", "~/a", "a/b/c", "C:\\\\out"})
    CHECK(name_of(path) == "llama");
}

TEST_CASE("what nothing in a model says is a line that keeps it from running",
          "[models][hugging_face]") {
  const ImportedModel model = import_hugging_face(
      R"({"model_type": "phi3", "num_hidden_layers": 2, "hidden_size": 64,
          "num_attention_heads": 4, "vocab_size": 1000, "intermediate_size": 128,
          "rope_scaling": {"type": "longrope", "short_factor": [1.0], "long_factor": [2.0]}})",
      "config.json");
  REQUIRE(model.spec.only_predicted.size() == 1);
  CHECK_THAT(model.spec.only_predicted.front(), Contains("longrope"));
}

}  // namespace families_test
}  // namespace meshplan::models
