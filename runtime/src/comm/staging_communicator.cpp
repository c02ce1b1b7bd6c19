#include "comm/staging_communicator.hpp"

#include <algorithm>
#include <chrono>
#include <deque>
#include <exception>
#include <fmt/format.h>
#include <functional>
#include <map>
#include <optional>
#include <thread>

#include "comm/communicator_checks.hpp"
#include "core/error.hpp"

namespace meshplan::runtime {
namespace {

/// Host buffers by size, used again and again: a training step repeats its calls.
class HostBuffers {
 public:
  explicit HostBuffers(StagingMemory& memory) : memory_(memory) {}
  ~HostBuffers() {
    for (const auto& [bytes, buffer] : free_) memory_.free_host(buffer);
    for (const Leaving& one : leaving_) memory_.free_host(one.buffer);
    for (void* buffer : abandoned_) memory_.free_host(buffer);
  }
  HostBuffers(const HostBuffers&) = delete;
  HostBuffers& operator=(const HostBuffers&) = delete;

  void* take(std::int64_t bytes) {
    reclaim();
    const auto found = free_.find(rounded(bytes));
    if (found == free_.end()) return memory_.allocate_host(rounded(bytes));
    void* buffer = found->second;
    free_.erase(found);
    return buffer;
  }
  /// `mark`  after which the device has read it; absent: it may be used at once
  void give_back(void* buffer, std::int64_t bytes, std::shared_ptr<std::optional<int>> mark) {
    leaving_.push_back({buffer, rounded(bytes), std::move(mark)});
  }
  /// Somebody may still write into it: it is not used again.
  void abandon(void* buffer) { abandoned_.push_back(buffer); }

 private:
  struct Leaving {
    void* buffer;
    std::int64_t bytes;
    std::shared_ptr<std::optional<int>> mark;  // shared by the buffers of an operation
  };

  /// Powers of two, so that few sizes exist.
  static std::int64_t rounded(std::int64_t bytes) {
    std::int64_t size = 4096;
    while (size < bytes) size *= 2;
    return size;
  }
  void reclaim() {
    std::erase_if(leaving_, [&](const Leaving& one) {
      if (*one.mark && !memory_.reached(**one.mark)) return false;
      one.mark->reset();
      free_.emplace(one.bytes, one.buffer);
      return true;
    });
  }

  StagingMemory& memory_;
  std::multimap<std::int64_t, void*> free_;
  std::vector<Leaving> leaving_;
  std::vector<void*> abandoned_;
};

class StagedOperation;

/// What all groups of one job share: operations in flight move together.
struct StagingEngine {
  explicit StagingEngine(std::shared_ptr<StagingMemory> memory_)
      : memory(std::move(memory_)), buffers(*memory) {}

  void poll();

  std::shared_ptr<StagingMemory> memory;
  HostBuffers buffers;
  std::vector<StagedOperation*> in_flight;  // in the order of calls
};

/// State of a group that outlives its communicator.
struct StagingGroup {
  std::shared_ptr<StagingEngine> engine;
  std::unique_ptr<Communicator> owned;  // null for the world
  Communicator* host = nullptr;
  void* queue = nullptr;  // as of the last queue_on()
  std::string broken;
  std::deque<StagedOperation*> not_started;  // by call: the host group wants one order on all ranks
};

struct Copy {
  void* device = nullptr;
  void* host = nullptr;
  std::int64_t bytes = 0;
};

class StagedOperation final : public PendingOperation {
 public:
  enum class State { Leaving, Crossing, Arriving, Done, Failed };

  StagedOperation(std::shared_ptr<StagingGroup> group, std::string name)
      : group_(std::move(group)), engine_(*group_->engine), name_(std::move(name)) {
    queue_ = group_->queue;
  }
  ~StagedOperation() override {
    const bool abandoned = enqueued_ && state_ != State::Done;
    // A failure is the host group's to judge: after a mismatch it is still usable.
    if (abandoned && state_ != State::Failed && group_->broken.empty())
      group_->broken = name_ + " was abandoned before it was done";
    std::erase(group_->not_started, this);
    std::erase(engine_.in_flight, this);
    for (const Buffer& buffer : buffers_)
      if (abandoned)
        engine_.buffers.abandon(buffer.memory);
      else
        engine_.buffers.give_back(buffer.memory, buffer.bytes, in_use_until_);
  }

