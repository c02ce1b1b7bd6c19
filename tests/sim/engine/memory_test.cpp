#include "sim/engine/memory.hpp"

#include <catch2/catch.hpp>

#include "core/units.hpp"
#include "sim/plans.hpp"
#include "sim/stacks/cluster_preset.hpp"

namespace meshplan::sim {
namespace {

program::Plan llama2_7b(program::ParallelConfig parallel) {
  program::Plan plan = tiny_plan(parallel, 8);
  plan.model = models::load_preset("llama2-7b");
  plan.workload.seq_len = 512;
  plan.workload.precision = DType::BF16;
  return plan;
}

}  // namespace

// 6,738,415,616 parameters in bf16 with fp32 master weights, gradients and two moments:
// 2 + 4 + 4 + 8 = 18 bytes each, 121.3 GB before any activation. An H100 has 79.6 GiB = 85.5 GB.
TEST_CASE("Llama 2 7B does not fit on one H100", "[sim][memory]") {
  const double parameters = 6'738'415'616.0;
  const auto report =
      memory_report(program::lower_all(llama2_7b({})), load_cluster_preset("one-h100"));
  const StageMemory& stage = report.stages.front();
  CHECK(stage.parameters == Approx(2 * parameters).epsilon(1e-4));
  CHECK(stage.master_parameters == Approx(4 * parameters).epsilon(1e-4));
  CHECK(stage.gradients == Approx(4 * parameters).epsilon(1e-4));
  CHECK(stage.optimizer == Approx(8 * parameters).epsilon(1e-4));
  CHECK_FALSE(report.fits());
  CHECK(report.missing_bytes() > 18 * parameters - 79.6 * kGib);
  CHECK(report.missing_bytes() == Approx(report.peak_bytes - report.capacity_bytes));
}

TEST_CASE("Eight tensor-parallel H100s hold Llama 2 7B", "[sim][memory]") {
  const Cluster cluster = load_cluster_preset("dgx-h100");
  const auto report = memory_report(program::lower_all(llama2_7b({.tp = 8})), cluster);
  CHECK(report.fits());
  CHECK(report.missing_bytes() == 0);
  CHECK(report.stages.front().communication == Approx(2 * 256 * kMib));  // tp and tp-pp
}

TEST_CASE("Stages open a communicator for their peers beside those of groups", "[sim][memory]") {
  const auto communicators = [](program::ParallelConfig parallel) {
    const Cluster cluster = with_ranks(load_cluster_preset("dgx-h100"), parallel.world_size());
    const auto report = memory_report(program::lower_all(tiny_plan(parallel, 8)), cluster);
    return report.stages.front().communication / (256 * kMib);
  };
  CHECK(communicators({}) == 0);
  CHECK(communicators({.pp = 2}) == 2);  // tp-pp, and peers
  CHECK(communicators({.pp = 4}) == 2);
}

TEST_CASE("The parts add up and the largest stage decides", "[sim][memory]") {
  const Cluster cluster = with_ranks(load_cluster_preset("dgx-h100"), 4);
  const auto programs = program::lower_all(tiny_plan({.pp = 4}, 8));
  const auto report = memory_report(programs, cluster);
  double largest = 0;
  for (std::size_t s = 0; s < programs.size(); ++s) {
    const StageMemory& stage = report.stages[s];
    const double planned = static_cast<double>(programs[s].memory.total_bytes());
    CHECK(stage.total() == Approx(planned + stage.communication + stage.runtime_base));
    largest = std::max(largest, stage.total());
  }
  CHECK(report.peak_bytes == largest);
  CHECK(report.stages[static_cast<std::size_t>(report.largest_stage)].total() == largest);
}

// 1F1B: stage s of 4 holds min(m, 4 - s) micro-batches; the two middle stages have equal layers, so
// their saved activations are as 3 to 2.
TEST_CASE("Activations follow the micro-batches in flight", "[sim][memory]") {
  const Cluster cluster = with_ranks(load_cluster_preset("dgx-h100"), 4);
  const auto report = memory_report(program::lower_all(tiny_plan({.pp = 4}, 8)), cluster);
  const double input = 128.0 * 256 * 4;  // the next one's, which arrives during the task before
  CHECK((report.stages[1].activations - input) / (report.stages[2].activations - input) ==
        Approx(3.0 / 2));
}

TEST_CASE("CPU ranks share the memory of their host", "[sim][memory]") {
  CHECK(memory_capacity_bytes(cpu_host(4, 2)) == Approx(62 * kGib / 4));
  CHECK(memory_capacity_bytes(load_cluster_preset("dgx-h100")) == Approx(79.6 * kGib));
}

}  // namespace meshplan::sim
