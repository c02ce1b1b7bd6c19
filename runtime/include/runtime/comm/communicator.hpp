// The one interface of all communication: MPI and NCCL implement it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/dtype.hpp"
#include "core/units.hpp"
#include "program/program.hpp"

namespace meshplan::runtime {

using program::ReduceOp;

/// A communication failed: a peer is gone, sizes disagree, a wait ran out of time.
class CommError : public std::runtime_error {
 public:
  /// @param peer  rank in the group, where one is known
  CommError(std::string operation, std::string group, std::optional<int> peer,
            const std::string& what);

  const std::string& operation() const { return operation_; }
  const std::string& group() const { return group_; }
  std::optional<int> peer() const { return peer_; }

 private:
  std::string operation_;
  std::string group_;
  std::optional<int> peer_;
};

/// wait(limit) gave up. The operation goes on: it may be tested or waited for again.
class CommTimeout : public CommError {
  using CommError::CommError;
};

/// The ranks of a group passed different things to one call. All of them throw it, nothing was
/// moved, and the group stays usable.
class CommMismatch : public CommError {
  using CommError::CommError;
};

/// `count` elements in memory that the communicator can reach: host memory for MPI.
struct MutableBuffer {
  void* data = nullptr;
  std::int64_t count = 0;
  DType dtype = DType::F32;

  std::int64_t bytes() const { return count * size_of(dtype); }
};

struct ConstBuffer {
  const void* data = nullptr;
  std::int64_t count = 0;
  DType dtype = DType::F32;

  ConstBuffer() = default;
  ConstBuffer(const void* data_, std::int64_t count_, DType dtype_)
      : data(data_), count(count_), dtype(dtype_) {}
  ConstBuffer(const MutableBuffer& buffer)  // NOLINT: every writable buffer is a readable one
      : data(buffer.data), count(buffer.count), dtype(buffer.dtype) {}

  std::int64_t bytes() const { return count * size_of(dtype); }
};

/// One half of a message to or from `peer` of the group. Messages between two ranks with equal tags
/// arrive in the order in which they were posted; both sides give the same count and dtype.
struct Transfer {
  enum class Direction { Send, Recv };
  Direction direction = Direction::Send;
  MutableBuffer buffer;  // a Send only reads it
  int peer = 0;
  int tag = 0;  // 0 .. kMaxTag
};

constexpr int kMaxTag = 4095;

/// A communication in flight; back ends implement it, callers hold a Handle.
class PendingOperation {
 public:
  virtual ~PendingOperation() = default;
  virtual bool test() = 0;
  virtual void wait(std::optional<Seconds> limit) = 0;
  /// Ends its life; a back end that pools operations takes it back here.
  virtual void destroy() noexcept { delete this; }
};
struct DestroyOperation {
  void operator()(PendingOperation* operation) const noexcept { operation->destroy(); }
};
using PendingOperationPtr = std::unique_ptr<PendingOperation, DestroyOperation>;

/// Owns a communication in flight. Its buffers must stay untouched until test() gave true or wait()
/// returned. A handle that is dropped before that abandons the operation and breaks its group:
/// later operations of the group throw. (So an exception may unwind past handles. What its peers
/// had already sent may still arrive in its buffers: end the job rather than go on.)
class Handle {
 public:
  Handle() = default;  // nothing in flight: done
  explicit Handle(PendingOperationPtr operation) : operation_(std::move(operation)) {}

  /// Makes progress, on every operation of the process; true once this one is done.
  /// @throws CommError if it failed (again on each later call)
  bool test() { return operation_ == nullptr || operation_->test(); }

  /// Returns when done; yields the core meanwhile where ranks outnumber cores.
  /// @throws CommError, CommTimeout after `limit`
  void wait() { wait(std::nullopt); }
  void wait(std::optional<Seconds> limit) {
    if (operation_ != nullptr) operation_->wait(limit);
  }

