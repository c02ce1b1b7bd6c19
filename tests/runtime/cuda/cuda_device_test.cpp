// A rank's GPU against stand-ins for libcudart and libnccl: what it makes, and that it ends.
#include "runtime/cuda/cuda_device.hpp"

#include <array>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <string>

#include "core/error.hpp"
#include "kernels/cuda_backend.hpp"
#include "runtime/cuda/fakes.hpp"
#include "runtime/cuda/host_world.hpp"

namespace meshplan::kernels {

/// What computes plays no part here.
std::unique_ptr<CudaBackend> make_cuda_backend(int /*device_index*/,
                                               const CudaBackendOptions& /*options*/) {
  return nullptr;
}

}  // namespace meshplan::kernels

namespace meshplan::test {
namespace {

using program::Lane;
using runtime::Communicator;
using runtime::GpuCommunication;

std::unique_ptr<runtime::Device> make_device(GpuCommunication communication) {
  reset_fakes();
  return runtime::make_cuda_device({.communication = communication});
}

}  // namespace

TEST_CASE("Communicators whose work was captured end when the graph has gone",
          "[runtime][cuda][nccl]") {
  const auto device = make_device(GpuCommunication::Nccl);
  HostWorld host(2, {});
  {
    const std::unique_ptr<Communicator> world = device->make_world(host);
    const std::unique_ptr<Communicator> tp = world->create_group(std::array{0, 1}, "tp");
    std::array<float, 4> data{};
    const runtime::MutableBuffer buffer{data.data(), 4, DType::F32};
    tp->queue_on(device->queue(Lane::Tp));
    device->begin_capture();
    tp->all_reduce(buffer, buffer, runtime::ReduceOp::Sum);
    const auto graph = device->end_capture();
    graph->replay();
    device->synchronize();
    CHECK(fake_cuda().captured.size() == 1);
  }
  CHECK(fake_cuda().captured.empty());
  CHECK(fake_nccl().alive.empty());
  CHECK(fake_nccl().destroyed.size() == 2);
  CHECK(fake_nccl().aborted.empty());
}

TEST_CASE("A lane that no program uses has no stream", "[runtime][cuda]") {
  const auto device = make_device(GpuCommunication::Nccl);
  HostWorld host(2, {});
  const std::unique_ptr<Communicator> world = device->make_world(host);
  const std::unique_ptr<Communicator> tp = world->create_group(std::array{0, 1}, "tp");
  CHECK(fake_cuda().num_streams == 1);  // that computes
  CHECK(device->queue(Lane::Compute) != device->queue(Lane::Tp));
  tp->queue_on(device->queue(Lane::Tp));
  tp->barrier();
  CHECK(fake_cuda().num_streams == 2);
  tp->queue_on(nullptr);
  tp->barrier().wait();
  CHECK(fake_cuda().num_streams == 3);  // of callers without a queue
}

TEST_CASE("A rank by itself needs no NCCL, and its steps may take any time", "[runtime][cuda]") {
  const auto device = make_device(GpuCommunication::None);
  HostWorld host(1, {});
  CHECK(device->make_world(host) == nullptr);
  CHECK(device->rules().communications == program::CommunicationDriver::Device);
  CHECK(device->rules().capture);
  CHECK(fake_nccl().alive.empty());
  HostWorld two(2, {});
  CHECK_THROWS_AS(device->make_world(two), InvariantError);
}

TEST_CASE("Streams get as many hardware queues as there are, unless the user says otherwise",
          "[runtime][cuda]") {
  const char* const name = "CUDA_DEVICE_MAX_CONNECTIONS";
  ::unsetenv(name);
  runtime::prepare_cuda(/*shared=*/false);
  CHECK(std::string(std::getenv(name)) == "32");
  ::setenv(name, "1", 1);
  runtime::prepare_cuda(false);
  CHECK(std::string(std::getenv(name)) == "1");
  ::unsetenv(name);
}

}  // namespace meshplan::test
