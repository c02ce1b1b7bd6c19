// Saving to the memory of nodes: a copy between two steps, a partner's copy during the next ones.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "node_store/node_ring.hpp"
#include "node_store/share_slots.hpp"
#include "runtime/comm/communicator.hpp"
#include "runtime/node_store/node_store_options.hpp"
#include "weights/state_share.hpp"

namespace meshplan::runtime {

/// Every rank of a job has one. Between two steps it copies its share of the state into its node's
/// store. During the next steps its partner on another node gets a copy of it over the network, and
/// a thread writes the indexes. A set of all shares counts on a node once its copies are complete,
/// and the two newest complete ones stay while another is written. All ranks call the same
/// functions in the same order.
class MemorySaver {
 public:
  /// Ascending: what holds for one rank holds for all, by their maximum.
  enum class State : std::int32_t { Ready, Busy, Failed };

  /// Collective over `world`. A thread allocates most of the stores until the first state is saved;
  /// state() says whether that has failed.
  /// @param checkpoints  folder of the run's checkpoints, after which its stores are named
  /// @param resumed_step  of the set that the run was resumed from, which stays until two newer
  /// ones are complete
  MemorySaver(const program::Program& program, const SaverPlace& place, Communicator& world,
              const NodeStoreOptions& options, const std::string& checkpoints,
              std::optional<std::int64_t> resumed_step);
  /// Leaves the stores as they are.
  ~MemorySaver();
  MemorySaver(const MemorySaver&) = delete;
  MemorySaver& operator=(const MemorySaver&) = delete;

  /// Whether there is another node to keep copies.
  bool has_partner() const { return ring_.num_nodes() > 1; }

  std::int64_t share_bytes() const { return kept_.empty() ? 0 : kept_.front().share.data_bytes(); }

  /// Finishes what is complete. Returns at once, but for the first time.
  State state();
  /// Why the state is Failed; empty otherwise.
  const std::string& failure() const { return failure_; }

  /// Only if the state of all ranks is Ready.
  void save(const RunState& run, kernels::Backend& backend, const Arena& arena);
  /// Waits for what is in flight, and removes the stores.
  void remove();

 private:
  /// A share that this rank keeps: its own, or that of a rank of the node before.
  struct Kept {
    StateShare share;
    ShareSlots slots;
    std::vector<std::uint64_t> hashes;
  };

  void allocate(const program::Program& program, const SaverPlace& place);
  std::string index_of(const Kept& kept, const RunState& run) const;
  Handle exchange(int round, ConstBuffer own, std::vector<MutableBuffer> copies);
  void exchange_hashes();
  void start_copies();
  void work(const RunState& run);
  void make_room();
  void await_first_room();
  bool arrived();
  void finish_work();
  void fail(const std::exception& error);

  int rank_;
  NodeRing ring_;
  std::string store_;
  program::Plan plan_;
  std::string plan_json_;
  bool plan_has_progress_thread_;
  Communicator& world_;
  std::unique_ptr<Communicator> group_;  // so that what is in flight disturbs no other call
  std::optional<std::int64_t> resumed_step_;
  std::vector<Kept> kept_;  // its own first, then by source
  std::vector<Handle> copies_;
  std::thread thread_;
  std::atomic<bool> worked_ = true;
  std::string work_failure_;  // written before worked_
  std::string failure_;
  bool is_open_ = false;  // a set has been begun and is not complete
  int num_complete_ = 0;
};

}  // namespace meshplan::runtime
