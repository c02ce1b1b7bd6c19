#include "weights/checkpoint_writer.hpp"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fmt/format.h>
#include <optional>
#include <utility>

#include "core/checkpoint_files.hpp"
#include "core/error.hpp"
#include "core/hash.hpp"
#include "core/index.hpp"
#include "core/paths.hpp"
#include "execute/arena.hpp"
#include "kernels/backend.hpp"
#include "program/compression/compression.hpp"
#include "program/plan/plan.hpp"
#include "program/plan_file/plan_file.hpp"
#include "weights/safetensors.hpp"

namespace meshplan::runtime {
namespace {

namespace fs = std::filesystem;

std::string manifest_name(int rank) {
  return fmt::format("rank-{:05d}.json", rank);
}

/// What a run can continue from that could not save.
std::string what_remains(const std::string& folder) {
  const std::optional<std::int64_t> step = newest_readable_step(folder);
  if (!step)
    return fmt::format("no checkpoint is in {}: there is nothing to continue from", folder);
  return fmt::format("earlier ones in {} are untouched, continue from step {}: {}", folder, *step,
                     resume_command(folder, *step, checkpoint_path(folder, *step)));
}

bool is_dense(const PlacedBox& piece) {
  const std::vector<std::int64_t> dense = dense_strides(piece.box.size);
  for (std::size_t d = 0; d < dense.size(); ++d)
    if (piece.box.size[d] > 1 && piece.strides[d] != dense[d]) return false;
  return true;
}

/// Values that lie in the first bytes in another type become fp32.
void widen(std::vector<float>& values, DType dtype) {
  if (dtype == DType::F32) return;
  const std::vector<float> narrow = values;
  const TensorBox all{{0}, {std::ssize(values)}};
  copy_overlap({.data = reinterpret_cast<const std::byte*>(narrow.data()),
                .dtype = dtype,
                .box = all,
                .strides = {1}},
               {.data = values.data(), .box = all, .strides = {1}});
}

/// The elements of a piece, one after the other. `storage` is used only if they are not so already.
std::span<const float> dense_values(const PlacedBox& piece, const float* first,
                                    std::vector<float>& storage) {
  const auto count = static_cast<std::size_t>(piece.box.elements());
  if (is_dense(piece)) return {first, count};
  storage.resize(count);
  copy_overlap(
      {.data = reinterpret_cast<const std::byte*>(first),
       .dtype = DType::F32,
       .box = piece.box,
       .strides = piece.strides},
      {.data = storage.data(), .box = piece.box, .strides = dense_strides(piece.box.size)});
  return storage;
}

}  // namespace

CheckpointWriter::CheckpointWriter(const program::Program& program, const SaverPlace& place,
                                   Communicator& world, std::string folder, int keep,
                                   std::map<std::string, std::string> companions,
                                   StatusBoard* status,
                                   std::function<void(const std::string&)> warn)
    : program_(program),
      rank_(world.rank()),
      world_size_(world.size()),
      folder_(std::move(folder), world),
      keep_(keep),
      companions_(std::move(companions)),
      status_(status),
      warn_(std::move(warn)) {
  for (StateRegion& state : saved_states(program, place)) {
    SnapshotState snapshot{.state = std::move(state)};
    snapshot.runs = snapshot_runs(program, snapshot.state, place);
    for (const SnapshotRun& run : snapshot.runs)
      for (PlacedBox& piece : saved_boxes(program, place.coordinates, run.range)) {
        snapshot.positions.push_back(run.position + piece.offset - run.range.begin);
        snapshot.pieces.push_back(std::move(piece));
      }
    if (!snapshot.runs.empty())
      snapshot.values.resize(static_cast<std::size_t>(snapshot.runs.back().position +
                                                      snapshot.runs.back().range.size()));
    snapshot_.push_back(std::move(snapshot));
  }
}

CheckpointWriter::~CheckpointWriter() {
  cancelled_ = true;
  if (thread_.joinable()) thread_.join();
}

void CheckpointWriter::save(const RunState& run, kernels::Backend& backend, const Arena& arena) {
  wait();
  if (rank_ == 0)
    if (const std::string change = folder_.retake(); !change.empty() && warn_) warn_(change);
  backend.synchronize();
  for (SnapshotState& snapshot : snapshot_) {
    const std::int64_t element = size_of(snapshot.state.dtype);
    for (const SnapshotRun& saved : snapshot.runs)
      backend.copy_to_host(
          reinterpret_cast<std::byte*>(snapshot.values.data()) + saved.position * element,
          arena.region(snapshot.state.region) + saved.offset * element,
          saved.range.size() * element);
  }
  backend.synchronize();
  for (SnapshotState& snapshot : snapshot_) widen(snapshot.values, snapshot.state.dtype);
  done_ = false;
  thread_ = std::thread([this, run] { work(run); });
}

void CheckpointWriter::work(RunState run) {
  const std::string unfinished = checkpoint_path(folder_.path(), run.step).append(kUnfinished);
  try {
    std::error_code ignored;
    fs::create_directories(unfinished, ignored);
    write_durably(unfinished + "/" + manifest_name(rank_), to_json(write_share(unfinished)));
    if (rank_ == 0 && await_manifests(unfinished)) complete(run, unfinished);
  } catch (const std::exception& error) {
    std::error_code ignored;
    fs::remove(unfinished + "/" + checkpoint_share_name(rank_),
               ignored);  // a full disk needs the room
    failure_ = std::make_exception_ptr(
        IoError(fmt::format("the checkpoint of step {} is not saved: {}; {}", run.step,
                            error.what(), what_remains(folder_.path()))));
  }
  done_ = true;
}

CheckpointManifest CheckpointWriter::write_share(const std::string& folder) const {
  CheckpointManifest manifest;
  std::vector<SafeTensorSpec> specs;
  std::map<std::string, int> times;  // a share may hold several boxes of a parameter
  const auto tensor_of = [&](const SnapshotState& snapshot, const PlacedBox& piece) {
    const program::Parameter& parameter = program_.parameters[at(piece.parameter)];
    const int time = times[snapshot.state.name + parameter.name]++;
    const std::string name = snapshot.state.name + "." + parameter.name;
    if (time == 0)
      manifest.tensors.push_back({.state = snapshot.state.name,
                                  .parameter = parameter.name,
                                  .shape = parameter.global_shape});
    specs.push_back({.name = time == 0 ? name : fmt::format("{}#{}", name, time),
                     .dtype = DType::F32,
                     .shape = piece.box.size});
  };
  for (const SnapshotState& snapshot : snapshot_)
    for (const PlacedBox& piece : snapshot.pieces) tensor_of(snapshot, piece);

  const std::string file = checkpoint_share_name(rank_);
  SafetensorsWriter writer(folder + "/" + file, specs, {{"format", "meshplan"}});
  std::vector<float> storage;
  std::size_t spec = 0;
  auto tensor = manifest.tensors.begin();
  for (const SnapshotState& snapshot : snapshot_)
    for (std::size_t i = 0; i < snapshot.pieces.size(); ++i) {
      const PlacedBox& piece = snapshot.pieces[i];
      const std::span<const float> values =
          dense_values(piece, snapshot.values.data() + snapshot.positions[i], storage);
      writer.append(std::as_bytes(values));
      const bool first = specs[spec].name.find('#') == std::string::npos;
      if (first && spec > 0) ++tensor;
      tensor->pieces.push_back({.file = file,
                                .tensor = specs[spec].name,
                                .begin = piece.box.begin,
                                .size = piece.box.size,
                                .hash = data_hash(std::as_bytes(values))});
      ++spec;
    }
  writer.finish();
  manifest.files.push_back(
      {.name = file, .bytes = writer.file_bytes(), .hash = data_hash(writer.header())});
  return manifest;
}

/// @returns false if the job gives up
bool CheckpointWriter::await_manifests(const std::string& folder) const {
  constexpr std::chrono::milliseconds kLongestPause{50};
  std::chrono::milliseconds pause{1};
  for (int rank = 0; rank < world_size_; ++rank)
    while (!is_there(folder + "/" + manifest_name(rank))) {
      if (cancelled_) return false;
      std::this_thread::sleep_for(pause);
      pause = std::min(2 * pause, kLongestPause);
    }
  return true;
}

void CheckpointWriter::complete(const RunState& run, const std::string& unfinished) {
  CheckpointIndex index{.run = run, .plan_json = program::to_json(program_.plan)};
  index.plan_hash = hex(content_hash(index.plan_json));
  std::map<std::pair<std::string, std::string>, std::size_t> places;
  for (int rank = 0; rank < world_size_; ++rank) {
    const std::string path = unfinished + "/" + manifest_name(rank);
    CheckpointManifest manifest = parse_manifest(read_text(path), path);
    for (CheckpointFile& file : manifest.files) index.manifest.files.push_back(std::move(file));
    for (CheckpointTensor& tensor : manifest.tensors) {
      const auto [place, is_new] =
          places.try_emplace({tensor.state, tensor.parameter}, index.manifest.tensors.size());
      if (is_new) {
        index.manifest.tensors.push_back(std::move(tensor));
        continue;
      }
      auto& pieces = index.manifest.tensors[place->second].pieces;
      std::ranges::move(tensor.pieces, std::back_inserter(pieces));
    }
    fs::remove(path);
  }
  if (!companions_.empty()) {
    const std::string folder = unfinished + "/" + kCompanionFolder;
    fs::create_directories(folder);
    for (const auto& [name, text] : companions_) {
      write_durably(fmt::format("{}/{}", folder, name), text);
      index.companions.push_back({.name = name,
                                  .bytes = std::ssize(text),
                                  .hash = data_hash(std::as_bytes(std::span(text)))});
    }
    sync_folder(folder);
  }
  write_durably(unfinished + "/" + kIndexFile, to_json(index));
  sync_folder(unfinished);
  replace_folder(unfinished, checkpoint_path(folder_.path(), run.step));
  apply_retention();
}

void CheckpointWriter::apply_retention() const {
  if (keep_ == 0) return;
  std::vector<std::int64_t> steps = checkpoint_steps(folder_.path());
  for (std::size_t i = 0; i + static_cast<std::size_t>(keep_) < steps.size(); ++i) {
    // Renamed first: a folder that is half removed must not look complete.
    const std::string path = checkpoint_path(folder_.path(), steps[i]);
    const std::string removed = std::string(path).append(kUnfinished);
    fs::rename(path, removed);
    fs::remove_all(removed);
  }
}

void CheckpointWriter::check() {
  if (done_) wait();
}

void CheckpointWriter::wait() {
  while (!done_) {
    // A slow disk is no hang.
    if (status_ != nullptr) status_->progress();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (thread_.joinable()) thread_.join();
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

}  // namespace meshplan::runtime
