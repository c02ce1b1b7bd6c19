#include "runtime/execute/recording_device.hpp"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <numeric>
#include <typeinfo>

#include "core/error.hpp"
#include "core/hash.hpp"

namespace meshplan::test {

using program::Lane;
using runtime::ConstBuffer;
using runtime::MutableBuffer;

// ---------------------------------------------------------------- races

void RaceDetector::split(std::uintptr_t where) {
  auto it = segments_.upper_bound(where);
  if (it == segments_.begin()) return;
  --it;
  if (it->first == where || it->second.end <= where) return;
  Segment tail = it->second;
  it->second.end = where;
  segments_.emplace(where, std::move(tail));
}

template <class Visit>
void RaceDetector::visit(const ByteRange& range, Visit visit_segment) {
  split(range.begin);
  split(range.end);
  std::uintptr_t covered = range.begin;
  for (auto it = segments_.lower_bound(range.begin); covered < range.end; ++it) {
    if (it == segments_.end() || it->first > covered) {
      const std::uintptr_t end = it == segments_.end() ? range.end : std::min(range.end, it->first);
      it = segments_.emplace_hint(it, covered, Segment{.end = end, .writer = {}, .readers = {}});
    }
    visit_segment(it->second);
    covered = it->second.end;
  }
}

void RaceDetector::access(const Entry& entry, const VectorClock& clock, const Touched& touched,
                          std::vector<std::string>& errors) {
  const auto check = [&](const Entry& earlier, const char* what) {
    if (earlier.queue == entry.queue || clock.of(earlier.queue) >= earlier.number) return;
    errors.push_back(fmt::format("{}: {} after {} is not ordered", what, entry.name, earlier.name));
  };
  for (const ByteRange& range : touched.reads)
    visit(range, [&](Segment& segment) {
      for (const Entry& writer : segment.writer) check(writer, "write then read");
      std::erase_if(segment.readers, [&](const Entry& e) { return e.queue == entry.queue; });
      segment.readers.push_back(entry);
    });
  for (const ByteRange& range : touched.writes)
    visit(range, [&](Segment& segment) {
      for (const Entry& writer : segment.writer) check(writer, "write then write");
      for (const Entry& reader : segment.readers) check(reader, "read then write");
      segment.readers.clear();
      segment.writer = {entry};
    });
}

// ---------------------------------------------------------------- backend

/// Host memory, in which nothing is computed but the number of rows of each expert: the host reads
/// it when it issues. The router spreads them evenly, and all ranks do alike, unless this one is
/// told to get more.
class RecordingBackend final : public kernels::Backend {
 public:
  explicit RecordingBackend(RecordingDevice& device) : device_(device) {}

  std::string name() const override { return "recording"; }
  int num_threads() const override { return 1; }
  void* allocate(std::int64_t bytes) override {
    if (bytes > device_.allocatable()) throw IoError("the recording device refuses memory");
    void* memory = std::aligned_alloc(4096, static_cast<std::size_t>((bytes + 4095) / 4096 * 4096));
    std::memset(memory, 0, static_cast<std::size_t>(bytes));
    device_.allocated(memory, bytes);
    return memory;
  }
  void free(void* memory) noexcept override {
    if (memory != nullptr) device_.freed();
    std::free(memory);
  }
  void copy(void* to, const void* from, std::int64_t bytes) override {
    device_.kernel("copy", Touched().read(from, bytes, DType::U8).write(to, bytes, DType::U8), 0);
  }
  void copy_to_device(void* to, const void* from_host, std::int64_t bytes) override {
    synchronize();
    std::memcpy(to, from_host, static_cast<std::size_t>(bytes));
  }
  bool reads_group_offsets() const override { return true; }
  void copy_to_host(void* to_host, const void* from, std::int64_t bytes) override {
    synchronize();
    std::memcpy(to_host, from, static_cast<std::size_t>(bytes));
  }
  void zero(void* memory, std::int64_t bytes) override {
    device_.kernel("zero", Touched().write(memory, bytes, DType::U8), 0);
  }
  void synchronize() override {
    device_.count_host_wait();
    if (device_.capturing()) device_.error("the host waits inside a capture");
    device_.host_saw(device_.queued_so_far(Lane::Compute));
  }

  std::int64_t scratch_bytes(const kernels::Operation& /*op*/) override { return 0; }
  void set_scratch(void* /*memory*/, std::int64_t /*bytes*/) override {}

  void run(const kernels::Operation& operation) override {
    device_.called(operation);
    std::visit(
        [this](const auto& op) {
          record(op);
          if constexpr (requires { write_rows(op); }) write_rows(op);
        },
        operation);
  }

