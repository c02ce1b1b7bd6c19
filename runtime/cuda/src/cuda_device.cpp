#include "runtime/cuda/cuda_device.hpp"

#include <array>
#include <fmt/format.h>
#include <nvtx3/nvToolsExt.h>
#include <vector>

#include "core/error.hpp"
#include "gpu_description.hpp"
#include "kernels/cuda_backend.hpp"
#include "nccl_communicator.hpp"
#include "stream_pool.hpp"

namespace meshplan::runtime {
namespace {

using kernels::cuda::check;
using program::Lane;

struct GraphTraits {
  using Handle = cudaGraphExec_t;
  static Handle null() noexcept { return nullptr; }
  static void destroy(Handle graph) noexcept { cudaGraphExecDestroy(graph); }
};
using ExecutableGraph = kernels::cuda::UniqueHandle<GraphTraits>;

class CudaGraph final : public CapturedGraph {
 public:
  CudaGraph(ExecutableGraph graph, cudaStream_t stream)
      : graph_(std::move(graph)), stream_(stream) {
    check(cudaGraphUpload(graph_.get(), stream_), "cudaGraphUpload");
  }
  void replay() override { check(cudaGraphLaunch(graph_.get(), stream_), "cudaGraphLaunch"); }

 private:
  ExecutableGraph graph_;
  cudaStream_t stream_;
};

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(const CudaDeviceOptions& options) : options_(options) {
    const kernels::CudaDevices devices = kernels::cuda_devices();
    if (devices.count == 0) throw ConfigError("no GPU: " + devices.reason);
    if (options.device_index < 0 || options.device_index >= devices.count)
      throw ConfigError(fmt::format("GPU {} does not exist; this process sees GPUs 0 to {}",
                                    options.device_index, devices.count - 1));
    check(cudaSetDevice(options.device_index), "cudaSetDevice");
    clock_event_ = kernels::cuda::make_event(kernels::cuda::EventTiming::On);
    check(cudaDeviceGetStreamPriorityRange(&least_priority_, &greatest_priority_),
          "cudaDeviceGetStreamPriorityRange");
    backend_ =
        kernels::make_cuda_backend(options.device_index, {.stream = stream(Lane::Compute),
                                                          .allow_tf32 = options.allow_tf32,
                                                          .tune_products = options.tune_products,
                                                          .log = options.log});
    if (options.communication == GpuCommunication::Nccl)
      job_ =
          std::make_shared<cuda::NcclJob>(cuda::NcclOptions{.device_index = options.device_index,
                                                            .shared = options.shared,
                                                            .observer = options.observer,
                                                            .hang_timeout = options.hang_timeout});
  }
  ~CudaDevice() override {
    cudaSetDevice(options_.device_index);
    cudaDeviceSynchronize();  // queues are empty before what they use goes
  }

  kernels::Backend& backend() override { return *backend_; }
  kernels::ProductTuning* product_tuning() override { return backend_->product_tuning(); }
  IssueRules rules() const override {
    return {.queues = true,
            .communications = options_.communication == GpuCommunication::Mpi
                                  ? program::CommunicationDriver::Host
                                  : program::CommunicationDriver::Device,
            .capture = options_.capture && !options_.shared};
  }

  std::unique_ptr<Communicator> make_world(Communicator& host_world) override {
    switch (options_.communication) {
      case GpuCommunication::None:
        require_invariant(host_world.size() == 1, "ranks that cannot communicate");
        return nullptr;
      case GpuCommunication::Nccl:
        return cuda::make_nccl_world(host_world, job_);
      case GpuCommunication::Mpi:
        return make_staging_world(host_world, make_staging());
    }
    throw InvariantError("unknown communication between GPUs");
  }

  std::optional<program::GpuDescription> gpu() const override {
    return cuda::describe_gpu(options_.device_index);
  }
  std::shared_ptr<StagingMemory> make_staging() override {
    return std::make_shared<cuda::PinnedStaging>(options_.device_index);
  }

  void* queue(Lane lane) override { return stream(lane); }
  void set_mark(int mark, Lane lane) override {
    check(cudaEventRecord(marks_.at(mark), stream(lane)), "cudaEventRecord");
  }
  void wait_mark(int mark, Lane lane) override {
    check(cudaStreamWaitEvent(stream(lane), marks_.existing(mark), 0), "cudaStreamWaitEvent");
  }
  std::int64_t free_bytes() const override {
    std::size_t free = 0;
    std::size_t total = 0;
    check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    return static_cast<std::int64_t>(free);
  }
  void* allocate_host(std::int64_t bytes) override {
    void* memory = nullptr;
    check(cudaMallocHost(&memory, static_cast<std::size_t>(bytes)), "cudaMallocHost");
    return memory;
  }
  void free_host(void* memory) noexcept override { cudaFreeHost(memory); }
  void copy(void* to, const void* from, std::int64_t bytes, Lane lane) override {
    check(
        cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDefault, stream(lane)),
        "cudaMemcpyAsync");
  }

  void upload(void* to, const void* from, std::int64_t bytes, Lane lane) override {
    feed_.upload(to, from, bytes, stream(lane));
  }

