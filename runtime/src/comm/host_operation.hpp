#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <memory_resource>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "comm/channel.hpp"
#include "comm/collective_algorithms.hpp"
#include "comm/progress_engine.hpp"
#include "program/calibration/collective_table.hpp"
#include "runtime/comm/communicator.hpp"

namespace meshplan::runtime {

/// Tags of a group's channel: collectives by sequence number, point-to-point by the
/// caller's tag, and the same again for the messages of verify_calls. All below 32768, which every
/// MPI has.
constexpr int kTagsPerKind = kMaxTag + 1;
enum class TagKind { Collective, CollectiveCheck, PointToPoint, SenderCheck, ReceiverCheck };
constexpr int tag_of(TagKind kind, int number) {
  return static_cast<int>(kind) * kTagsPerKind + number;
}
static_assert(tag_of(TagKind::ReceiverCheck, kMaxTag) < 32768);

/// (operation, algorithm, elements, piece, root or "in place")
using ScheduleKey =
    std::tuple<program::CommOp, program::CommAlgorithm, std::int64_t, std::int64_t, int>;

/// What a communicator and its operations share. Guarded by the engine's lock.
struct HostGroup {
  HostGroup() = default;
  ~HostGroup();
  HostGroup(const HostGroup&) = delete;
  HostGroup& operator=(const HostGroup&) = delete;

  std::unique_ptr<Channel> channel;
  Member me;
  std::string name;
  std::vector<int> world_ranks;
  std::shared_ptr<ProgressEngine> engine;
  std::map<ScheduleKey, std::shared_ptr<const CollectiveSchedule>> schedules;
  std::vector<const HostOperation*> unverified;  // in the order of their calls
  int next_collective = 0;
  std::string broken;  // why later operations cannot run; empty = whole
};

/// Started requests by number. Those that were never awaited are cancelled at the end.
class RequestSet {
 public:
  RequestSet(int count, std::pmr::memory_resource& memory)
      : requests_(static_cast<std::size_t>(count), &memory) {}
  ~RequestSet();
  RequestSet(const RequestSet&) = delete;
  RequestSet& operator=(const RequestSet&) = delete;

  struct Envelope {
    const HostGroup& group;
    const std::string& operation;
    int peer = 0;
    int tag = 0;
  };
  void start_send(int request, const void* data, std::int64_t bytes, const Envelope& envelope);
  void start_recv(int request, void* data, std::int64_t bytes, const Envelope& envelope);
  /// True if complete. @throws CommError, also when fewer bytes came than expected
  bool test(int request, const HostGroup& group, const std::string& operation);

 private:
  struct Started {
    Channel* channel = nullptr;  // null: not in flight
    Channel::Request request = 0;
    bool is_recv = false;
    int peer = 0;
    std::int64_t bytes = 0;
  };
  std::pmr::vector<Started> requests_;
};

/// An operation in flight; `advance` is its state machine. Made by make_operation.
class HostOperation : public PendingOperation {
 public:
  HostOperation(std::shared_ptr<HostGroup> group, std::string name)
      : group_(std::move(group)), name_(std::move(name)) {}
  ~HostOperation() override;

  // These take the engine's lock; everything else is called with it held.
  bool test() final;
  void wait(std::optional<Seconds> limit) final;
  void destroy() noexcept final;

  /// Goes as far as it can; true if it moved. Stores its error instead of throwing.
  bool poll() noexcept;
  bool finished() const { return finished_; }
  const std::string& name() const { return name_; }
  const HostGroup& group() const { return *group_; }
  const std::shared_ptr<HostGroup>& shared_group() const { return group_; }
  /// Whom it waits for, if that is one rank.
  virtual std::optional<int> peer() const { return std::nullopt; }

 protected:
  enum class Progress { None, Some, Done };
  virtual Progress advance() = 0;

  HostGroup& mutable_group() { return *group_; }
  std::pmr::memory_resource& memory() { return group_->engine->memory(); }

 private:
  friend class VerifiedOperation;
  template <class Operation, class... Arguments>
  friend std::unique_ptr<Operation, DestroyOperation> make_operation(
      const std::shared_ptr<HostGroup>& group, Arguments&&... arguments);

  /// The memory of the whole object, of whichever class it is.
  struct Block {
    void* begin = nullptr;
    std::size_t bytes = 0;
    std::size_t alignment = 0;
  };
  std::shared_ptr<HostGroup> group_;
  std::string name_;
  std::exception_ptr error_;
  bool finished_ = false;
  Block block_;
};

using HostOperationPtr = std::unique_ptr<HostOperation, DestroyOperation>;

/// In the engine's memory, which gets it back when the operation is destroyed.
template <class Operation, class... Arguments>
std::unique_ptr<Operation, DestroyOperation> make_operation(const std::shared_ptr<HostGroup>& group,
                                                            Arguments&&... arguments) {
  std::pmr::polymorphic_allocator<> allocator(&group->engine->memory());
  auto* made = allocator.new_object<Operation>(group, std::forward<Arguments>(arguments)...);
  made->block_ = {made, sizeof(Operation), alignof(Operation)};
  return std::unique_ptr<Operation, DestroyOperation>(made);
}

struct Buffers {
  const void* input = nullptr;
  void* output = nullptr;
  DType dtype = DType::F32;
  ReduceOp reduce = ReduceOp::Sum;
};

/// Walks a CollectiveSchedule.
class ScheduledOperation final : public HostOperation {
 public:
  ScheduledOperation(std::shared_ptr<HostGroup> group, std::string name,
                     std::shared_ptr<const CollectiveSchedule> schedule, Buffers buffers, int tag);
  ~ScheduledOperation() override;

 private:
  Progress advance() override;
  bool run(const Action& action);  // false if it has to wait
  void reduce(const Reduce& action);
  std::byte* at(Extent extent);
  const std::byte* read_at(Extent extent);
  std::int64_t bytes_of(Extent extent) const { return extent.count * size_of(buffers_.dtype); }

  std::shared_ptr<const CollectiveSchedule> schedule_;
  Buffers buffers_;
  int tag_;
  std::size_t next_action_ = 0;
  std::vector<std::byte> scratch_;
  RequestSet requests_;
};

/// Transfers that all start at once.
class TransferOperation final : public HostOperation {
 public:
  TransferOperation(std::shared_ptr<HostGroup> group, std::string name,
                    std::span<const Transfer> transfers, std::int64_t piece_bytes);
  std::optional<int> peer() const override;

 private:
  Progress advance() override;
  void start();

  std::pmr::vector<Transfer> transfers_;
  std::int64_t piece_bytes_;
  bool started_ = false;
  int next_request_ = 0;
  std::pmr::vector<int> peer_of_request_;
  RequestSet requests_;
};

/// One of the carrier's own collectives. Once started it cannot be cancelled.
class LibraryOperation final : public HostOperation {
 public:
  LibraryOperation(std::shared_ptr<HostGroup> group, std::string name,
                   const Channel::LibraryCall& call);

 private:
  Progress advance() override;

  Channel::LibraryCall call_;
  bool started_ = false;
  Channel::Request request_ = 0;
};

}  // namespace meshplan::runtime