 private:
  void write_rows(const kernels::DispatchPlan& op) {
    for (int x = 0; x <= op.experts; ++x)
      op.offsets[x] = static_cast<std::int32_t>(op.tokens * op.top_k * x / op.experts);
  }
  void write_rows(const kernels::ExpertCounts& op) {
    for (int x = 0; x < op.experts; ++x) op.counts[x] = op.offsets[x + 1] - op.offsets[x];
  }
  void write_rows(const kernels::ExchangeSizes& op) {
    const bool between_nodes = op.local_experts == 1;  // where each token goes to one of them
    op.offsets[0] = 0;
    for (int l = 0; l < op.local_experts; ++l)
      op.offsets[l + 1] = op.offsets[l] + device_.more_rows() * op.ranks * op.sent[l];
    for (int rank = 0; rank < op.ranks; ++rank) {
      const std::int32_t sent =
          std::accumulate(op.sent + rank * op.local_experts,
                          op.sent + (rank + 1) * op.local_experts, std::int32_t{0});
      op.rows[rank] = between_nodes ? sent / op.ranks : sent;
      op.rows[op.ranks + rank] =
          between_nodes ? sent / op.ranks : device_.more_rows() * op.rows[rank];
    }
  }

  /// Bound calls are the same objects in every step, so that their bytes may be compared, padding
  /// included.
  template <class Op>
  void record(const Op& op) {
    device_.kernel(typeid(Op).name(), touched(op), content_hash(std::as_bytes(std::span(&op, 1))));
  }

  RecordingDevice& device_;
};

// ---------------------------------------------------------------- device

/// While a graph is captured: lanes other than the compute lane are queues of the graph's own.
struct RecordingDevice::Capture {
  int number = 0;
  std::map<Lane, int> queues;
  std::vector<Action> actions;
  bool recording = true;  // false while a graph is replayed
};

class RecordingDevice::Graph final : public runtime::CapturedGraph {
 public:
  Graph(RecordingDevice& device, std::vector<Action> actions)
      : device_(device), actions_(std::move(actions)) {
    ++device_.graphs_alive_;
    device_.entries_in_graphs_ +=
        static_cast<int>(std::ranges::count(actions_, Action::Kind::Queue, &Action::kind));
  }
  ~Graph() override { --device_.graphs_alive_; }
  void replay() override { device_.replay(actions_); }

