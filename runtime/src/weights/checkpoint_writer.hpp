// Saving: a snapshot in host memory between two steps, files in the background.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "runtime/comm/communicator.hpp"
#include "runtime/guard/status_board.hpp"
#include "runtime/weights/checkpoint.hpp"
#include "weights/checkpoint_layout.hpp"
#include "weights/save_folder.hpp"
#include "weights/state_share.hpp"

namespace meshplan::runtime {

/// Every rank of a job has one. Each writes its share into `folder`/step-N.tmp; rank 0 writes the
/// index once all shares are there, makes everything durable, renames to step-N and removes what
/// retention does not keep. So a checkpoint is complete or not there at all, whenever the job dies,
/// and an earlier one is never touched before that. One folder serves one job at a time.
class CheckpointWriter {
 public:
  /// Collective over `world`: takes the folder, and checks that all ranks see the same one.
  /// @param keep  newest checkpoints to keep; 0 = all
  /// @param companions  files to put beside the parameters, by name; rank 0's count
  /// @param warn  takes a line of rank 0 about what happens to the folder; null = silent
  /// @throws as SaveFolder
  CheckpointWriter(const program::Program& program, const SaverPlace& place, Communicator& world,
                   std::string folder, int keep, std::map<std::string, std::string> companions,
                   StatusBoard* status, std::function<void(const std::string&)> warn = {});
  /// Gives up on what is not complete.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  /// Copies the parameters and starts to write them; waits for an earlier save first. Called by all
  /// ranks after the same step. @throws IoError if the earlier one failed; as SaveFolder::retake
  void save(const RunState& run, kernels::Backend& backend, const Arena& arena);
  /// @throws IoError if the save in the background has failed; returns at once
  void check();
  /// Is nothing being written? Then last_write_s() holds for the last save.
  bool is_idle() const { return done_; }
  /// Seconds from the copy until this rank's part was durable; on rank 0 until all was.
  double last_write_s() const { return write_s_; }
  std::int64_t share_bytes() const { return share_.data_bytes(); }
  /// Returns when this rank's part is durable; on rank 0, when the checkpoint is complete.
  /// @throws IoError
  void wait();

 private:
  void work(RunState run);
  CheckpointManifest write_share(const std::string& folder) const;
  void complete(const RunState& run, const std::string& unfinished);
  bool await_manifests(const std::string& folder) const;
  void apply_retention() const;

  const program::Program& program_;
  int rank_;
  int world_size_;
  SaveFolder folder_;
  int keep_;
  std::map<std::string, std::string> companions_;
  StatusBoard* status_;
  std::function<void(const std::string&)> warn_;
  StateShare share_;
  std::vector<std::byte> snapshot_;  // the data of the share's file
  std::thread thread_;
  std::atomic<bool> cancelled_ = false;
  std::atomic<bool> done_ = true;
  std::exception_ptr failure_;  // written before done_
  double write_s_ = 0;          // written before done_
};

}  // namespace meshplan::runtime