  /// A host buffer for this operation.
  void* buffer(std::int64_t bytes) {
    void* memory = engine_.buffers.take(bytes);
    buffers_.push_back({memory, bytes});
    return memory;
  }
  void leaves(const void* device, void* host, std::int64_t bytes) {
    if (bytes > 0) leaves_.push_back({const_cast<void*>(device), host, bytes});
  }
  void arrives(void* device, void* host, std::int64_t bytes) {
    if (bytes > 0) arrives_.push_back({device, host, bytes});
  }
  void start(std::function<Handle()> cross) {
    cross_ = std::move(cross);
    for (const Copy& copy : leaves_)
      engine_.memory->copy_to_host(copy.host, copy.device, copy.bytes, queue_);
    // Without anything to copy out, what arrives still comes after what is queued: on the queue.
    if (!leaves_.empty()) left_ = engine_.memory->mark(queue_);
    enqueued_ = true;
    group_->not_started.push_back(this);
    engine_.in_flight.push_back(this);
    engine_.poll();
  }

  /// Moves on as far as possible without waiting; errors are kept for whoever waits.
  void poll() {
    try {
      if (state_ == State::Leaving) try_to_cross();
      if (state_ == State::Crossing && crossing_.test()) arrive();
      if (state_ == State::Arriving && engine_.memory->reached(*arriving_)) finish(State::Done);
    } catch (...) {
      fail();
    }
  }

  bool test() override {
    engine_.poll();
    if (error_) std::rethrow_exception(error_);
    return state_ == State::Done;
  }

  void wait(std::optional<Seconds> limit) override {
    using SteadyClock = std::chrono::steady_clock;
    const auto begin = SteadyClock::now();
    while (!test()) {
      const double waited = std::chrono::duration<double>(SteadyClock::now() - begin).count();
      const bool late = limit && waited >= limit->value;
      if (state_ == State::Crossing && nobody_leaves())
        // Naps, progress of all groups and words for the watchdog are the host group's.
        wait_for_host(limit ? std::optional(Seconds{std::max(0.0, limit->value - waited)})
                            : std::nullopt);
      else if (late)
        throw CommTimeout(name_, group_->host->name(), std::nullopt,
                          fmt::format("copies of the device took more than {} s", limit->value));
      else
        std::this_thread::yield();
    }
  }

 private:
  struct Buffer {
    void* memory;
    std::int64_t bytes;
  };

  void wait_for_host(std::optional<Seconds> limit) {
    try {
      crossing_.wait(limit);
    } catch (const CommTimeout&) {
      throw;
    } catch (...) {
      fail();
      throw;
    }
  }

  void fail() {
    error_ = std::current_exception();
    if (state_ == State::Leaving) std::erase(group_->not_started, this);
    finish(State::Failed);
  }

  bool nobody_leaves() const {
    return std::ranges::none_of(engine_.in_flight, [](const StagedOperation* other) {
      return other->state_ == State::Leaving;
    });
  }

  void try_to_cross() {
    if (left_ && !engine_.memory->reached(*left_)) return;
    left_.reset();
    if (group_->not_started.front() != this) return;
    crossing_ = cross_();
    group_->not_started.pop_front();
    state_ = State::Crossing;
  }

  void arrive() {
    crossing_ = Handle();
    for (const Copy& copy : arrives_)
      engine_.memory->copy_to_device(copy.device, copy.host, copy.bytes, queue_);
    if (arrives_.empty()) return finish(State::Done);
    arriving_ = engine_.memory->mark(queue_);
    *in_use_until_ = arriving_;
    // Who gave a queue orders what follows by it.
    if (queue_ != nullptr) return finish(State::Done);
    state_ = State::Arriving;
  }

  void finish(State state) {
    state_ = state;
    if (state == State::Done && queue_ == nullptr) in_use_until_->reset();
    std::erase(engine_.in_flight, this);
  }

