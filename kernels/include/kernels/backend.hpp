#pragma once

#include <cstdint>
#include <string>

#include "kernels/operation.hpp"

namespace meshplan::kernels {

/// Runs operations of one device, in the order given. All pointers in operations are device memory
/// of this backend. `run` may return before the work is done (GPU); `synchronize` waits. One host
/// thread uses a backend at a time; several backends may live in one process.
///
/// Memory: `run` keeps nothing that it allocates after the first run of a shape. Operations that
/// need workspace say how much through `scratch_bytes`; the caller hands over one region that
/// covers the largest need. All operations share it, since they run in order.
///
/// Reductions have a fixed order: the same operation on the same input gives the same bits.
/// @throws InvariantError from `run` for a malformed operation or too little scratch
class Backend {
 public:
  virtual ~Backend() = default;
  Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  /// "cpu avx512 1 thread": what a report should print.
  virtual std::string name() const = 0;
  virtual int num_threads() const = 0;

  /// Device memory, aligned to 4096 bytes, zeroed (hence touched). @throws IoError if there is none
  virtual void* allocate(std::int64_t bytes) = 0;
  virtual void free(void* memory) noexcept = 0;
  virtual void copy(void* to, const void* from, std::int64_t bytes) = 0;
  virtual void copy_to_device(void* to, const void* from_host, std::int64_t bytes) = 0;
  virtual void copy_to_host(void* to_host, const void* from, std::int64_t bytes) = 0;
  virtual void zero(void* memory, std::int64_t bytes) = 0;
  virtual void synchronize() = 0;

  /// Does it read on the device where groups of rows begin? Then GroupOffsets::host may be null.
  virtual bool reads_group_offsets() const { return false; }

  /// Bytes of workspace that `run` of this operation needs; only shape, dtype, strides and which
  /// pointers are null matter.
  virtual std::int64_t scratch_bytes(const Operation& op) = 0;

  /// The region that operations may use until the next call; aligned to 64 bytes, owned by the
  /// caller.
  virtual void set_scratch(void* memory, std::int64_t bytes) = 0;

  virtual void run(const Operation& op) = 0;
};

}  // namespace meshplan::kernels
