// Communication of device memory by a communicator of host memory: out to pinned buffers, across,
// and back in. Several ranks can share one device so.
#pragma once

#include <cstdint>
#include <memory>

#include "runtime/comm/communicator.hpp"

namespace meshplan::runtime {

/// Copies between a device and host memory that it can reach by itself.
class StagingMemory {
 public:
  virtual ~StagingMemory() = default;

  virtual void* allocate_host(std::int64_t bytes) = 0;
  virtual void free_host(void* memory) noexcept = 0;

  /// Queue copies on `queue`; null = a queue of its own.
  virtual void copy_to_host(void* to_host, const void* from, std::int64_t bytes, void* queue) = 0;
  virtual void copy_to_device(void* to, const void* from_host, std::int64_t bytes, void* queue) = 0;

  /// The end of what is queued on `queue` now. Valid until `reached` was true.
  virtual int mark(void* queue) = 0;
  virtual bool reached(int mark) = 0;
};

/// As `host_world`, which moves the data and must outlive the result, but for buffers in the device
/// memory of `memory`. The host copies out when an operation is called, sends once that copy is
/// done (in the order of calls on each group), and copies in when what arrived is seen by test() or
/// wait() of any operation made from it. With queue_on(), wait() returns once the copy in is queued
/// there; else once it is done.
std::unique_ptr<Communicator> make_staging_world(Communicator& host_world,
                                                 std::shared_ptr<StagingMemory> memory);

}  // namespace meshplan::runtime
