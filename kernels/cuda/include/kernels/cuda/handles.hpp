// Owners of CUDA objects.
#pragma once

#include <utility>

#include "kernels/cuda/check.hpp"

namespace meshplan::kernels::cuda {

/// Traits: Handle, null(), destroy(Handle) noexcept.
template <class Traits>
class UniqueHandle {
 public:
  using Handle = typename Traits::Handle;
  explicit UniqueHandle(Handle handle = Traits::null()) noexcept : handle_(handle) {}
  UniqueHandle(UniqueHandle&& other) noexcept
      : handle_(std::exchange(other.handle_, Traits::null())) {}
  UniqueHandle& operator=(UniqueHandle other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~UniqueHandle() {
    if (handle_ != Traits::null()) Traits::destroy(handle_);
  }
  Handle get() const noexcept { return handle_; }

 private:
  Handle handle_;
};

struct StreamTraits {
  using Handle = cudaStream_t;
  static Handle null() noexcept { return nullptr; }
  static void destroy(Handle stream) noexcept { cudaStreamDestroy(stream); }
};
using Stream = UniqueHandle<StreamTraits>;

struct EventTraits {
  using Handle = cudaEvent_t;
  static Handle null() noexcept { return nullptr; }
  static void destroy(Handle event) noexcept { cudaEventDestroy(event); }
};
using Event = UniqueHandle<EventTraits>;

struct PinnedMemoryTraits {
  using Handle = void*;
  static Handle null() noexcept { return nullptr; }
  static void destroy(Handle memory) noexcept { cudaFreeHost(memory); }
};
/// Host memory that the GPU reads and writes without staging.
using PinnedMemory = UniqueHandle<PinnedMemoryTraits>;

/// On the current device; does not wait for the legacy default stream. A smaller `priority` goes
/// first (cudaDeviceGetStreamPriorityRange).
inline Stream make_stream(int priority = 0) {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, priority),
        "cudaStreamCreateWithPriority");
  return Stream(stream);
}

enum class EventTiming { Off, On };
/// Events that only order work cost less than those that also take the time.
inline Event make_event(EventTiming timing) {
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(
            &event, timing == EventTiming::On ? cudaEventDefault : cudaEventDisableTiming),
        "cudaEventCreateWithFlags");
  return Event(event);
}

inline PinnedMemory make_pinned_memory(std::size_t bytes) {
  void* memory = nullptr;
  check(cudaMallocHost(&memory, bytes), "cudaMallocHost");
  return PinnedMemory(memory);
}

}  // namespace meshplan::kernels::cuda
