// NCCL behind the Communicator interface; buffers are device memory.
#pragma once

#include <nccl.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/handles.hpp"
#include "runtime/comm/communicator.hpp"

namespace meshplan::runtime::cuda {

struct NcclOptions {
  int device_index = 0;
  bool shared = false;               // CudaDeviceOptions::shared
  WaitObserver* observer = nullptr;  // told about waits that last
  Seconds setup_timeout{30.0};       // for all ranks to join a communicator
  Seconds hang_timeout{30.0};        // without an end of what is queued: a peer hangs or is gone
};

/// All communicators of a rank: an error of one aborts them all, for a rank that is gone is missed
/// by every group that it was in. Non-blocking: no call of NCCL can hold the host for ever.
class NcclJob {
 public:
  explicit NcclJob(const NcclOptions& options) : options_(options) {}
  ~NcclJob();
  NcclJob(const NcclJob&) = delete;
  NcclJob& operator=(const NcclJob&) = delete;

  const NcclOptions& options() const { return options_; }

  /// Calls `start`, which may go on in the background, until `comm` is ready.
  /// @param cause  what it means if it takes longer than setup_timeout
  /// @throws CommError, after aborting all, if it fails or takes that long
  void complete(ncclResult_t started, const ncclComm_t& comm, const std::string& operation,
                const std::string& group, const std::string& cause = "a rank hangs or is gone");

  void add(ncclComm_t comm, const std::string& group);
  /// Flushes and frees it; while an exception unwinds it is aborted instead.
  void remove(ncclComm_t comm) noexcept;

  /// @throws CommError, after aborting all, if any communicator has failed
  void check();
  /// @throws CommError, after aborting all: `what` has not ended within hang_timeout
  [[noreturn]] void give_up(const std::string& what);
  void abort_all() noexcept;
  bool aborted() const { return aborted_; }

 private:
  struct Member {
    ncclComm_t comm = nullptr;
    std::string group;
  };
  NcclOptions options_;
  std::vector<Member> members_;
  bool aborted_ = false;
};

/// All ranks of `host_world`, over which NCCL's unique id travels. Collective over it.
/// @throws CommError within about setup_timeout for a rank that does not come (rank 0 names it),
/// and within as much again if all have come and NCCL does not connect them
std::unique_ptr<Communicator> make_nccl_world(Communicator& host_world,
                                              std::shared_ptr<NcclJob> job);

/// Waits until `done` is true, checking all communicators meanwhile, and tells the observer when it
/// takes long.
/// @param job  null: nothing but the device's own work is waited for
/// @returns false after `limit`
bool wait_for_device(NcclJob* job, WaitObserver* observer, std::optional<Seconds> limit,
                     const std::function<bool()>& done);

}  // namespace meshplan::runtime::cuda