 private:
  RecordingDevice& device_;
  std::vector<Action> actions_;
};

RecordingDevice::RecordingDevice(const runtime::IssueRules& rules)
    : rules_(rules),
      backend_(std::make_unique<RecordingBackend>(*this)),
      queues_(std::make_unique<char[]>(program::kNumLanes)) {}

RecordingDevice::~RecordingDevice() = default;

kernels::Backend& RecordingDevice::backend() {
  return *backend_;
}

void* RecordingDevice::queue(Lane lane) {
  return &queues_[static_cast<std::size_t>(lane)];
}

Lane RecordingDevice::lane_of(const void* queue) const {
  return static_cast<Lane>(static_cast<const char*>(queue) - queues_.get());
}

int RecordingDevice::queue_of(Lane lane) const {
  if (capture_ == nullptr || lane == Lane::Compute) return static_cast<int>(lane);
  return capture_->queues.try_emplace(lane, program::kNumLanes * captures_ + static_cast<int>(lane))
      .first->second;
}

void RecordingDevice::perform(const Action& action) {
  const int queue = queue_of(action.lane);
  VectorClock& clock = clocks_[queue];
  clock.join(host_);
  switch (action.kind) {
    case Action::Kind::Queue: {
      const int number = ++lengths_[queue];
      check_arrived(action);
      races_.access({queue, number, action.name}, clock, action.touched, errors_);
      clock.set(queue, number);
      return;
    }
    case Action::Kind::SetMark:
      marks_[action.mark] = {clock, capturing() ? captures_ : 0};
      return;
    case Action::Kind::WaitMark: {
      const auto mark = marks_.find(action.mark);
      if (mark == marks_.end()) return error(fmt::format("mark {} was never set", action.mark));
      if (mark->second.capture != (capturing() ? captures_ : 0))
        return error(fmt::format("mark {} crosses the border of a graph", action.mark));
      clock.join(mark->second.clock);
      return;
    }
  }
}

int RecordingDevice::expect(const std::string& name, const Touched& arrives) {
  expected_[++expectations_] = {name, arrives};
  return expectations_;
}

void RecordingDevice::arrived(int expected, Lane lane) {
  const auto node = expected_.extract(expected);
  if (node.empty()) return error("a communication is waited for twice");
  const Expected& one = node.mapped();
  if (!one.arrives.writes.empty()) queued(lane, one.name + " (arrives)", one.arrives);
}

/// Ordered or not, what is touched before it arrives is not what the program means.
void RecordingDevice::check_arrived(const Action& action) {
  const auto overlaps = [](const ByteRange& a) {
    return [a](const ByteRange& b) { return a.begin < b.end && b.begin < a.end; };
  };
  for (const auto& [number, one] : expected_)
    for (const ByteRange& range : one.arrives.writes)
      if (std::ranges::any_of(action.touched.reads, overlaps(range)) ||
          std::ranges::any_of(action.touched.writes, overlaps(range)))
        error(fmt::format("{} touches what {} has not brought yet", action.name, one.name));
}

void RecordingDevice::queued(Lane lane, const std::string& name, const Touched& touched) {
  const Action action{.kind = Action::Kind::Queue, .lane = lane, .name = name, .touched = touched};
  perform(action);
  if (capturing()) capture_->actions.push_back(action);
}

void RecordingDevice::kernel(const std::string& name, const Touched& touched,
                             std::uint64_t arguments) {
  calls_.push_back(arguments);
  queued(Lane::Compute, name, touched);
}

void RecordingDevice::set_mark(int mark, Lane lane) {
  const Action action{
      .kind = Action::Kind::SetMark, .lane = lane, .mark = mark, .name = {}, .touched = {}};
  perform(action);
  if (capturing()) capture_->actions.push_back(action);
}

void RecordingDevice::allocated(void* memory, std::int64_t bytes) {
  ++allocations_;
  if (capturing()) error("memory is allocated inside a capture");
  queued(Lane::Compute, "zero", Touched().write(memory, bytes, DType::U8));
}

void RecordingDevice::wait_mark(int mark, Lane lane) {
  if (mark >= first_lost_mark_) return;
  const Action action{
      .kind = Action::Kind::WaitMark, .lane = lane, .mark = mark, .name = {}, .touched = {}};
  perform(action);
  if (capturing()) capture_->actions.push_back(action);
}

void RecordingDevice::copy(void* to, const void* from, std::int64_t bytes, Lane lane) {
  queued(lane, "copy", Touched().read(from, bytes, DType::U8).write(to, bytes, DType::U8));
}

void RecordingDevice::upload(void* to, const void* from, std::int64_t bytes, Lane lane) {
  if (capturing()) error("a batch is uploaded inside a capture");
  std::memcpy(to, from, static_cast<std::size_t>(bytes));
  queued(lane, "upload", Touched().write(to, bytes, DType::U8));
}

void RecordingDevice::host_saw(const VectorClock& done) {
  if (capturing()) error("the host waits inside a capture");
  host_.join(done);
}

void RecordingDevice::begin_capture() {
  if (capturing()) error("a capture inside a capture");
  ++captures_;
  capture_ = std::make_unique<Capture>();
  capture_->number = captures_;
}

/// Every queue that the graph forked must have come back to the compute lane.
void RecordingDevice::join_capture() {
  for (const auto& [lane, queue] : capture_->queues)
    if (clocks_[static_cast<int>(Lane::Compute)].of(queue) < lengths_[queue])
      error(fmt::format("lane {} does not end in its graph", static_cast<int>(lane)));
  capture_ = nullptr;
}

std::unique_ptr<runtime::CapturedGraph> RecordingDevice::end_capture() {
  auto graph = std::make_unique<Graph>(*this, std::move(capture_->actions));
  join_capture();
  ++captured_;
  return graph;
}

void RecordingDevice::replay(const std::vector<Action>& actions) {
  ++captures_;
  capture_ = std::make_unique<Capture>();
  for (const Action& action : actions) perform(action);
  join_capture();
  ++replayed_;
}

void RecordingDevice::synchronize() {
  if (capturing()) error("the host waits inside a capture");
  clocks_.clear();  // all is done: a new step starts from nothing
  lengths_.clear();
  marks_.clear();
  host_ = {};
  races_.clear();
  if (!expected_.empty()) error("a communication was never waited for");
  expected_.clear();
}

void RecordingDevice::stamp(int /*number*/, Lane /*lane*/) {
  if (capturing()) error("a time is taken inside a capture");
}

double RecordingDevice::stamp_seconds(int /*number*/) const {
  return 0;
}

// ---------------------------------------------------------------- communicators

namespace {

std::int64_t bytes_of(const ConstBuffer& buffer) {
  return buffer.count * size_of(buffer.dtype);
}

/// The host's part of a communication: what arrived is copied to the device when it is waited for.
class RecordedOperation final : public runtime::PendingOperation {
 public:
  /// @param left  what the host waits for before it sends: the copy from the device
  RecordedOperation(RecordingDevice& device, Lane lane, VectorClock left, int arrives)
      : device_(device), lane_(lane), left_(std::move(left)), arrives_(arrives) {}
  bool test() override { return false; }
  void wait(std::optional<Seconds> /*limit*/) override {
    device_.host_saw(left_);
    device_.arrived(arrives_, lane_);
  }