 private:
  PendingOperationPtr operation_;
};

/// A group of ranks that communicate. Every rank of the group must start the same collectives in
/// the same order; operations of several groups may be in flight at once. Not thread-safe.
///
/// Where buffers: sizes are in elements; a count of 0 is allowed. Send and receive buffers may be
/// the same memory ("in place") where noted, and must not overlap otherwise.
///
/// Reductions have a fixed order, so a repeated run gives the same bits, and all ranks get the same
/// bits. fp16 and bf16 travel as such; every addition is done in fp32. The one-shot and direct
/// algorithms add all ranks' values in rank order and round once; ring and doubling round once a
/// hop. Reductions take fp64, fp32, fp16, bf16, int64 and int32; Avg (the sum over size()) takes
/// floating-point only.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// For messages: "world", "tp of ranks 0 1 2 3".
  virtual const std::string& name() const = 0;
  /// World rank of each member.
  virtual const std::vector<int>& world_ranks() const = 0;

  /// Called on the world communicator by all of its ranks at once. Each passes the ordered world
  /// ranks of the group that it joins; groups of one call must be disjoint or equal. A rank that is
  /// not in its own list gets nullptr. The list's order is the order of ranks in the group.
  /// @throws ConfigError for a list with repeated or unknown ranks
  virtual std::unique_ptr<Communicator> create_group(std::span<const int> ranks,
                                                     std::string_view name) = 0;

  /// recv = reduction of every rank's send; equal counts. In place: send.data == recv.data.
  virtual Handle all_reduce(ConstBuffer send, MutableBuffer recv, ReduceOp op) = 0;

  /// Rank r's recv = reduction of block r of every send: send.count = size() * recv.count.
  /// In place: recv is block rank() of send.
  virtual Handle reduce_scatter(ConstBuffer send, MutableBuffer recv, ReduceOp op) = 0;

  /// Block r of recv = rank r's send: recv.count = size() * send.count.
  /// In place: send is block rank() of recv.
  virtual Handle all_gather(ConstBuffer send, MutableBuffer recv) = 0;

  /// Block r of recv = block rank() of rank r's send; equal counts, divisible by size().
  /// In place: send.data == recv.data.
  virtual Handle all_to_all(ConstBuffer send, MutableBuffer recv) = 0;

  /// As all_to_all with uneven blocks that follow one another in rank order. recv_counts[r] must be
  /// what rank r passes as its send_counts[rank()]. Never in place.
  virtual Handle all_to_all_v(ConstBuffer send, std::span<const std::int64_t> send_counts,
                              MutableBuffer recv, std::span<const std::int64_t> recv_counts) = 0;

  /// Copies the root's buffer to all.
  virtual Handle broadcast(MutableBuffer buffer, int root) = 0;

  /// Done when every rank of the group has called it.
  virtual Handle barrier() = 0;

  virtual Handle send(ConstBuffer buffer, int peer, int tag) = 0;
  virtual Handle recv(MutableBuffer buffer, int peer, int tag) = 0;

  /// Several transfers at once, done when all are: no order among them can deadlock.
  virtual Handle send_recv(std::span<const Transfer> transfers) = 0;

  /// For communicators of device memory: from now on operations start after what is queued on
  /// `queue` (a cudaStream_t) when they are called, and what is queued there later starts after
  /// them. Where the device drives communications, calls then return as soon as they are queued,
  /// with an empty handle; where the host does, only after wait().
  virtual void queue_on(void* queue) { static_cast<void>(queue); }

  /// Where the host drives communications: from now on a thread of their own moves those of this
  /// communicator and of all that share its progress while the caller does something else; without
  /// one they move only inside calls. Who moves them changes no bit. Still one caller's thread.
  /// @throws ConfigError if the carrier allows no second thread
  virtual void progress_in_background(bool on) { static_cast<void>(on); }

  Handle send(ConstBuffer buffer, int peer) { return send(buffer, peer, 0); }
  Handle recv(MutableBuffer buffer, int peer) { return recv(buffer, peer, 0); }
};

/// Told when this rank starts and stops waiting for others, so that a hang can name who waits.
class WaitObserver {
 public:
  virtual ~WaitObserver() = default;
  /// @param peer_world_rank  whom it waits for; absent for a collective
  virtual void wait_begins(std::optional<int> peer_world_rank) noexcept = 0;
  virtual void wait_ends() noexcept = 0;
};

/// The text of rank `root`, on all ranks. Collective.
std::string broadcast_text(Communicator& world, int root, std::string text);

}  // namespace meshplan::runtime
