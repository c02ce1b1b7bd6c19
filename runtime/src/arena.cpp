#include "runtime/arena.hpp"

#include <algorithm>

namespace meshplan::runtime {

Arena::Arena(kernels::Backend& backend, std::span<const program::Program* const> programs)
    : backend_(backend) {
  std::array<std::int64_t, program::kNumRegions> offsets{};
  for (std::size_t region = 0; region < offsets.size(); ++region) {
    offsets[region] = bytes_;
    std::int64_t largest = 0;
    for (const program::Program* program : programs)
      largest = std::max(largest, program->memory.regions[region].bytes());
    bytes_ += largest;
  }
  memory_ = backend.allocate(bytes_);
  for (std::size_t region = 0; region < offsets.size(); ++region)
    bases_[region] = static_cast<std::byte*>(memory_) + offsets[region];
}

Arena::~Arena() {
  backend_.free(memory_);
}

std::byte* Arena::at(const program::Program& program, const program::Address& address) const {
  const auto index = static_cast<std::size_t>(address.region);
  return bases_[index] + address.slot * program.memory.regions[index].stride_bytes + address.offset;
}

}  // namespace meshplan::runtime
