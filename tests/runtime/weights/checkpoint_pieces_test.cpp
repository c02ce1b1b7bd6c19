// Indexes with right hashes whose pieces do not make up their tensor: no byte of them is damaged.
#include <catch2/catch.hpp>
#include <filesystem>

#include "core/error.hpp"
#include "runtime/temporary_folder.hpp"
#include "runtime/weights/checkpoint.hpp"
#include "weights/safetensors.hpp"

namespace meshplan::runtime {
namespace {

using Catch::Matchers::Contains;
using Numbers = std::vector<std::int64_t>;

/// A checkpoint of one tensor of 4 x 4 that lies in two pieces of 2 x 4.
/// @param begin  of the second one
std::string written(const test::TemporaryFolder& folder, const Numbers& begin) {
  const std::vector<float> values(8, 1.0F);
  const std::string path = folder.path() + "/a.safetensors";
  const std::vector<SafeTensorSpec> specs = {{"x", DType::F32, {2, 4}}, {"y", DType::F32, {2, 4}}};
  SafetensorsWriter writer(path, specs, {});
  for (int i = 0; i < 2; ++i) writer.append(std::as_bytes(std::span(values)));
  writer.finish();
  const std::string hash = data_hash(std::as_bytes(std::span(values)));
  CheckpointIndex index;
  index.plan_json = "{}";
  index.manifest.files = {{.name = "a.safetensors",
                           .bytes = static_cast<std::int64_t>(std::filesystem::file_size(path))}};
  index.manifest.tensors = {{.state = "weights",
                             .parameter = "w",
                             .shape = {4, 4},
                             .pieces = {{"a.safetensors", "x", {0, 0}, {2, 4}, hash},
                                        {"a.safetensors", "y", begin, {2, 4}, hash}}}};
  folder.file(kIndexFile, to_json(index));
  return folder.path();
}

}  // namespace

TEST_CASE("The pieces of a checkpoint cover each tensor once", "[runtime][checkpoint_pieces]") {
  const test::TemporaryFolder folder;
  Checkpoint(written(folder, {2, 0})).verify();
  // 16 elements each time, but not those of 4 x 4.
  CHECK_THROWS_WITH(Checkpoint(written(folder, {1, 0})), Contains("two of its pieces overlap"));
  CHECK_THROWS_WITH(Checkpoint(written(folder, {3, 0})),
                    Contains("the piece at [3, 0] of size [2, 4] lies outside of shape [4, 4]"));
  CHECK_THROWS_WITH(Checkpoint(written(folder, {2, 1})), Contains("lies outside"));
  CHECK_THROWS_WITH(Checkpoint(written(folder, {-2, 0})), Contains("lies outside"));
}

}  // namespace meshplan::runtime
