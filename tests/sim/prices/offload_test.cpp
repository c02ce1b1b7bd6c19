#include "prices/offload.hpp"

#include <catch2/catch.hpp>

#include "sim/run_cases.hpp"
#include "sim/stacks/run_prediction.hpp"

namespace meshplan::sim {

// PCIe 4.0 x16 is 32 GB/s, 16 channels of DDR4-3200 are 409.6 GB/s for eight devices; copies and
// streams reach 0.8 of both: 25.6 and 40.96 GB/s.
TEST_CASE("Copies beside a task cost what exceeds it", "[sim][offload]") {
  const HostLink link = host_link(load_data_sheet("dgx-a100").device);
  CHECK(link.link_bytes_per_s == Approx(25.6e9));
  CHECK(link.memory_bytes_per_s == Approx(40.96e9));
  CHECK(beside_transfer(2.0, 25.6e9, link) == Approx(2.0));
  CHECK(beside_transfer(0.25, 25.6e9, link) == Approx(1.0));
}

// 1 s down of which 0.25 hide, 1 s of updates, 0.5 s up.
TEST_CASE("An optimizer on the host waits for the way there and back", "[sim][offload]") {
  const HostLink link = host_link(load_data_sheet("dgx-a100").device);
  CHECK(host_optimizer_seconds(25.6e9, 40.96e9, 12.8e9, 0.25, link) == Approx(2.25));
}

// NVLink-C2C: 450 GB/s in a direction for two devices.
TEST_CASE("A superchip reaches its host over NVLink-C2C", "[sim][offload]") {
  CHECK(host_link(load_data_sheet("gb200-nvl72").device).link_bytes_per_s == Approx(0.8 * 225e9));
  CHECK(host_link(load_data_sheet("dgx-b200").device).link_bytes_per_s == Approx(0.8 * 64e9));
}

TEST_CASE("What is offloaded leaves the device and costs time", "[sim][offload]") {
  TrainingRun run = small_gpt(8);
  const RunPrediction kept = predict(run);
  run.offload_optimizer = true;
  const RunPrediction host = predict(run);
  CHECK(host.memory.optimizer == 0);
  CHECK(host.memory.host == Approx(kept.memory.optimizer));
  CHECK(host.step_time_s > kept.step_time_s);
  CHECK(host.seconds.offload > 0);

  run = small_gpt(8);
  run.offload_activation_layers = 4;  // of eight
  const RunPrediction half = predict(run);
  CHECK(half.memory.activations == Approx(kept.memory.activations / 2));
  CHECK(half.memory.host == Approx(kept.memory.activations / 2));
  // This small model computes for less time than its activations travel.
  CHECK(half.step_time_s > kept.step_time_s);
}

TEST_CASE("Offloaded shards take weights, gradients and optimizer along", "[sim][offload]") {
  TrainingRun run = small_gpt(8);
  run.profile = "torchtitan";
  run.parallel.dp = 8;
  run.zero_stage = 3;
  const RunPrediction kept = predict(run);
  run.offload_parameters = true;
  const RunPrediction host = predict(run);
  CHECK(host.memory.gradients == 0);
  CHECK(host.memory.optimizer == 0);
  CHECK(host.memory.host == Approx(kept.memory.gradients + kept.memory.optimizer));
  CHECK(host.step_time_s > kept.step_time_s);
}

}  // namespace meshplan::sim
