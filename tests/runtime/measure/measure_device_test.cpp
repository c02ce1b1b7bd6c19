// Timing on a device whose every cost is known.
#include "measure/measure_device.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "measure/call_timer.hpp"
#include "os/pci_device.hpp"
#include "program/plans.hpp"
#include "runtime/execute/recording_device.hpp"
#include "runtime/execute/virtual_gpu.hpp"
#include "runtime/measure/calibrate.hpp"
#include "runtime/temporary_folder.hpp"

namespace meshplan::runtime {
namespace {

using test::VirtualCosts;
using test::VirtualGpu;

TEST_CASE("A call on a device with queues takes the device's time", "[runtime][measure]") {
  constexpr double kCall = 7e-6;
  VirtualGpu gpu({}, true);
  CallTimer timer(gpu);
  for (const bool capturable : {false, true}) {
    const int replayed = gpu.graphs_replayed();
    const std::vector<double> times =
        timer.time({.call = [&] { gpu.spend(kCall); }, .capturable = capturable}, Seconds{0.01});
    REQUIRE(times.size() >= 5);
    for (const double seconds : times) CHECK(seconds == Approx(kCall));
    CHECK((gpu.graphs_replayed() > replayed) == capturable);
  }
}

TEST_CASE("A call goes round its operands before it is timed, and while it is",
          "[runtime][measure]") {
  VirtualGpu gpu({}, true);
  int calls = 0;
  CallTimer(gpu).time({.call =
                           [&] {
                             ++calls;
                             gpu.spend(1.0);  // so long that one call would do
                           },
                       .distinct = 10},
                      Seconds{0});
  CHECK(calls == 10 + 4 + 10);  // warm-up, probe, graph
}

TEST_CASE("Copies are timed in each direction", "[runtime][measure]") {
  const VirtualCosts costs;
  VirtualGpu gpu(costs, true);
  const std::vector<std::int64_t> sizes = {1000, 1'000'000};
  const auto samples = measure_copies(gpu, sizes, Seconds{1e-3});
  REQUIRE(samples.size() == 6);
  for (const program::CopySample& sample : samples) {
    const bool within = sample.kind == "device_to_device";
    const double per_byte = within ? costs.seconds_per_copied_byte : costs.seconds_per_host_byte;
    CHECK(sample.seconds == Approx(costs.launch + per_byte * static_cast<double>(sample.bytes)));
  }
  CHECK(std::ranges::count(samples, "device_to_host", &program::CopySample::kind) == 2);
}

TEST_CASE("A launch by itself costs more than in a graph", "[runtime][measure]") {
  const VirtualCosts costs;
  VirtualGpu gpu(costs, true);
  const program::LaunchSample sample = measure_launch(gpu);
  CHECK(sample.device_seconds == Approx(costs.launch_in_graph));
  CHECK(sample.queued_seconds == Approx(costs.launch));
  CHECK(sample.host_seconds > 0);
}

TEST_CASE("Calibration on a GPU times operators by the device's clock", "[runtime][measure]") {
  const VirtualCosts costs;
  VirtualGpu gpu(costs, true);
  const auto world = test::make_recording_world(0, 1, nullptr);
  program::Workload workload;
  workload.seq_len = 16;
  workload.global_batch_size = 16;
  workload.precision = DType::BF16;
  const std::vector<int> micro_batches = {2};
  CalibrationOptions options;
  options.shapes = shapes_to_measure(program::test::llama_style(), workload, 2, micro_batches);
  options.operators = {.seconds_per_operator = 1e-4, .total_seconds = 1e-3};
  const program::CalibrationSamples samples =
      calibrate(options, {.machine_of_rank = {0}, .cores_of_machine = {1}},
                program::default_collective_table(), *world, gpu, {});
  REQUIRE(samples.gpus.size() == 1);
  CHECK(samples.device_driven);
  CHECK(samples.memory_rate ==
        Approx(2.0 * (256 << 20) / (costs.launch + costs.seconds_per_copied_byte * (256 << 20))));
  CHECK_FALSE(samples.copies.empty());
  int products = 0;
  for (const program::OperatorSample& sample : samples.operators) {
    if (sample.signature.compare(0, 15, "linear.forward ") != 0) continue;
    ++products;
    CHECK(sample.seconds == Approx(costs.launch_in_graph + costs.seconds_per_flop * sample.flops));
    CHECK(sample.seconds_busy == sample.seconds);  // nobody else runs
  }
  CHECK(products >= 8);  // four layers and the head at two tp
}

TEST_CASE("What Linux knows about a slot is read", "[runtime][measure]") {
  const test::TemporaryFolder folder;
  const std::string device = folder.path() + "/0000:3b:00.0";
  std::filesystem::create_directory(device);
  std::ofstream(device + "/max_link_speed") << "32.0 GT/s PCIe\n";
  std::ofstream(device + "/max_link_width") << "16\n";
  std::ofstream(device + "/numa_node") << "1\n";
  CHECK(read_pci_device("0000:3B:00.0", folder.path()) ==
        PciDevice{.link = "32.0 GT/s PCIe x16", .numa_node = 1});
  std::ofstream(device + "/numa_node") << "-1\n";  // Linux: the firmware names none
  CHECK_FALSE(read_pci_device("0000:3B:00.0", folder.path()).numa_node);
  CHECK(read_pci_device("0000:FF:00.0", folder.path()) == PciDevice{});
}

}  // namespace
}  // namespace meshplan::runtime
