// Plans of cuDNN graphs: which engine computes one, and running it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "library/cudnn_graph.hpp"

namespace meshplan::kernels::cuda {

struct CudnnHandleTraits {
  using Handle = cudnnHandle_t;
  static Handle null() noexcept { return nullptr; }
  static void destroy(Handle handle) noexcept { cudnnDestroy(handle); }
};
using CudnnHandle = UniqueHandle<CudnnHandleTraits>;

/// A plan to run a graph on a device.
struct CudnnPlan {
  CudnnDescriptor plan = CudnnDescriptor();
  std::int64_t workspace_bytes = 0;
  std::size_t engine = 0;  // of those that heuristics propose
};

/// What a graph is planned for: the device of a handle or, without one, a described device.
struct CudnnTarget {
  cudnnHandle_t handle = nullptr;
  cudnnBackendDescriptor_t device = nullptr;
};

/// A device by its properties in JSON (members as in tests/kernels/cuda/devices), which need not be
/// there. A plan for it cannot be executed.
CudnnDescriptor described_device(const std::string& json);

/// The first engine that heuristics propose, beginning with the one of number `first_engine`, that
/// finalizes and that has no note of being nondeterministic. (Engines without it may be so all the
/// same: see CudnnAttention.) @return no plan and why not in `refusal` where there is none
CudnnPlan plan_graph(const CudnnTarget& target, const CudnnGraph& graph, std::size_t first_engine,
                     std::string& refusal);

/// @param operands  (tensor id, address) of every tensor in memory and every constant
void execute(cudnnHandle_t handle, const CudnnPlan& plan,
             const std::vector<std::pair<std::int64_t, void*>>& operands, void* workspace);

}  // namespace meshplan::kernels::cuda
