#include "execute/arena.hpp"

#include <algorithm>

#include "runtime/execute/device.hpp"

namespace meshplan::runtime {

Arena::Arena(kernels::Backend& backend, std::span<const program::Program* const> programs,
             Device* host)
    : backend_(backend), host_(host) {
  std::array<std::int64_t, program::kNumRegions> offsets{};
  std::array<bool, program::kNumRegions> on_host{};
  for (std::size_t region = 0; region < offsets.size(); ++region) {
    std::int64_t largest = 0;
    for (const program::Program* program : programs) {
      largest = std::max(largest, program->memory.regions[region].bytes());
      on_host[region] = on_host[region] || program->memory.regions[region].on_host;
    }
    std::int64_t& bytes = on_host[region] ? host_bytes_ : bytes_;
    offsets[region] = bytes;
    bytes += largest;
  }
  memory_ = backend.allocate(bytes_);
  if (host_bytes_ > 0)
    host_memory_ =
        host_ == nullptr ? backend.allocate(host_bytes_) : host_->allocate_host(host_bytes_);
  for (std::size_t region = 0; region < offsets.size(); ++region)
    bases_[region] =
        static_cast<std::byte*>(on_host[region] ? host_memory_ : memory_) + offsets[region];
}

Arena::~Arena() {
  backend_.free(memory_);
  if (host_memory_ == nullptr) return;
  if (host_ == nullptr)
    backend_.free(host_memory_);
  else
    host_->free_host(host_memory_);
}

std::byte* Arena::at(const program::Program& program, const program::Address& address) const {
  const auto index = static_cast<std::size_t>(address.region);
  return bases_[index] + address.slot * program.memory.regions[index].stride_bytes + address.offset;
}

}  // namespace meshplan::runtime