 private:
  RecordingDevice& device_;
  Lane lane_;
  VectorClock left_;
  int arrives_;
};

class RecordingCommunicator final : public runtime::Communicator {
 public:
  RecordingCommunicator(int rank, std::vector<int> world_ranks, std::string name,
                        RecordingDevice* device)
      : rank_(rank),
        world_ranks_(std::move(world_ranks)),
        name_(std::move(name)),
        device_(device) {}
  ~RecordingCommunicator() override {
    if (device_ != nullptr && device_->graphs_alive() > 0)
      device_->error(name_ + " ends while graphs hold its work");
  }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(world_ranks_.size()); }
  const std::string& name() const override { return name_; }
  const std::vector<int>& world_ranks() const override { return world_ranks_; }
  std::unique_ptr<Communicator> create_group(std::span<const int> ranks,
                                             std::string_view name) override {
    const auto me = std::ranges::find(ranks, rank_);
    if (me == ranks.end()) return nullptr;
    return std::make_unique<RecordingCommunicator>(static_cast<int>(me - ranks.begin()),
                                                   std::vector<int>(ranks.begin(), ranks.end()),
                                                   std::string(name), device_);
  }
  void queue_on(void* queue) override { queue_ = queue; }

  runtime::Handle all_reduce(ConstBuffer send, MutableBuffer recv,
                             runtime::ReduceOp /*op*/) override {
    return record("all_reduce", send, recv);
  }
  runtime::Handle reduce_scatter(ConstBuffer send, MutableBuffer recv,
                                 runtime::ReduceOp /*op*/) override {
    return record("reduce_scatter", send, recv);
  }
  runtime::Handle all_gather(ConstBuffer send, MutableBuffer recv) override {
    return record("all_gather", send, recv);
  }
  runtime::Handle all_to_all(ConstBuffer send, MutableBuffer recv) override {
    return record("all_to_all", send, recv);
  }
  runtime::Handle all_to_all_v(ConstBuffer send, std::span<const std::int64_t> /*send_counts*/,
                               MutableBuffer recv,
                               std::span<const std::int64_t> /*recv_counts*/) override {
    return record("all_to_all_v", send, recv);
  }
  runtime::Handle broadcast(MutableBuffer buffer, int /*root*/) override {
    return record("broadcast", buffer, buffer);
  }
  runtime::Handle barrier() override { return {}; }
  runtime::Handle send(ConstBuffer buffer, int /*peer*/, int /*tag*/) override {
    return record("send", buffer, {});
  }
  runtime::Handle recv(MutableBuffer buffer, int /*peer*/, int /*tag*/) override {
    return record("recv", {}, buffer);
  }
  runtime::Handle send_recv(std::span<const runtime::Transfer> transfers) override {
    for (const runtime::Transfer& one : transfers)
      if (one.direction == runtime::Transfer::Direction::Send)
        record("send", one.buffer, {});
      else
        record("recv", {}, one.buffer);
    return {};
  }

 private:
  runtime::Handle record(const std::string& what, const ConstBuffer& send,
                         const MutableBuffer& recv) {
    if (device_ == nullptr) return {};
    if (queue_ == nullptr) {
      device_->error(what + " without a queue");
      return {};
    }
    const Lane lane = device_->lane_of(queue_);
    const std::string name = name_ + " " + what;
    Touched leaves = Touched().read(send.data, bytes_of(send), DType::U8);
    if (device_->rules().communications == program::CommunicationDriver::Device) {
      leaves.write(recv.data, bytes_of(recv), DType::U8);
      device_->queued(lane, name, leaves);
      return {};
    }
    if (device_->capturing()) device_->error(name + " by the host inside a capture");
    VectorClock left;
    if (!leaves.reads.empty()) {
      device_->queued(lane, name, leaves);
      left = device_->queued_so_far(lane);
    }
    const int arrives =
        device_->expect(name, Touched().write(recv.data, bytes_of(recv), DType::U8));
    return runtime::Handle(runtime::PendingOperationPtr(
        new RecordedOperation(*device_, lane, std::move(left), arrives)));
  }

  int rank_;
  std::vector<int> world_ranks_;
  std::string name_;
  RecordingDevice* device_;
  void* queue_ = nullptr;
};

}  // namespace

std::unique_ptr<runtime::Communicator> make_recording_world(int rank, int size,
                                                            RecordingDevice* device) {
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return std::make_unique<RecordingCommunicator>(rank, std::move(ranks), "world", device);
}

std::unique_ptr<runtime::Communicator> RecordingDevice::make_world(
    runtime::Communicator& host_world) {
  return make_recording_world(host_world.rank(), host_world.size(), this);
}

}  // namespace meshplan::test
