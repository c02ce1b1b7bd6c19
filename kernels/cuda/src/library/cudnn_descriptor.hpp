// Objects of cuDNN's backend API: created, filled attribute by attribute, finalized.
#pragma once

#include <cudnn.h>

#include <cstdint>

#include "kernels/cuda/handles.hpp"
#include "library/library_checks.hpp"

namespace meshplan::kernels::cuda {

struct CudnnDescriptorTraits {
  using Handle = cudnnBackendDescriptor_t;
  static Handle null() noexcept { return nullptr; }
  static void destroy(Handle handle) noexcept { cudnnBackendDestroyDescriptor(handle); }
};
using CudnnDescriptor = UniqueHandle<CudnnDescriptorTraits>;

inline CudnnDescriptor make(cudnnBackendDescriptorType_t type) {
  cudnnBackendDescriptor_t handle = nullptr;
  check(cudnnBackendCreateDescriptor(type, &handle), "cudnnBackendCreateDescriptor");
  return CudnnDescriptor(handle);
}

template <class T>
void set(const CudnnDescriptor& descriptor, cudnnBackendAttributeName_t name,
         cudnnBackendAttributeType_t type, const T* values, std::size_t count = 1) {
  check(cudnnBackendSetAttribute(descriptor.get(), name, type, static_cast<std::int64_t>(count),
                                 values),
        "cudnnBackendSetAttribute");
}
inline void set(const CudnnDescriptor& descriptor, cudnnBackendAttributeName_t name,
                const cudnnBackendDescriptor_t& value) {
  set(descriptor, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, &value);
}
inline void finalize(const CudnnDescriptor& descriptor) {
  check(cudnnBackendFinalize(descriptor.get()), "cudnnBackendFinalize");
}

}  // namespace meshplan::kernels::cuda
