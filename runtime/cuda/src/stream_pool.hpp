// Events and pinned memory that a step uses again and again.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "comm/staging_communicator.hpp"
#include "kernels/cuda/handles.hpp"

namespace meshplan::runtime::cuda {

/// Events by number, created when first used.
class Events {
 public:
  explicit Events(kernels::cuda::EventTiming timing) : timing_(timing) {}
  cudaEvent_t at(int number) {
    while (static_cast<int>(events_.size()) <= number)
      events_.push_back(kernels::cuda::make_event(timing_));
    return events_[static_cast<std::size_t>(number)].get();
  }
  cudaEvent_t existing(int number) const {
    return events_.at(static_cast<std::size_t>(number)).get();
  }

 private:
  kernels::cuda::EventTiming timing_;
  std::vector<kernels::cuda::Event> events_;
};

/// Has everything before the event been done? @throws CudaError for a failure on the device
bool is_done(cudaEvent_t event);

/// Pinned memory for what the host uploads, in two halves: one is filled while the device still
/// reads the other.
class PinnedFeed {
 public:
  /// Copies `bytes` into pinned memory and queues the upload. `from` may change afterwards.
  void upload(void* to, const void* from, std::int64_t bytes, cudaStream_t stream);
  /// A new step begins: use the other half.
  void next();

 private:
  struct Slot {
    kernels::cuda::PinnedMemory memory;
    std::int64_t bytes = 0;
    kernels::cuda::Event read;  // by the device
  };
  std::deque<Slot> halves_[2];
  int half_ = 0;
  std::size_t used_ = 0;
};

/// Staging through pinned memory and the streams of one device.
class PinnedStaging final : public StagingMemory {
 public:
  explicit PinnedStaging(int device_index);
  void* allocate_host(std::int64_t bytes) override;
  void free_host(void* memory) noexcept override;
  void copy_to_host(void* to_host, const void* from, std::int64_t bytes, void* queue) override;
  void copy_to_device(void* to, const void* from_host, std::int64_t bytes, void* queue) override;
  int mark(void* queue) override;
  bool reached(int mark) override;

 private:
  cudaStream_t stream_of(void* queue) const {
    return queue == nullptr ? own_.get() : static_cast<cudaStream_t>(queue);
  }

  int device_index_;
  kernels::cuda::Stream own_;
  Events events_{kernels::cuda::EventTiming::Off};
  std::vector<int> free_;
  int created_ = 0;
};

}  // namespace meshplan::runtime::cuda
