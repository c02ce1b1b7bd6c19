#include <chrono>
#include <limits>

#include "core/error.hpp"
#include "runtime/execute/device.hpp"
#include "runtime/os/host_info.hpp"

namespace meshplan::runtime {
namespace {

[[noreturn]] void no_queues() {
  throw InvariantError("a host device has no queues; issue by its own rules()");
}

}  // namespace

double monotonic_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::int64_t Device::free_bytes() const {
  const std::int64_t bytes = available_memory_bytes();
  return bytes > 0 ? bytes : std::numeric_limits<std::int64_t>::max();
}

void HostDevice::set_mark(int /*mark*/, program::Lane /*lane*/) {
  no_queues();
}
void HostDevice::wait_mark(int /*mark*/, program::Lane /*lane*/) {
  no_queues();
}
void HostDevice::begin_capture() {
  no_queues();
}
std::unique_ptr<CapturedGraph> HostDevice::end_capture() {
  no_queues();
}

void HostDevice::upload(void* to, const void* from, std::int64_t bytes, program::Lane /*lane*/) {
  backend_.copy_to_device(to, from, bytes);
}

void HostDevice::stamp(int number, program::Lane /*lane*/) {
  backend_.synchronize();
  const auto index = static_cast<std::size_t>(number);
  if (index >= stamps_.size()) stamps_.resize(index + 1);
  stamps_[index] = monotonic_seconds();
}

}  // namespace meshplan::runtime
