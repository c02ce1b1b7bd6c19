#include "library/cudnn_plan.hpp"

#include <algorithm>
#include <array>

#include "core/error.hpp"

namespace meshplan::kernels::cuda {

namespace {

bool is_deterministic(const CudnnDescriptor& configuration) {
  const CudnnDescriptor engine = make(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t handle = engine.get();
  std::int64_t count = 0;
  check(cudnnBackendGetAttribute(configuration.get(), CUDNN_ATTR_ENGINECFG_ENGINE,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &handle),
        "cudnnBackendGetAttribute");
  std::array<cudnnBackendNumericalNote_t, CUDNN_NUMERICAL_NOTE_TYPE_COUNT> notes{};
  check(
      cudnnBackendGetAttribute(handle, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                               static_cast<std::int64_t>(notes.size()), &count, notes.data()),
      "cudnnBackendGetAttribute");
  return std::find(notes.begin(), notes.begin() + count, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) ==
         notes.begin() + count;
}

CudnnDescriptor operation_graph(const CudnnTarget& target, const CudnnGraph& graph) {
  CudnnDescriptor result = make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  if (target.handle != nullptr)
    set(result, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, &target.handle);
  set(result, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
      graph.operations().data(), graph.operations().size());
  return result;
}

std::vector<CudnnDescriptor> engine_configurations(const CudnnTarget& target,
                                                   const CudnnDescriptor& graph) {
  constexpr cudnnBackendHeurMode_t kMode = CUDNN_HEUR_MODE_A;
  constexpr std::size_t kMost = 16;
  const CudnnDescriptor heuristics = make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  set(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph.get());
  set(heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, &kMode);
  if (target.device != nullptr) set(heuristics, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, target.device);
  if (cudnnBackendFinalize(heuristics.get()) != CUDNN_STATUS_SUCCESS) return {};
  std::vector<CudnnDescriptor> configurations;
  std::vector<cudnnBackendDescriptor_t> handles;
  for (std::size_t i = 0; i < kMost; ++i) {
    configurations.push_back(make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
    handles.push_back(configurations.back().get());
  }
  std::int64_t count = 0;
  check(cudnnBackendGetAttribute(heuristics.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, kMost, &count, handles.data()),
        "cudnnBackendGetAttribute");
  configurations.resize(static_cast<std::size_t>(std::min<std::int64_t>(count, kMost)));
  return configurations;
}

std::string last_error() {
  std::array<char, 512> text{};
  cudnnGetLastErrorString(text.data(), text.size());
  return text.data();
}

}  // namespace

CudnnDescriptor described_device(const std::string& json) {
  CudnnDescriptor device = make(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  set(device, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, json.c_str(),
      json.size() + 1);
  finalize(device);
  return device;
}

CudnnPlan plan_graph(const CudnnTarget& target, const CudnnGraph& graph, std::size_t first_engine,
                     std::string& refusal) {
  const CudnnDescriptor operations = operation_graph(target, graph);
  if (cudnnBackendFinalize(operations.get()) != CUDNN_STATUS_SUCCESS) {
    refusal = "cuDNN refuses the graph: " + last_error();
    return {};
  }
  refusal = "cuDNN has no engine for it";
  const std::vector<CudnnDescriptor> configurations = engine_configurations(target, operations);
  for (std::size_t engine = first_engine; engine < configurations.size(); ++engine) {
    const CudnnDescriptor& configuration = configurations[engine];
    if (!is_deterministic(configuration)) {
      refusal = "cuDNN's engines for it are not deterministic";
      continue;
    }
    CudnnDescriptor plan = make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    if (target.handle != nullptr)
      set(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, &target.handle);
    if (target.device != nullptr) set(plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, target.device);
    set(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration.get());
    if (cudnnBackendFinalize(plan.get()) != CUDNN_STATUS_SUCCESS) {
      refusal = "cuDNN cannot plan it: " + last_error();
      continue;
    }
    CudnnPlan result{.engine = engine};
    std::int64_t count = 0;
    check(cudnnBackendGetAttribute(plan.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                   CUDNN_TYPE_INT64, 1, &count, &result.workspace_bytes),
          "cudnnBackendGetAttribute");
    result.plan = std::move(plan);
    refusal.clear();
    return result;
  }
  return {};
}

void execute(cudnnHandle_t handle, const CudnnPlan& plan,
             const std::vector<std::pair<std::int64_t, void*>>& operands, void* workspace) {
  std::vector<std::int64_t> ids;
  std::vector<void*> addresses;
  for (const auto& [id, address] : operands) {
    ids.push_back(id);
    addresses.push_back(address);
  }
  const CudnnDescriptor pack = make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, ids.data(), ids.size());
  set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, addresses.data(),
      addresses.size());
  set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, &workspace);
  finalize(pack);
  check(cudnnBackendExecute(handle, plan.plan.get(), pack.get()), "cudnnBackendExecute");
}

}  // namespace meshplan::kernels::cuda
