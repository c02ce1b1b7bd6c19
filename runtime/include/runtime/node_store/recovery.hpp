// The newest state in the memory of the nodes that are left (docs/checkpoints.md).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/comm/communicator.hpp"
#include "runtime/node_store/node_store_options.hpp"
#include "runtime/weights/checkpoint.hpp"

namespace meshplan::runtime {

/// The state of all ranks of an earlier job at one step, read from the stores of this job's nodes.
class RecoveredState : public ParameterSource {
 public:
  /// Run, plan and parameters, as in a checkpoint on the disk.
  virtual const CheckpointIndex& index() const = 0;
  /// "step 12 in the memory of 3 nodes"
  virtual const std::string& label() const = 0;
};

/// Collective over `world`: all ranks get the same answer. Decides what a run goes on from: the
/// newest step of which every share is intact on some node, its rank's own or its partner's copy,
/// if that is newer than the checkpoint on the disk and of the same run; a damaged share falls back
/// to its other copy, a set that lacks one to an older set, and then to the disk. Stores are left
/// with the chosen set alone, or removed.
/// @param checkpoints  folder of the run's checkpoints; "" = there are no stores
/// @param on_disk  the checkpoint that the run continues otherwise; nothing if there is none
/// @param say  takes a line about what is damaged, missing or of another run; called on rank 0
/// @returns null if the run starts from the disk, or anew
std::shared_ptr<RecoveredState> recover_state(Communicator& world, const NodeStoreOptions& options,
                                              const std::string& checkpoints,
                                              const std::optional<RunState>& on_disk,
                                              const std::function<void(const std::string&)>& say);

/// Collective: the run is over and needs no state in memory any more.
void remove_stores(Communicator& world, const NodeStoreOptions& options,
                   const std::string& checkpoints);

/// Removes the stores that nodes of these names have on this machine.
void remove_stores_here(const std::vector<std::string>& nodes, const std::string& checkpoints);

}  // namespace meshplan::runtime
