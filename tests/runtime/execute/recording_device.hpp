// A device with queues that runs nothing: it records what is queued, with the bytes that each
// entry touches, and checks that every hand-over of bytes between queues is ordered by marks.
#pragma once

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "kernels/operation.hpp"
#include "runtime/execute/device.hpp"
#include "runtime/execute/touched_bytes.hpp"

namespace meshplan::test {

/// For each queue, how many of its entries are known to be done.
class VectorClock {
 public:
  int of(int queue) const {
    const auto found = done_.find(queue);
    return found == done_.end() ? 0 : found->second;
  }
  void set(int queue, int entries) { done_[queue] = entries; }
  void join(const VectorClock& other) {
    for (const auto& [queue, entries] : other.done_) set(queue, std::max(of(queue), entries));
  }

 private:
  std::map<int, int> done_;
};

/// Accesses of bytes by queue entries; finds those that no mark orders.
class RaceDetector {
 public:
  struct Entry {
    int queue = 0;
    int number = 0;  // in its queue, from 1
    std::string name;
  };
  /// @param clock  what is done before the entry runs
  void access(const Entry& entry, const VectorClock& clock, const Touched& touched,
              std::vector<std::string>& errors);
  void clear() { segments_.clear(); }

 private:
  struct Segment {
    std::uintptr_t end = 0;
    std::vector<Entry> writer;   // none or one
    std::vector<Entry> readers;  // since the last write, one per queue
  };
  void split(std::uintptr_t where);
  template <class Visit>
  void visit(const ByteRange& range, Visit visit_segment);

  std::map<std::uintptr_t, Segment> segments_;
};

class RecordingBackend;

class RecordingDevice final : public runtime::Device {
 public:
  explicit RecordingDevice(const runtime::IssueRules& rules);
  ~RecordingDevice() override;

  /// From now on the router sends this rank so many times the rows that an even one would.
  void send_more_rows(std::int32_t times) { more_rows_ = times; }
  std::int32_t more_rows() const { return more_rows_; }
  /// From now on waits for marks from this one on are lost.
  void lose_marks_from(int mark) { first_lost_mark_ = mark; }
  /// From now on this much memory is free, and this much can be allocated at once.
  void limit_memory(std::int64_t free, std::int64_t allocatable) {
    free_bytes_ = free;
    allocatable_ = allocatable;
  }
  std::int64_t allocatable() const { return allocatable_; }
  int allocations() const { return allocations_; }
  /// The backend's: a new one is zeroed on the compute lane.
  void allocated(void* memory, std::int64_t bytes);
  void freed() { --allocations_; }

  /// What was found wrong; empty = every order is proven.
  const std::vector<std::string>& errors() const { return errors_; }
  /// One number for each kernel call since the last take: its operands and settings.
  std::vector<std::uint64_t> take_calls() { return std::exchange(calls_, {}); }
  /// All calls of one operation so far.
  template <class Op>
  std::vector<Op> calls_of() const {
    std::vector<Op> found;
    for (const kernels::Operation& operation : operations_)
      if (const auto* op = std::get_if<Op>(&operation)) found.push_back(*op);
    return found;
  }
  int graphs_captured() const { return captured_; }
  int graphs_replayed() const { return replayed_; }
  int entries_in_graphs() const { return entries_in_graphs_; }

  // What the fake backend and communicators report.
  void queued(program::Lane lane, const std::string& name, const Touched& touched);
  void called(const kernels::Operation& operation) { operations_.push_back(operation); }
  void kernel(const std::string& name, const Touched& touched, std::uint64_t arguments);
  program::Lane lane_of(const void* queue) const;
  VectorClock queued_so_far(program::Lane lane) { return clocks_[queue_of(lane)]; }
  /// The host has waited until this was done.
  /// Times that the host waited for the device, but for the end of a step.
  int host_waits() const { return host_waits_; }
  void count_host_wait() { ++host_waits_; }
  void host_saw(const VectorClock& done);
  /// The host will bring `arrives` to the device on `lane`: until it has, nobody may touch it.
  /// @returns what to pass to `arrived`
  int expect(const std::string& name, const Touched& arrives);
  void arrived(int expected, program::Lane lane);
  int graphs_alive() const { return graphs_alive_; }
  bool capturing() const { return capture_ != nullptr; }
  void error(std::string text) { errors_.push_back(std::move(text)); }

  kernels::Backend& backend() override;
  runtime::IssueRules rules() const override { return rules_; }
  std::unique_ptr<runtime::Communicator> make_world(runtime::Communicator& host_world) override;
  void* queue(program::Lane lane) override;
  void set_mark(int mark, program::Lane lane) override;
  void wait_mark(int mark, program::Lane lane) override;
  void copy(void* to, const void* from, std::int64_t bytes, program::Lane lane) override;
  void upload(void* to, const void* from, std::int64_t bytes, program::Lane lane) override;
  void begin_capture() override;
  std::unique_ptr<runtime::CapturedGraph> end_capture() override;
  void synchronize() override;
  std::int64_t free_bytes() const override { return free_bytes_; }
  void stamp(int number, program::Lane lane) override;
  double stamp_seconds(int number) const override;

 private:
  struct Mark {
    VectorClock clock;
    int capture = 0;  // in which it was set; 0 = in none
  };
  /// What a graph does when it runs.
  struct Action {
    enum class Kind { Queue, SetMark, WaitMark };
    Kind kind = Kind::Queue;
    program::Lane lane = program::Lane::Compute;
    int mark = -1;
    std::string name;
    Touched touched;
  };
  struct Capture;
  class Graph;
  struct Expected {
    std::string name;
    Touched arrives;
  };

  int queue_of(program::Lane lane) const;
  void perform(const Action& action);
  void check_arrived(const Action& action);
  void join_capture();
  void replay(const std::vector<Action>& actions);

  runtime::IssueRules rules_;
  std::unique_ptr<RecordingBackend> backend_;
  std::unique_ptr<char[]> queues_;  // one address for each lane
  std::map<int, VectorClock> clocks_;
  std::map<int, int> lengths_;
  std::map<int, Mark> marks_;
  VectorClock host_;
  RaceDetector races_;
  std::map<int, Expected> expected_;
  int expectations_ = 0;
  std::unique_ptr<Capture> capture_;
  int captures_ = 0;
  std::vector<std::string> errors_;
  std::vector<kernels::Operation> operations_;
  std::vector<std::uint64_t> calls_;
  int captured_ = 0;
  int replayed_ = 0;
  int entries_in_graphs_ = 0;
  int graphs_alive_ = 0;
  std::int32_t more_rows_ = 1;
  int host_waits_ = 0;
  int first_lost_mark_ = std::numeric_limits<int>::max();
  std::int64_t free_bytes_ = std::int64_t{1} << 40;
  std::int64_t allocatable_ = std::int64_t{1} << 40;
  int allocations_ = 0;
};

/// A rank of a job that does not exist: groups have members, and what is sent goes nowhere. Host
/// memory, or with `device` that device's.
std::unique_ptr<runtime::Communicator> make_recording_world(int rank, int size,
                                                            RecordingDevice* device);

}  // namespace meshplan::test