  std::shared_ptr<StagingGroup> group_;
  StagingEngine& engine_;
  std::string name_;
  void* queue_ = nullptr;
  std::vector<Buffer> buffers_;
  std::vector<Copy> leaves_;
  std::vector<Copy> arrives_;
  std::function<Handle()> cross_;
  Handle crossing_;
  State state_ = State::Leaving;
  bool enqueued_ = false;
  std::optional<int> left_;
  std::optional<int> arriving_;
  std::shared_ptr<std::optional<int>> in_use_until_ = std::make_shared<std::optional<int>>();
  std::exception_ptr error_;
};

// NOLINTNEXTLINE(readability-make-member-function-const): what finishes leaves `in_flight`
void StagingEngine::poll() {
  const std::vector<StagedOperation*> now = in_flight;  // those that finish leave the list
  for (StagedOperation* operation : now) operation->poll();
}

class StagingCommunicator final : public Communicator {
 public:
  explicit StagingCommunicator(std::shared_ptr<StagingGroup> group) : group_(std::move(group)) {}

  int rank() const override { return group_->host->rank(); }
  int size() const override { return group_->host->size(); }
  const std::string& name() const override { return group_->host->name(); }
  const std::vector<int>& world_ranks() const override { return group_->host->world_ranks(); }
  void queue_on(void* queue) override { group_->queue = queue; }

  std::unique_ptr<Communicator> create_group(std::span<const int> ranks,
                                             std::string_view name) override {
    auto group = std::make_shared<StagingGroup>();
    group->engine = group_->engine;
    group->owned = group_->host->create_group(ranks, name);
    group->host = group->owned.get();
    if (group->host == nullptr) return nullptr;
    return std::make_unique<StagingCommunicator>(std::move(group));
  }

  Handle all_reduce(ConstBuffer send, MutableBuffer recv, ReduceOp op) override {
    checks::all_reduce(*this, send, recv, op);
    auto operation = begin("all_reduce");
    const MutableBuffer host{operation->buffer(send.bytes()), send.count, send.dtype};
    operation->leaves(send.data, host.data, send.bytes());
    operation->arrives(recv.data, host.data, recv.bytes());
    return launch(std::move(operation),
                  [host, op](Communicator& comm) { return comm.all_reduce(host, host, op); });
  }

  Handle reduce_scatter(ConstBuffer send, MutableBuffer recv, ReduceOp op) override {
    checks::reduce_scatter(*this, send, recv, op);
    auto operation = begin("reduce_scatter");
    auto* memory = static_cast<std::byte*>(operation->buffer(send.bytes()));
    const MutableBuffer all{memory, send.count, send.dtype};
    const MutableBuffer own{memory + rank() * recv.bytes(), recv.count, recv.dtype};
    operation->leaves(send.data, all.data, send.bytes());
    operation->arrives(recv.data, own.data, recv.bytes());
    return launch(std::move(operation),
                  [all, own, op](Communicator& comm) { return comm.reduce_scatter(all, own, op); });
  }

  Handle all_gather(ConstBuffer send, MutableBuffer recv) override {
    checks::all_gather(*this, send, recv);
    auto operation = begin("all_gather");
    auto* memory = static_cast<std::byte*>(operation->buffer(recv.bytes()));
    const MutableBuffer all{memory, recv.count, recv.dtype};
    const MutableBuffer own{memory + rank() * send.bytes(), send.count, send.dtype};
    operation->leaves(send.data, own.data, send.bytes());
    operation->arrives(recv.data, all.data, recv.bytes());
    return launch(std::move(operation),
                  [all, own](Communicator& comm) { return comm.all_gather(own, all); });
  }

  Handle all_to_all(ConstBuffer send, MutableBuffer recv) override {
    checks::all_to_all(*this, send, recv);
    auto operation = begin("all_to_all");
    const auto [out, in] = two_buffers(*operation, send, recv);
    return launch(std::move(operation),
                  [out = out, in = in](Communicator& comm) { return comm.all_to_all(out, in); });
  }

  Handle all_to_all_v(ConstBuffer send, std::span<const std::int64_t> send_counts,
                      MutableBuffer recv, std::span<const std::int64_t> recv_counts) override {
    checks::all_to_all_v(*this, send, send_counts, recv, recv_counts);
    auto operation = begin("all_to_all_v");
    const auto [out, in] = two_buffers(*operation, send, recv);
    return launch(std::move(operation),
                  [out = out, in = in,
                   sends = std::vector<std::int64_t>(send_counts.begin(), send_counts.end()),
                   recvs = std::vector<std::int64_t>(recv_counts.begin(), recv_counts.end())](
                      Communicator& comm) { return comm.all_to_all_v(out, sends, in, recvs); });
  }

