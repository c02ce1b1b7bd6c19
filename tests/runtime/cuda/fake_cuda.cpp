#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <vector>

#include "runtime/cuda/fakes.hpp"

namespace meshplan::test {

FakeCuda& fake_cuda() {
  static FakeCuda cuda;
  return cuda;
}

}  // namespace meshplan::test

using meshplan::test::fake_cuda;

namespace {

/// A handle is an address that nobody else has.
template <class Handle>
cudaError_t make_handle(Handle* handle) {
  *handle = reinterpret_cast<Handle>(std::malloc(1));
  return cudaSuccess;
}
template <class Handle>
cudaError_t free_handle(Handle handle) {
  std::free(handle);
  return cudaSuccess;
}

/// Gives a graph what another holds.
template <class Handle>
cudaError_t make_graph(Handle* graph, void* source) {
  make_handle(graph);
  auto& captured = fake_cuda().captured;
  const auto [begin, end] = captured.equal_range(source);
  std::vector<ncclComm_t> communicators;
  std::transform(begin, end, std::back_inserter(communicators),
                 [](const auto& one) { return one.second; });
  for (ncclComm_t one : communicators) captured.emplace(*graph, one);
  return cudaSuccess;
}
template <class Handle>
cudaError_t free_graph(Handle graph) {
  fake_cuda().captured.erase(graph);
  return free_handle(graph);
}

cudaError_t state_of_queue() {
  if (fake_cuda().failure != cudaSuccess) return fake_cuda().failure;
  return fake_cuda().queues_end ? cudaSuccess : cudaErrorNotReady;
}

}  // namespace

// What the runtime's header declares; the names of errors are CUDA's own.

const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorNoDevice ? "no CUDA-capable device is detected" : "an error";
}
const char* cudaGetErrorName(cudaError_t error) {
  return error == cudaErrorLaunchFailure ? "cudaErrorLaunchFailure" : "cudaError";
}
cudaError_t cudaGetLastError() {
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
  *count = fake_cuda().num_devices;
  return fake_cuda().device_count_status;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = fake_cuda().driver_version;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int /*device*/) {
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int /*device*/) {
  *properties = {};
  std::strcpy(properties->name, "a fake GPU");
  properties->major = 9;
  properties->multiProcessorCount = 132;
  properties->l2CacheSize = 50 << 20;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* text, int bytes, int device) {
  std::snprintf(text, static_cast<std::size_t>(bytes), "0000:%02X:00.0", 16 * (device + 1));
  return cudaSuccess;
}
cudaError_t cudaDeviceGetP2PAttribute(int* value, cudaDeviceP2PAttr attribute, int /*from*/,
                                      int /*to*/) {
  *value = attribute == cudaDevP2PAttrNativeAtomicSupported
               ? static_cast<int>(fake_cuda().peers_have_atomics)
               : 1;
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *free = std::size_t{79} << 30;
  *total = std::size_t{80} << 30;
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  *memory = std::malloc(bytes);
  return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  std::free(memory);
  return cudaSuccess;
}
cudaError_t cudaMallocAsync(void** memory, std::size_t bytes, cudaStream_t /*stream*/) {
  return cudaMalloc(memory, bytes);
}
cudaError_t cudaFreeAsync(void* memory, cudaStream_t /*stream*/) {
  return cudaFree(memory);
}
cudaError_t cudaMallocHost(void** memory, std::size_t bytes) {
  return cudaMalloc(memory, bytes);
}
cudaError_t cudaFreeHost(void* memory) {
  return cudaFree(memory);
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind /*kind*/,
                            cudaStream_t /*stream*/) {
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t bytes, cudaStream_t /*stream*/) {
  std::memset(memory, value, bytes);
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned /*flags*/,
                                         int /*priority*/) {
  ++fake_cuda().num_streams;
  return make_handle(stream);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  --fake_cuda().num_streams;
  return free_handle(stream);
}
cudaError_t cudaStreamQuery(cudaStream_t /*stream*/) {
  return state_of_queue();
}
cudaError_t cudaStreamWaitEvent(cudaStream_t /*stream*/, cudaEvent_t /*event*/,
                                unsigned /*flags*/) {
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t /*stream*/, cudaStreamCaptureMode /*mode*/) {
  fake_cuda().capturing = true;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t /*stream*/, cudaGraph_t* graph) {
  fake_cuda().capturing = false;
  make_graph(graph, nullptr);
  fake_cuda().captured.erase(nullptr);
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long /*flags*/) {
  return make_graph(executable, graph);
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return free_graph(graph);
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  return free_graph(executable);
}
cudaError_t cudaGraphUpload(cudaGraphExec_t /*executable*/, cudaStream_t /*stream*/) {
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t /*executable*/, cudaStream_t /*stream*/) {
  return state_of_queue();
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t /*begin*/, cudaEvent_t /*end*/) {
  *milliseconds = 0;
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned /*flags*/) {
  return make_handle(event);
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return free_handle(event);
}
cudaError_t cudaEventRecord(cudaEvent_t /*event*/, cudaStream_t /*stream*/) {
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t /*event*/) {
  return state_of_queue();
}
cudaError_t cudaEventSynchronize(cudaEvent_t /*event*/) {
  return state_of_queue();
}
