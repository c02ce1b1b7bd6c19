// On GPUs: the contract of Communicator by NCCL and by staging, and whole models against one CPU
// rank. Any number of ranks share a GPU by staging; NCCL is tested where each rank has its own.
#include <cuda_runtime.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <iostream>
#include <utility>

#include "comm/host_communicator.hpp"
#include "kernels/cpu_backend.hpp"
#include "kernels/cuda/check.hpp"
#include "kernels/cuda_backend.hpp"
#include "mpi_test_session.hpp"
#include "program/plans.hpp"
#include "runtime/comm/communicator_contract.hpp"
#include "runtime/cuda/cuda_device.hpp"
#include "runtime/first_ranks.hpp"
#include "runtime/parity/parity_support.hpp"

namespace meshplan::test {
namespace {

using program::ParallelConfig;
using program::Plan;
using runtime::Communicator;
using runtime::GpuCommunication;

/// Memory of the GPU, as a run's is: the host cannot touch it.
class DeviceSpace final : public runtime::contract::MemorySpace {
 public:
  void* allocate(std::size_t bytes) override {
    void* memory = nullptr;
    kernels::cuda::check(cudaMalloc(&memory, std::max<std::size_t>(bytes, 1)), "cudaMalloc");
    return memory;
  }
  void free(void* memory) noexcept override { cudaFree(memory); }
  void write(void* to, const void* from_host, std::size_t bytes) override {
    kernels::cuda::check(cudaMemcpy(to, from_host, bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
    kernels::cuda::check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");  // it is there
  }
  void read(void* to_host, const void* from, std::size_t bytes) override {
    kernels::cuda::check(cudaMemcpy(to_host, from, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
  }
};

/// The contract's buffers are the GPU's as long as this lives.
class DeviceBuffers {
 public:
  DeviceBuffers() { std::swap(runtime::contract::memory_space(), other_); }
  ~DeviceBuffers() { std::swap(runtime::contract::memory_space(), other_); }
  DeviceBuffers(const DeviceBuffers&) = delete;
  DeviceBuffers& operator=(const DeviceBuffers&) = delete;

 private:
  DeviceSpace memory_;
  runtime::contract::MemorySpace* other_ = &memory_;
};

int num_gpus() {
  return kernels::cuda_devices().count;
}

const bool needs_gpu = [] {
  what_is_missing = [] {
    const kernels::CudaDevices devices = kernels::cuda_devices();
    return devices.count > 0 ? std::string() : "no GPU (" + devices.reason + ")";
  };
  return true;
}();

std::unique_ptr<runtime::Device> gpu(const Communicator& world, GpuCommunication communication,
                                     bool capture = true) {
  return runtime::make_cuda_device({.device_index = world.rank() % num_gpus(),
                                    .communication = communication,
                                    .capture = capture});
}

bool each_has_a_gpu(const Communicator& world) {
  const bool enough = world.size() <= num_gpus();
  if (!enough && world.rank() == 0)
    std::cout << fmt::format("not tested: NCCL with {} ranks, for there is {} GPU\n", world.size(),
                             num_gpus());
  return enough;
}

Plan make_plan(const models::ModelSpec& model, const ParallelConfig& parallel) {
  Plan plan;
  plan.model = model;
  plan.workload.seq_len = 16;
  plan.workload.global_batch_size = 8;
  plan.workload.optimizer.learning_rate = 1e-2;
  plan.workload.optimizer.warmup_steps = 2;
  plan.bucket_bytes = 64 << 10;
  plan.parallel = parallel;
  return plan;
}

void check_parity(GpuCommunication communication) {
  constexpr int kSteps = 5;  // warm-up, capture, three replays
  const auto world = runtime::make_host_world(mpi_session(), {});
  const auto cpu = kernels::make_cpu_backend(1);
  const int self = world->rank();
  const auto alone = world->create_group(std::span(&self, 1), "alone");
  for (const models::ModelSpec& model :
       {program::test::llama_style(), program::test::gpt2_style()}) {
    const RunResult reference = run_plan(make_plan(model, {}), kSteps, *alone, *cpu);
    for (const ParallelConfig& parallel :
         {ParallelConfig{}, ParallelConfig{.tp = 2}, ParallelConfig{.tp = 2, .sp = true},
          ParallelConfig{.pp = 2}, ParallelConfig{.dp = 2}, ParallelConfig{.pp = 4},
          ParallelConfig{.tp = 2, .pp = 2, .sp = true}, ParallelConfig{.tp = 2, .dp = 2}}) {
      if (parallel.world_size() > world->size()) continue;
      const auto group = first_ranks(*world, parallel.world_size());
      if (group == nullptr) continue;
      const auto device = gpu(*group, communication);
      const RunResult run = run_plan(make_plan(model, parallel), kSteps, *group, *device);
      INFO(model.name << " " << program::to_string(parallel));
      // fp32 on both; sums of a few hundred terms in another order: 16 roundings of 2^-24 and what
      // five steps of Adam make of them.
      CHECK(compare_gradients(run, reference).relative <= 1e-5);
      for (std::size_t step = 0; step < kSteps; ++step)
        CHECK(std::abs(run.losses[step] - reference.losses[step]) <=
              1e-4 * reference.losses.front());
      const auto eager = gpu(*group, communication, /*capture=*/false);
      const RunResult again = run_plan(make_plan(model, parallel), kSteps, *group, *eager);
      CHECK(again.losses == run.losses);  // a captured step is the same step
      CHECK(again.weights_hash == run.weights_hash);
    }
  }
}

}  // namespace

TEST_CASE("Staging through pinned memory keeps the contract", "[gpu]") {
  const DeviceBuffers on_device;
  const auto host = runtime::make_host_world(mpi_session(), {});
  const auto device = gpu(*host, GpuCommunication::Mpi);
  const auto world = device->make_world(*host);
  for (const std::int64_t count : {0, 1, 3001}) {
    runtime::contract::check_reductions(*world, count);
    runtime::contract::check_movement(*world, DType::BF16, count);
  }
  runtime::contract::check_all_to_all_v(*world, 333);
  runtime::contract::check_point_to_point(*world, 30'001);
  runtime::contract::check_grouped_transfers(*world, 1001);
  runtime::contract::check_concurrent_groups(*world);
  runtime::contract::check_many_in_flight(*world);
  runtime::contract::check_timeout(*world);
  runtime::contract::check_invalid_calls(*world);
}

TEST_CASE("NCCL keeps the contract", "[gpu]") {
  const DeviceBuffers on_device;
  const auto host = runtime::make_host_world(mpi_session(), {});
  if (!each_has_a_gpu(*host)) return;
  const auto device = gpu(*host, GpuCommunication::Nccl);
  const auto world = device->make_world(*host);
  for (const std::int64_t count : {0, 1, 3001}) {
    runtime::contract::check_reductions(*world, count);
    for (const DType dtype : {DType::F64, DType::F32, DType::BF16, DType::I32, DType::U8})
      runtime::contract::check_movement(*world, dtype, count);
  }
  runtime::contract::check_all_to_all_v(*world, 333);
  runtime::contract::check_grouped_transfers(*world, 1001);
  runtime::contract::check_group_order(*world);
  runtime::contract::check_determinism(*world, 1001);
  runtime::contract::check_many_in_flight(*world);
  runtime::contract::check_invalid_calls(*world);
}

TEST_CASE("Plans on GPUs give the losses and gradients of one CPU rank, by staging", "[gpu]") {
  check_parity(GpuCommunication::Mpi);
}

TEST_CASE("Plans on GPUs give the losses and gradients of one CPU rank, by NCCL", "[gpu]") {
  if (!each_has_a_gpu(*runtime::make_host_world(mpi_session(), {}))) return;
  check_parity(GpuCommunication::Nccl);
}

TEST_CASE("A device that does not exist is refused", "[gpu]") {
  CHECK_THROWS(runtime::make_cuda_device({.device_index = num_gpus()}));
}

}  // namespace meshplan::test
