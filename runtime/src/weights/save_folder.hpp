// The folder that a job saves its checkpoints to.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/comm/communicator.hpp"

namespace meshplan::runtime {

/// End of the names of saves that are not complete.
constexpr std::string_view kUnfinished = ".tmp";

/// Every rank of a job has one. Rank 0 holds a lock in the folder, so that it serves one job at a
/// time, until the job ends, however it ends.
class SaveFolder {
 public:
  /// Collective over `world`: creates the folder, takes it, and removes what an earlier job left
  /// unfinished.
  /// @throws ConfigError if another job writes there, or hosts have different folders; IoError with
  /// what the system says if a rank cannot write there
  SaveFolder(std::string path, Communicator& world);
  ~SaveFolder();
  SaveFolder(const SaveFolder&) = delete;
  SaveFolder& operator=(const SaveFolder&) = delete;

  const std::string& path() const { return path_; }

  /// On rank 0, before a save: takes what has the folder's name now if that is another one.
  /// @returns what happened to the folder; empty if it is still there
  /// @throws as the constructor
  std::string retake();

 private:
  void take();
  void release();

  std::string path_;
  // Rank 0's; -1 on others.
  int lock_ = -1;
  int folder_ = -1;  // open, so that no other folder gets its number
  std::int64_t token_ = 0;
};

/// @throws IoError with what the system says if checkpoints cannot be saved to `folder`, which need
/// not be there yet
void require_savable(const std::string& folder);

}  // namespace meshplan::runtime