  void begin_capture() override {
    check(cudaStreamBeginCapture(stream(Lane::Compute), cudaStreamCaptureModeThreadLocal),
          "cudaStreamBeginCapture");
  }
  std::unique_ptr<CapturedGraph> end_capture() override {
    cudaGraph_t recorded = nullptr;
    check(cudaStreamEndCapture(stream(Lane::Compute), &recorded), "cudaStreamEndCapture");
    cudaGraphExec_t executable = nullptr;
    const cudaError_t made = cudaGraphInstantiate(&executable, recorded, 0);
    cudaGraphDestroy(recorded);
    check(made, "cudaGraphInstantiate");
    auto graph = std::make_unique<CudaGraph>(ExecutableGraph(executable), stream(Lane::Compute));
    graph->replay();
    return graph;
  }

  void synchronize() override {
    const std::optional<Seconds> limit =
        job_ == nullptr ? std::nullopt : std::optional(options_.hang_timeout);
    for (const kernels::cuda::Stream& one : streams_) {
      if (one.get() == nullptr) continue;
      const bool ended = cuda::wait_for_device(job_.get(), options_.observer, limit, [&] {
        const cudaError_t status = cudaStreamQuery(one.get());
        if (status == cudaErrorNotReady) return false;
        check(status, "cudaStreamQuery");
        return true;
      });
      if (!ended) job_->give_up("what is queued on the GPU");
    }
    if (job_ != nullptr) job_->check();
    feed_.next();
    clock_set_ = false;
  }

  /// The first stamp of a step also sets the clock: the device is idle then, so that an event and
  /// the host's clock can be read together.
  void stamp(int number, Lane lane) override {
    if (!clock_set_) {
      check(cudaEventRecord(clock_event_.get(), stream(Lane::Compute)), "cudaEventRecord");
      check(cudaEventSynchronize(clock_event_.get()), "cudaEventSynchronize");
      clock_seconds_ = monotonic_seconds();
      clock_set_ = true;
    }
    check(cudaEventRecord(stamps_.at(number), stream(lane)), "cudaEventRecord");
  }
  double stamp_seconds(int number) const override {
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, clock_event_.get(), stamps_.existing(number)),
          "cudaEventElapsedTime");
    return clock_seconds_ + 1e-3 * static_cast<double>(milliseconds);
  }

  void push_range(const char* name) override { nvtxRangePushA(name); }
  void pop_range() override { nvtxRangePop(); }

 private:
  /// Made when a program first uses the lane: streams share a GPU's few hardware queues.
  /// Communication goes first where both could start, for others wait for it.
  cudaStream_t stream(Lane lane) {
    kernels::cuda::Stream& stream = streams_[static_cast<std::size_t>(lane)];
    if (stream.get() == nullptr)
      stream =
          kernels::cuda::make_stream(lane == Lane::Compute ? least_priority_ : greatest_priority_);
    return stream.get();
  }

  CudaDeviceOptions options_;
  int least_priority_ = 0;
  int greatest_priority_ = 0;
  std::array<kernels::cuda::Stream, program::kNumLanes> streams_;
  std::unique_ptr<kernels::CudaBackend> backend_;
  std::shared_ptr<cuda::NcclJob> job_;  // of NCCL, else null
  cuda::Events marks_{kernels::cuda::EventTiming::Off};
  cuda::Events stamps_{kernels::cuda::EventTiming::On};
  kernels::cuda::Event clock_event_;
  double clock_seconds_ = 0;
  bool clock_set_ = false;
  cuda::PinnedFeed feed_;
};

}  // namespace

std::unique_ptr<Device> make_cuda_device(const CudaDeviceOptions& options) {
  return std::make_unique<CudaDevice>(options);
}

void prepare_cuda(bool shared) {
  // Streams are spread over 8 hardware queues unless told otherwise. What two that share one have
  // queued runs in the order of the calls: computation would wait behind a communication that waits
  // for a peer. 32 is the most (CUDA C++ programming guide, environment variables).
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*replace=*/0);
  if (shared) ::setenv("CUDA_MODULE_LOADING", "EAGER", 0);  // later it would wait for the device
}

void prepare_to_share(int rank) {
  const std::string host = fmt::format("rank{}", rank);
  const std::pair<const char*, const char*> variables[] = {
      {"NCCL_HOSTID", host.c_str()},  // equal hosts and GPUs are refused as duplicates
      {"NCCL_SOCKET_IFNAME", "lo"},  {"NCCL_NET", "Socket"},    {"NCCL_IB_DISABLE", "1"},
      {"NCCL_MNNVL_ENABLE", "0"},    {"NCCL_NVLS_ENABLE", "0"}, {"NCCL_CUMEM_HOST_ENABLE", "0"},
      {"NCCL_MAX_CTAS", "2"},        {"NCCL_ALGO", "Ring"},     {"NCCL_PROTO", "Simple"},
      {"NCCL_RAS_ENABLE", "0"}};
  for (const auto& [name, value] : variables) ::setenv(name, value, /*replace=*/0);
}

}  // namespace meshplan::runtime
