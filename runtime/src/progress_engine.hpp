// One engine a process moves every operation in flight, so that a rank that waits for one operation
// still plays its part in the others.
#pragma once

#include <cstddef>
#include <exception>
#include <memory>
#include <memory_resource>
#include <optional>
#include <string>
#include <vector>

#include "core/units.hpp"
#include "runtime/communicator.hpp"

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

  void add(HostOperation& operation) { active_.push_back(&operation); }
  void remove(const HostOperation& operation) noexcept;
  ScratchPool& scratch() { return scratch_; }
  /// Where operations and their small arrays live. A step starts and ends the same ones as the step
  /// before, so it gets back what that one returned.
  std::pmr::memory_resource& memory() { return memory_; }

  /// Moves every operation as far as it goes; true if any moved.
  bool poll();
  /// @throws CommTimeout
  void wait(const HostOperation& operation, std::optional<Seconds> limit);

 private:
  static constexpr std::size_t kManyOperations = 256;  // in flight: a stage's sends and receives
  std::pmr::unsynchronized_pool_resource memory_;
  std::vector<HostOperation*> active_;
  ScratchPool scratch_;
  bool oversubscribed_;
  WaitObserver* observer_;
};

}  // namespace meshplan::runtime
