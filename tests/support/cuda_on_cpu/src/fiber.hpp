#pragma once

#include <cstddef>

namespace cuda_on_cpu {

/// A stack that runs `entry` from the first resume() on and gives way by suspend(). `entry` never
/// returns. Stacks have a guard page.
class Fiber {
 public:
  explicit Fiber(void (*entry)());
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// From the scheduler's stack: runs the fiber until it suspends.
  void resume();
  /// From the fiber: back to the scheduler.
  void suspend();
  /// Forgets what the fiber was doing: the next resume() starts `entry` anew.
  void reset();

 private:
  void (*entry_)();
  std::byte* mapping_;
  void* stack_pointer_ = nullptr;
};

}  // namespace cuda_on_cpu
