// The folder in a node's shared memory that holds copies of the state of a run.
//
//   /dev/shm/meshplan-state-1000-1f0c93ab5d2e7744-host-b/     user, checkpoint folder, node; 0700
//     step-12/rank-00003.safetensors                          a share, as in a checkpoint
//             rank-00003.json                                 its index, written last
//
// A share without its index does not count. Files outlive the processes that wrote them, but not
// the node.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace meshplan::runtime {

/// @param root  where shared memory is mounted
/// @param checkpoints  the folder of the run's checkpoints, from which its stores are known
/// @param node  its name, as the launcher gives it
std::string store_path(const std::string& root, const std::string& checkpoints,
                       const std::string& node);

/// Creates the folder, or takes what is there. @throws IoError if it cannot be created, or belongs
/// to another user or is open to one
void open_store(const std::string& path);

/// Removes the folder and all that it holds, if it is this user's. @returns whether it was there
bool remove_store(const std::string& path) noexcept;
/// Removes all but the sets of one step.
void remove_other_steps(const std::string& path, std::int64_t step) noexcept;
void remove_step(const std::string& path, std::int64_t step) noexcept;

/// Paths of the share of a rank. The rank is that of the job that wrote it.
std::string stored_share(const std::string& store, std::int64_t step, int rank);
std::string stored_index(const std::string& store, std::int64_t step, int rank);

/// A share whose index is whole and whose file has the bytes that the index says; its data has not
/// been read.
struct StoredShare {
  std::string run;  // RunState::id
  std::int64_t step = 0;
  int rank = 0;
  int ranks = 0;  // of the job that wrote it
  bool operator==(const StoredShare&) const = default;
};

/// @param faults  takes a line for each share that is there, but damaged
std::vector<StoredShare> stored_shares(const std::string& store, std::vector<std::string>& faults);

}  // namespace meshplan::runtime