  Handle broadcast(MutableBuffer buffer, int root) override {
    checks::broadcast(*this, buffer, root);
    auto operation = begin("broadcast");
    const MutableBuffer host{operation->buffer(buffer.bytes()), buffer.count, buffer.dtype};
    if (rank() == root)
      operation->leaves(buffer.data, host.data, buffer.bytes());
    else
      operation->arrives(buffer.data, host.data, buffer.bytes());
    return launch(std::move(operation),
                  [host, root](Communicator& comm) { return comm.broadcast(host, root); });
  }

  Handle barrier() override {
    return launch(begin("barrier"), [](Communicator& comm) { return comm.barrier(); });
  }

  Handle send(ConstBuffer buffer, int peer, int tag) override {
    const Transfer one{Transfer::Direction::Send,
                       {const_cast<void*>(buffer.data), buffer.count, buffer.dtype},
                       peer,
                       tag};
    checks::transfers(*this, "send", {&one, 1});
    auto operation = begin("send");
    const ConstBuffer host = staged(*operation, one).buffer;
    return launch(std::move(operation),
                  [host, peer, tag](Communicator& comm) { return comm.send(host, peer, tag); });
  }

  Handle recv(MutableBuffer buffer, int peer, int tag) override {
    const Transfer one{Transfer::Direction::Recv, buffer, peer, tag};
    checks::transfers(*this, "recv", {&one, 1});
    auto operation = begin("recv");
    const MutableBuffer host = staged(*operation, one).buffer;
    return launch(std::move(operation),
                  [host, peer, tag](Communicator& comm) { return comm.recv(host, peer, tag); });
  }

  Handle send_recv(std::span<const Transfer> transfers) override {
    checks::transfers(*this, "send_recv", transfers);
    auto operation = begin("send_recv");
    std::vector<Transfer> list;
    for (const Transfer& one : transfers) list.push_back(staged(*operation, one));
    return launch(std::move(operation),
                  [list = std::move(list)](Communicator& comm) { return comm.send_recv(list); });
  }

 private:
  std::unique_ptr<StagedOperation> begin(const char* name) {
    if (!group_->broken.empty())
      throw CommError(name, this->name(), std::nullopt, "the group is broken: " + group_->broken);
    return std::make_unique<StagedOperation>(group_, name);
  }

  template <class Cross>
  Handle launch(std::unique_ptr<StagedOperation> operation, Cross cross) {
    operation->start([&host = *group_->host, cross = std::move(cross)] { return cross(host); });
    return Handle(PendingOperationPtr(operation.release()));
  }

  static std::pair<ConstBuffer, MutableBuffer> two_buffers(StagedOperation& operation,
                                                           const ConstBuffer& send,
                                                           const MutableBuffer& recv) {
    void* out = operation.buffer(send.bytes());
    void* in = operation.buffer(recv.bytes());
    operation.leaves(send.data, out, send.bytes());
    operation.arrives(recv.data, in, recv.bytes());
    return {{out, send.count, send.dtype}, {in, recv.count, recv.dtype}};
  }

  static Transfer staged(StagedOperation& operation, Transfer transfer) {
    void* device = transfer.buffer.data;
    const std::int64_t bytes = transfer.buffer.bytes();
    transfer.buffer.data = operation.buffer(bytes);
    if (transfer.direction == Transfer::Direction::Send)
      operation.leaves(device, transfer.buffer.data, bytes);
    else
      operation.arrives(device, transfer.buffer.data, bytes);
    return transfer;
  }

  std::shared_ptr<StagingGroup> group_;
};

}  // namespace

std::unique_ptr<Communicator> make_staging_world(Communicator& host_world,
                                                 std::shared_ptr<StagingMemory> memory) {
  auto group = std::make_shared<StagingGroup>();
  group->engine = std::make_shared<StagingEngine>(std::move(memory));
  group->host = &host_world;
  return std::make_unique<StagingCommunicator>(std::move(group));
}

}  // namespace meshplan::runtime
