#include "stream_pool.hpp"

#include <cstdint>
#include <cstring>

namespace meshplan::runtime::cuda {

using kernels::cuda::check;

bool is_done(cudaEvent_t event) {
  const cudaError_t status = cudaEventQuery(event);
  if (status == cudaErrorNotReady) return false;
  check(status, "cudaEventQuery");
  return true;
}

void PinnedFeed::upload(void* to, const void* from, std::int64_t bytes, cudaStream_t stream) {
  auto& slots = halves_[half_];
  if (used_ == slots.size())
    slots.push_back({.memory = kernels::cuda::PinnedMemory(),
                     .bytes = 0,
                     .read = kernels::cuda::make_event(kernels::cuda::EventTiming::Off)});
  Slot& slot = slots[used_++];
  check(cudaEventSynchronize(slot.read.get()), "cudaEventSynchronize");  // two steps ago: no wait
  if (slot.bytes < bytes) {
    slot.memory = kernels::cuda::make_pinned_memory(static_cast<std::size_t>(bytes));
    slot.bytes = bytes;
  }
  std::memcpy(slot.memory.get(), from, static_cast<std::size_t>(bytes));
  check(cudaMemcpyAsync(to, slot.memory.get(), static_cast<std::size_t>(bytes),
                        cudaMemcpyHostToDevice, stream),
        "cudaMemcpyAsync");
  check(cudaEventRecord(slot.read.get(), stream), "cudaEventRecord");
}

void PinnedFeed::next() {
  half_ = 1 - half_;
  used_ = 0;
}

PinnedStaging::PinnedStaging(int device_index) : device_index_(device_index) {
  check(cudaSetDevice(device_index_), "cudaSetDevice");
  own_ = kernels::cuda::make_stream();
}

void* PinnedStaging::allocate_host(std::int64_t bytes) {
  void* memory = nullptr;
  check(cudaMallocHost(&memory, static_cast<std::size_t>(bytes)), "cudaMallocHost");
  return memory;
}

void PinnedStaging::free_host(void* memory) noexcept {
  cudaFreeHost(memory);
}

void PinnedStaging::copy_to_host(void* to_host, const void* from, std::int64_t bytes, void* queue) {
  check(cudaMemcpyAsync(to_host, from, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToHost,
                        stream_of(queue)),
        "cudaMemcpyAsync");
}

void PinnedStaging::copy_to_device(void* to, const void* from_host, std::int64_t bytes,
                                   void* queue) {
  check(cudaMemcpyAsync(to, from_host, static_cast<std::size_t>(bytes), cudaMemcpyHostToDevice,
                        stream_of(queue)),
        "cudaMemcpyAsync");
}

int PinnedStaging::mark(void* queue) {
  int number = created_;
  if (free_.empty()) {
    ++created_;
  } else {
    number = free_.back();
    free_.pop_back();
  }
  check(cudaEventRecord(events_.at(number), stream_of(queue)), "cudaEventRecord");
  return number;
}

bool PinnedStaging::reached(int mark) {
  if (!is_done(events_.existing(mark))) return false;
  free_.push_back(mark);
  return true;
}

}  // namespace meshplan::runtime::cuda
