#include "runtime/weights/checkpoint.hpp"

#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/error.hpp"
#include "core/limits.hpp"
#include "program/plan_file/plan_file.hpp"
#include "weights/loadable_values.hpp"
#include "weights/safetensors.hpp"

namespace meshplan::runtime {
namespace {

namespace fs = std::filesystem;

/// Names come from a file: they must not lead out of the folder.
void check_name(const std::string& folder, const std::string& name) {
  const fs::path path(name);
  const bool plain = !name.empty() && path == path.filename() && name != "." && name != "..";
  if (!plain)
    throw ConfigError(
        fmt::format("{}/{}: '{}' is not the name of a file in it", folder, kIndexFile, name));
}

/// @param what  of the file `data` is
void check_hash(const CheckpointFile& file, const std::string& path, std::string_view what,
                std::span<const std::byte> data) {
  if (!file.hash) return;
  if (const std::string actual = data_hash(data); actual != *file.hash)
    throw ConfigError(fmt::format("{}: {} hashes to {}, but was written with {}: it is damaged",
                                  path, what, actual, *file.hash));
}

std::string label(const CheckpointTensor& tensor) {
  return tensor.state + " of " + tensor.parameter;
}

}  // namespace

Checkpoint::Checkpoint(const std::string& folder)
    : folder_(folder),
      index_(parse_index(read_text(folder + "/" + kIndexFile), folder + "/" + kIndexFile)) {
  open_files();
  check_tensors();
  for (const CheckpointTensor& tensor : index_.manifest.tensors)
    tensors_[{tensor.state, tensor.parameter}] = &tensor;
}

Checkpoint::~Checkpoint() = default;

void Checkpoint::open_files() {
  for (const CheckpointFile& file : index_.manifest.files) {
    check_name(folder_, file.name);
    const std::string path = folder_ + "/" + file.name;
    std::error_code error;
    const auto size = static_cast<std::int64_t>(fs::file_size(path, error));
    if (error) throw ConfigError(fmt::format("{}: is missing, but the index names it", path));
    if (size != file.bytes)
      throw ConfigError(
          fmt::format("{}: has {} bytes, but was written with {}: it is truncated "
                      "or damaged",
                      path, size, file.bytes));
    auto opened = std::make_unique<SafetensorsFile>(path);
    check_hash(file, path, "its header", opened->header());
    files_[file.name] = std::move(opened);
  }
  for (const CheckpointFile& file : index_.companions) check_name(folder_, file.name);
}

void Checkpoint::check_tensors() const {
  for (const CheckpointTensor& tensor : index_.manifest.tensors) {
    const auto fail = [&](const std::string& what) {
      throw ConfigError(fmt::format("{}/{}: {}: {}", folder_, kIndexFile, label(tensor), what));
    };
    double bytes = sizeof(float);  // before anything multiplies these sizes as integers
    for (const std::int64_t size : tensor.shape) bytes *= std::max(1.0, static_cast<double>(size));
    if (bytes > limits::kBytes || std::ranges::any_of(tensor.shape, [](auto n) { return n < 0; }))
      fail(fmt::format("no tensor has the shape {}", tensor.shape));
    std::int64_t covered = 0;
    for (std::size_t i = 0; i < tensor.pieces.size(); ++i) {
      const CheckpointPiece& piece = tensor.pieces[i];
      const auto file = files_.find(piece.file);
      if (file == files_.end()) fail(fmt::format("its file '{}' is not listed", piece.file));
      const SafeTensor& data = file->second->at(piece.tensor);
      if (data.dtype_name != "F32" || data.shape != piece.size)
        fail(fmt::format("{} in {} is {} of shape {}, not F32 of shape {}", piece.tensor,
                         piece.file, data.dtype_name, data.shape, piece.size));
      if (piece.begin.size() != tensor.shape.size() || piece.size.size() != tensor.shape.size())
        fail("a piece has another number of dimensions");
      for (std::size_t d = 0; d < tensor.shape.size(); ++d)
        if (piece.begin[d] < 0 || piece.size[d] < 1 ||
            piece.size[d] > tensor.shape[d] - piece.begin[d])
          fail(fmt::format("the piece at {} of size {} lies outside of shape {}", piece.begin,
                           piece.size, tensor.shape));
      const TensorBox box{piece.begin, piece.size};
      for (std::size_t j = 0; j < i; ++j)
        if (intersection(box, {tensor.pieces[j].begin, tensor.pieces[j].size}))
          fail("two of its pieces overlap");
      covered += box.elements();
    }
    const std::int64_t all = whole_box(tensor.shape).elements();
    if (covered != all) fail(fmt::format("{} of {} elements are there", covered, all));
  }
}

program::Plan Checkpoint::plan() const {
  return program::parse_plan(index_.plan_json, folder_ + "/" + kIndexFile + ": plan");
}

std::string Checkpoint::companion(const CheckpointFile& file) const {
  const std::string path = folder_ + "/" + kCompanionFolder + "/" + file.name;
  std::string text = read_text(path);
  if (std::ssize(text) != file.bytes)
    throw ConfigError(fmt::format("{}: has {} bytes, but was written with {}: it is damaged", path,
                                  text.size(), file.bytes));
  check_hash(file, path, "it", std::as_bytes(std::span(text)));
  return text;
}

std::map<std::string, std::string> Checkpoint::companions() const {
  std::map<std::string, std::string> texts;
  for (const CheckpointFile& file : index_.companions) texts[file.name] = companion(file);
  return texts;
}

const SafeTensor& Checkpoint::data_of(const CheckpointPiece& piece) {
  const SafeTensor& data = files_.at(piece.file)->at(piece.tensor);
  if (!verified_.emplace(piece.file, piece.tensor).second) return data;
  const std::string actual = data_hash(data.data);
  if (actual != piece.hash)
    throw ConfigError(fmt::format("{}/{}: {} hashes to {}, but was written with {}: it is damaged",
                                  folder_, piece.file, piece.tensor, actual, piece.hash));
  return data;
}

void Checkpoint::read(const std::string& state, const std::string& parameter,
                      const TensorTarget& target) {
  const auto found = tensors_.find({state, parameter});
  if (found == tensors_.end())
    throw ConfigError(fmt::format("{}: holds no {} of {}", folder_, state, parameter));
  std::int64_t copied = 0;
  for (const CheckpointPiece& piece : found->second->pieces) {
    const TensorBox box{piece.begin, piece.size};
    if (!intersection(box, target.box)) continue;
    copied += copy_overlap({.data = data_of(piece).data.data(),
                            .dtype = DType::F32,
                            .box = box,
                            .strides = dense_strides(piece.size)},
                           target);
  }
  require_invariant(copied == target.box.elements(),
                    "the pieces of a checkpoint cover its tensors");
}

std::string Checkpoint::not_finite(const std::string& state, const std::string& parameter,
                                   DType dtype) {
  for (const CheckpointPiece& piece : tensors_.at({state, parameter})->pieces)
    if (const auto found =
            describe_not_finite(folder_ + "/" + piece.file, piece.tensor, data_of(piece), dtype))
      return *found;
  return "";
}

void Checkpoint::verify() {
  for (const CheckpointTensor& tensor : index_.manifest.tensors)
    for (const CheckpointPiece& piece : tensor.pieces) data_of(piece);
  for (const CheckpointFile& file : index_.companions) companion(file);
}

}  // namespace meshplan::runtime
