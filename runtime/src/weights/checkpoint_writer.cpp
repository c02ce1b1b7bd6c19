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
      warn_(std::move(warn)),
      share_(program, place),
      snapshot_(static_cast<std::size_t>(share_.data_bytes())) {}

CheckpointWriter::~CheckpointWriter() {
  cancelled_ = true;
  if (thread_.joinable()) thread_.join();
}

void CheckpointWriter::save(const RunState& run, kernels::Backend& backend, const Arena& arena) {
  wait();
  if (rank_ == 0)
    if (const std::string change = folder_.retake(); !change.empty() && warn_) warn_(change);
  share_.copy(backend, arena, snapshot_);
  done_ = false;
  thread_ = std::thread([this, run] { work(run); });
}

void CheckpointWriter::work(RunState run) {
  const auto begin = std::chrono::steady_clock::now();
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
  write_s_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  done_ = true;
}

CheckpointManifest CheckpointWriter::write_share(const std::string& folder) const {
  const std::string path = folder + "/" + checkpoint_share_name(rank_);
  SafetensorsWriter writer(path, share_.specs(), share_.metadata());
  writer.append(snapshot_);
  writer.finish();
  return share_.manifest(rank_, share_.hashes(snapshot_));
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
  std::vector<CheckpointManifest> shares;
  for (int rank = 0; rank < world_size_; ++rank) {
    const std::string path = unfinished + "/" + manifest_name(rank);
    shares.push_back(parse_manifest(read_text(path), path));
    fs::remove(path);
  }
  index.manifest = merged(std::move(shares));
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
