// What the measurements report; no time is judged.
#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>
#include <vector>

#include "comm/host_communicator.hpp"
#include "kernels/cpu_backend.hpp"
#include "measure/measure_collectives.hpp"
#include "measure/measure_progress.hpp"
#include "mpi_test_session.hpp"
#include "runtime/measure/machine_watch.hpp"

namespace meshplan::runtime {
namespace {

using program::CommOp;

TEST_CASE("Every rank gets one sample for each operation, group and size", "[runtime][measure]") {
  const auto table = program::default_collective_table();
  const auto world = make_host_world(test::mpi_session(), {});
  const MeasureOptions options{.bytes = {8, 4096}, .min_repeats = 3, .max_repeats = 3};
  const auto measured = measure_collectives({*world}, test::mpi_session().layout(), table, options);
  const auto& samples = measured.samples;
  CHECK(measured.quietness.samples == 0);  // without a reference nothing is judged
  std::vector<int> group_sizes;
  for (int size = 2; size < world->size(); size *= 2) group_sizes.push_back(size);
  if (world->size() > 1) group_sizes.push_back(world->size());
  // Six operations at two sizes, and one barrier; three of the operations on cold buffers, too.
  REQUIRE(samples.size() == group_sizes.size() * 19);
  CHECK(std::ranges::count(samples, true, &program::CommSample::cold) ==
        std::ssize(group_sizes) * 6);
  for (const auto& sample : samples) {
    CHECK(sample.repeats == 3);
    CHECK(sample.p10_s <= sample.seconds);
    CHECK(sample.seconds <= sample.p90_s);
    CHECK(sample.seconds > 0);
    CHECK(sample.ranks_on_host == world->size());
    CHECK(sample.algorithm == table.choose(sample.op, sample.group_size, Bytes{sample.bytes}));
    CHECK((sample.op == CommOp::Barrier) == (sample.bytes == 0));
    CHECK(std::ranges::count(group_sizes, sample.group_size) == 1);
  }
}

TEST_CASE("Links are measured between neighbours", "[runtime][measure]") {
  const auto world = make_host_world(test::mpi_session(), {});
  const MeasureOptions options{.bytes = {8, 65536}, .min_repeats = 3, .max_repeats = 3};
  const auto samples = measure_links({*world}, test::mpi_session().layout(), options).samples;
  REQUIRE(samples.size() == 2 * static_cast<std::size_t>(world->size() - 1));
  for (const auto& sample : samples) {
    CHECK(sample.to == sample.from + 1);
    CHECK(sample.same_host);
    CHECK(sample.repeats == 3);
    CHECK(sample.seconds > 0);
  }
}

// Beside the timings of ranks that have a core each; the counts are alike on all ranks.
TEST_CASE("Timings beside a reference are judged", "[runtime][measure]") {
  const auto world = make_host_world(test::mpi_session(), {});
  ReferenceProduct reference(kernels::make_cpu_backend(1));
  const MeasureOptions options{
      .bytes = {8, 4096}, .ops = {CommOp::AllReduce}, .min_repeats = 3, .max_repeats = 3};
  const auto measured =
      measure_collectives({.host = *world, .reference = &reference}, test::mpi_session().layout(),
                          program::default_collective_table(), options);
  int timed = 0;
  for (const program::CommSample& sample : measured.samples) timed += sample.repeats;
  CHECK(measured.quietness.samples == timed);
  CHECK(measured.quietness.disturbed <= timed);
  double mine = measured.quietness.disturbed, first = mine;
  world->broadcast({&first, 1, DType::F64}, 0).wait();
  CHECK(mine == first);
}

TEST_CASE("All ranks know how fast and busy the machine is", "[runtime][measure]") {
  const auto world = make_host_world(test::mpi_session(), {});
  const JobLayout& layout = test::mpi_session().layout();
  MachineWatch watch(*world, layout,
                     std::make_unique<ReferenceProduct>(kernels::make_cpu_backend(1)));
  program::MachineSpeed speed = watch.finish();
  CHECK(speed.reference_s > 0);
  CHECK(speed.ranks_on_host == world->size());
  CHECK(speed.cores == layout.cores_of_machine.front());
  CHECK(speed.reference_ranks == std::min(world->size(), speed.cores));
  CHECK(speed.other_cores >= 0);
  CHECK(speed.other_cores <= speed.cores);
  program::MachineSpeed first = speed;
  world->broadcast({&first, static_cast<std::int64_t>(sizeof first), DType::U8}, 0).wait();
  CHECK(first == speed);
  MachineWatch without(*world, layout, nullptr);
  CHECK(without.finish().reference_s == 0);
}

TEST_CASE("What a progress thread moves beside computation is measured alike on all ranks",
          "[runtime][measure]") {
  const auto world = make_host_world(test::mpi_session(), {});
  const auto backend = kernels::make_cpu_backend(1);
  constexpr std::int64_t kBytes[] = {1024, 65536};
  const auto samples = measure_progress(*world, test::mpi_session().layout(), *backend, kBytes);
  REQUIRE(samples.size() == 2);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    CHECK(samples[i].bytes == kBytes[i]);
    CHECK(samples[i].ranks_on_host == world->size());
    CHECK(samples[i].compute_seconds > 0);
    CHECK(samples[i].communication_seconds > 0);
    CHECK(samples[i].together_seconds > 0);
    double mine = samples[i].together_seconds, first = mine;
    world->broadcast({&first, 1, DType::F64}, 0).wait();
    CHECK(mine == first);
  }
}

}  // namespace
}  // namespace meshplan::runtime
