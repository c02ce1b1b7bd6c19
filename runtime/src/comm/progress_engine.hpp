// One engine a process moves every operation in flight, so that a rank that waits for one operation
// still plays its part in the others. On request a thread of its own moves them while the rank
// computes ("progress thread").
//
// One lock guards the engine, its groups and operations, and every call of the carrier (MPI, TCP):
// of two threads one at a time is inside (MPI_THREAD_SERIALIZED). The rank's thread goes first: the
// progress thread gives the lock up between two actions of a schedule when it is wanted, and does
// nothing while the rank waits, because then the rank moves the operations itself.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <memory>
#include <memory_resource>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/units.hpp"
#include "runtime/comm/communicator.hpp"

namespace meshplan::runtime {

class HostOperation;

/// Scratch memory, kept for the next operation: inside a step nothing is allocated.
class ScratchPool {
 public:
  std::vector<std::byte> take(std::size_t bytes);
  void give_back(std::vector<std::byte> buffer);
  /// An abandoned message may still arrive here: never reused.
  void bury(std::vector<std::byte> buffer) { buried_.push_back(std::move(buffer)); }

 private:
  std::vector<std::vector<std::byte>> free_;
  std::vector<std::vector<std::byte>> buried_;
};

class ProgressEngine {
 public:
  ProgressEngine(bool oversubscribed, WaitObserver* observer)
      : oversubscribed_(oversubscribed), observer_(observer) {
    active_.reserve(kManyOperations);
  }
  ~ProgressEngine() { stop_thread(); }
  ProgressEngine(const ProgressEngine&) = delete;
  ProgressEngine& operator=(const ProgressEngine&) = delete;

  /// The rank's own thread takes it, and holds it in all that follows. Recursive: an operation may
  /// own another one.
  using Lock = std::unique_lock<std::recursive_mutex>;
  Lock lock();

  void add(HostOperation& operation);
  void remove(const HostOperation& operation) noexcept;
  ScratchPool& scratch() { return scratch_; }
  /// Where operations and their small arrays live. A step starts and ends the same ones as the step
  /// before, so it gets back what that one returned.
  std::pmr::memory_resource& memory() { return memory_; }

  /// Moves every operation as far as it goes; true if any moved.
  bool poll();
  /// Does the rank's thread wait for the lock? Then whoever holds it gives it up soon.
  bool is_wanted() const { return wanted_.load(std::memory_order_relaxed) > 0; }

  /// Takes the lock itself. @throws CommTimeout
  void wait(const HostOperation& operation, std::optional<Seconds> limit);

  bool in_background() const { return thread_.joinable(); }
  /// Starts or ends the progress thread. Called by the rank's thread without the lock.
  void progress_in_background(bool on);

 private:
  class Waiting;

  void run_in_background();
  bool poll_one_by_one(Lock& lock);
  void stop_thread();
  bool has_work() const { return !active_.empty() && waiting_ == 0; }

  static constexpr std::size_t kManyOperations = 256;  // in flight: a stage's sends and receives
  std::recursive_mutex mutex_;
  std::atomic<int> wanted_{0};
  std::pmr::unsynchronized_pool_resource memory_;
  std::vector<HostOperation*> active_;
  ScratchPool scratch_;
  bool oversubscribed_;
  WaitObserver* observer_;

  std::thread thread_;
  std::condition_variable_any work_;
  int waiting_ = 0;        // waits of the rank's thread in progress
  bool sleeping_ = false;  // the progress thread waits for work_
  bool stopping_ = false;
};

}  // namespace meshplan::runtime
