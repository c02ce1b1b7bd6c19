#include "ranks/devices.hpp"

#include <algorithm>
#include <fmt/format.h>

#include "core/error.hpp"
#include "kernels/cpu_backend.hpp"
#include "options/inputs.hpp"
#if MESHPLAN_HAS_CUDA
#include "kernels/cuda_backend.hpp"
#include "output/output.hpp"
#include "runtime/cuda/cuda_device.hpp"
#else
#include "ranks/cuda_program.hpp"
#endif

namespace meshplan::cli {
namespace {

/// Why there is no GPU to use; empty = there is one. Without CUDA linked in, the program that has
/// it takes over where it can.
std::string no_gpu([[maybe_unused]] const DeviceOptions& options) {
#if MESHPLAN_HAS_CUDA
  runtime::prepare_cuda(options.share_gpu);
  const kernels::CudaDevices devices = kernels::cuda_devices();
  return devices.count > 0 ? "" : devices.reason;
#else
  return become_cuda_program();
#endif
}

#if MESHPLAN_HAS_CUDA
int most_ranks_on_a_machine(const runtime::JobLayout& layout) {
  std::size_t most = 0;
  for (int machine = 0; machine < layout.num_machines(); ++machine)
    most = std::max(most, layout.ranks_on(machine).size());
  return static_cast<int>(most);
}

/// All ranks must agree, also where machines have different numbers of GPUs.
bool all_agree(runtime::Communicator& world, bool yes) {
  std::int32_t votes = yes ? 1 : 0;
  const runtime::MutableBuffer buffer{&votes, 1, DType::I32};
  world.all_reduce(buffer, buffer, runtime::ReduceOp::Min).wait();
  return votes == 1;
}

void check_shared(const DeviceOptions& options, int pipeline_stages) {
  if (options.comm == "mpi")
    throw ConfigError("--share-gpu is for NCCL; with --comm mpi ranks share a GPU anyway");
  if (pipeline_stages > 1)
    throw ConfigError(fmt::format(
        "--share-gpu with pp = {}: stages that wait for each other on one GPU would hang; "
        "use --comm mpi",
        pipeline_stages));
}

runtime::GpuCommunication communication(const DeviceOptions& options, runtime::Job& job, int gpus) {
  if (job.world().size() == 1) return runtime::GpuCommunication::None;
  const int ranks = most_ranks_on_a_machine(job.layout());
  const bool fits = all_agree(job.world(), ranks <= gpus);
  if (options.comm == "mpi") return runtime::GpuCommunication::Mpi;
  if (fits || options.share_gpu) return runtime::GpuCommunication::Nccl;
  if (options.comm == "nccl")
    throw ConfigError(fmt::format(
        "--comm nccl: {} ranks on a machine with {} GPU{}; NCCL wants a GPU for each rank. Use "
        "--comm mpi, or --share-gpu to try NCCL all the same",
        ranks, gpus, gpus == 1 ? "" : "s"));
  return runtime::GpuCommunication::Mpi;
}

std::string words_of(runtime::GpuCommunication communication) {
  switch (communication) {
    case runtime::GpuCommunication::None:
      return "";
    case runtime::GpuCommunication::Nccl:
      return ", NCCL";
    case runtime::GpuCommunication::Mpi:
      return ", MPI by the host";
  }
  throw InvariantError("unknown communication between GPUs");
}

/// Ranks choose alike: the first speaks for all.
std::function<void(const std::string&)> said_by(int rank) {
  if (rank != 0) return nullptr;
  return [](const std::string& line) { output(stderr, "meshplan: {}\n", line); };
}

std::unique_ptr<runtime::Device> make_gpu(const DeviceOptions& options, int pipeline_stages,
                                          runtime::Job& job, std::string& name) {
  if (options.share_gpu) check_shared(options, pipeline_stages);
  const std::string reason = no_gpu(options);
  if (!reason.empty()) throw ConfigError("--device cuda: no GPU: " + reason);
  const int gpus = num_gpus();
  const std::vector<int> neighbours = job.layout().ranks_on(job.layout().machine());
  const auto local = std::ranges::find(neighbours, job.layout().rank) - neighbours.begin();
  const runtime::CudaDeviceOptions device{.device_index = static_cast<int>(local % gpus),
                                          .communication = communication(options, job, gpus),
                                          .shared = options.share_gpu,
                                          .capture = !options.no_graphs,
                                          .tune_products = options.gemm_cache.has_value(),
                                          .hang_timeout = Seconds{options.hang_timeout_s},
                                          .observer = &job.board(),
                                          .log = said_by(job.layout().rank)};
  auto made = runtime::make_cuda_device(device);
  name = made->backend().name() + words_of(device.communication);
  return made;
}
#endif

}  // namespace

void prepare_process([[maybe_unused]] const DeviceOptions& options, [[maybe_unused]] int rank) {
#if MESHPLAN_HAS_CUDA
  if (options.share_gpu) runtime::prepare_to_share(rank);
#endif
}

int num_gpus() {
#if MESHPLAN_HAS_CUDA
  return kernels::cuda_devices().count;
#else
  return 0;
#endif
}

DeviceKind choose_device(const DeviceOptions& options) {
  if (options.device == "cpu") return DeviceKind::Cpu;
  const std::string reason = no_gpu(options);
  if (options.device == "cuda" && !reason.empty())
    throw ConfigError("--device cuda: no GPU: " + reason);
  return reason.empty() ? DeviceKind::Cuda : DeviceKind::Cpu;
}

DeviceKind choose_device(const DeviceOptions& options, const program::Plan& plan,
                         const std::string& plan_file) {
  const bool asked = options.device == "cpu" || options.device == "cuda";
  if (asked || plan.cluster_json.empty()) return choose_device(options);
  if (cluster_of(plan, plan_file).device.kind == sim::DeviceKind::Cpu) return DeviceKind::Cpu;
  const std::string reason = no_gpu(options);
  if (!reason.empty())
    throw ConfigError(
        fmt::format("{}: cluster: is made of GPUs, but here is none: {}; "
                    "--device cpu runs the plan on processor cores",
                    plan_file, reason));
  return DeviceKind::Cuda;
}

std::unique_ptr<runtime::ReferenceProduct> make_reference_product(DeviceKind kind) {
  if (kind != DeviceKind::Cpu) return nullptr;
  return std::make_unique<runtime::ReferenceProduct>(kernels::make_cpu_backend(1));
}

RankDevice::RankDevice(const DeviceOptions& options, DeviceKind kind,
                       [[maybe_unused]] int pipeline_stages, [[maybe_unused]] runtime::Job& job) {
#if MESHPLAN_HAS_CUDA
  if (kind == DeviceKind::Cuda) {
    device_ = make_gpu(options, pipeline_stages, job, name_);
    return;
  }
#endif
  require_invariant(kind == DeviceKind::Cpu, "a GPU in a build without CUDA");
  backend_ = kernels::make_cpu_backend(options.threads_per_rank);
  device_ = std::make_unique<runtime::HostDevice>(*backend_);
  name_ = backend_->name();
}

}  // namespace meshplan::cli
