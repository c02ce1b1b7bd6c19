#pragma once

#include <array>
#include <cstddef>
#include <memory>

#include "kernels/backend.hpp"
#include "program/memory/address.hpp"

namespace meshplan::runtime {

class Device;

/// All memory of a rank's programs, laid out by their own memory plans: allocated and
/// touched once, never inside a step; only rows of experts beyond the plan lie elsewhere. Programs
/// that share an arena (training and evaluation of one plan) must agree on the layout of
/// parameters.
class Arena {
 public:
  /// Large enough for every program in the list.
  /// @param host  whose host memory holds what the programs offload; null: the backend's own does
  Arena(kernels::Backend& backend, std::span<const program::Program* const> programs,
        Device* host = nullptr);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  std::byte* at(const program::Program& program, const program::Address& address) const;
  std::byte* region(program::Region region) const {
    return bases_[static_cast<std::size_t>(region)];
  }
  template <class T>
  T* scalar(program::Scalar which) const {
    return reinterpret_cast<T*>(region(program::Region::Scalars) +
                                static_cast<std::int64_t>(which) * program::kScalarBytes);
  }
  std::int64_t bytes() const { return bytes_; }
  std::int64_t host_bytes() const { return host_bytes_; }

 private:
  kernels::Backend& backend_;
  Device* host_;
  void* memory_ = nullptr;
  std::int64_t bytes_ = 0;
  void* host_memory_ = nullptr;
  std::int64_t host_bytes_ = 0;
  std::array<std::byte*, program::kNumRegions> bases_{};
};

}  // namespace meshplan::runtime
