#include <catch2/catch.hpp>

#include "core/error.hpp"
#include "models/hugging_face.hpp"
#include "runtime/temporary_folder.hpp"
#include "runtime/weights/hugging_face_weights.hpp"
#include "weights/safetensors.hpp"

namespace meshplan::runtime {

TEST_CASE("A tensor that lies in two files of a model is refused", "[runtime][hugging_face]") {
  const test::TemporaryFolder folder;
  folder.file("config.json",
              models::export_hugging_face(models::load_preset("tiny-llama"), "llama"));
  folder.file("model.safetensors.index.json",
              R"({"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}})");
  const std::vector<SafeTensorSpec> specs = {{"model.norm.weight", DType::F32, {1}}};
  for (const float value : {1.0F, 2.0F}) {
    const std::string name = value == 1 ? "/1.safetensors" : "/2.safetensors";
    SafetensorsWriter writer(folder.path() + name, specs, {});
    writer.append(std::as_bytes(std::span(&value, 1)));
    writer.finish();
  }
  CHECK_THROWS_WITH(HuggingFaceModel(folder.path()),
                    Catch::Contains("2.safetensors: model.norm.weight is in another file, too"));
}

}  // namespace meshplan::runtime
