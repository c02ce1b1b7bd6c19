#include "runtime/calibrate.hpp"

#include <algorithm>
#include <malloc.h>

#include "runtime/host_info.hpp"
#include "runtime/train.hpp"

namespace meshplan::runtime {

std::vector<program::Plan> shapes_to_measure(const models::ModelSpec& model,
                                             const program::Workload& workload, int max_tp,
                                             std::span<const int> micro_batches) {
  std::vector<program::Plan> plans;
  for (int tp = 1; tp <= max_tp; ++tp)
    for (const bool sp : {false, true})
      for (const int micro_batch : micro_batches) {
        program::Plan plan;
        plan.model = model;
        plan.workload = workload;
        // Two micro-batches show the first gradient and one that is added to it.
        plan.workload.global_batch_size = 2 * static_cast<std::int64_t>(micro_batch);
        plan.parallel = {.tp = tp, .sp = sp};
        plan.micro_batch_size = micro_batch;
        if (micro_batch <= workload.global_batch_size && program::check(plan).empty())
          plans.push_back(std::move(plan));
      }
  return plans;
}

program::CalibrationSamples calibrate(const CalibrationOptions& options, const JobLayout& layout,
                                      const program::CollectiveTable& table, Communicator& world,
                                      kernels::Backend& backend, const Progress& progress) {
  const HostInfo host = detect_host();
  program::CalibrationSamples samples{.hostname = host.hostname,
                                      .processor = host.cpu_model,
                                      .ranks = world.size(),
                                      .cores = *std::ranges::max_element(layout.cores_of_machine),
                                      .num_machines = layout.num_machines(),
                                      .memory_bytes = static_cast<double>(host.memory_bytes),
                                      .process_bytes = resident_bytes()};
  if (!options.shapes.empty()) {
    const MemoryBandwidth bandwidth = measure_memory_bandwidth(options.operators, world, backend);
    samples.memory_rate = bandwidth.alone;
    samples.host_memory_rate = bandwidth.all;
    for (const program::Plan& plan : options.shapes) {
      const std::string dtype(name_of(plan.workload.precision));
      if (std::ranges::find(samples.dtypes, dtype) == samples.dtypes.end())
        samples.dtypes.push_back(dtype);
    }
    samples.operators =
        measure_operators(options.shapes, options.operators, world, backend, progress);
    ::malloc_trim(0);  // what the measuring itself held is no part of a rank
    samples.process_bytes =
        resident_bytes();  // with the libraries' own buffers, which exist by now
  }
  if (world.size() > 1) {
    samples.communication = measure_collectives(world, layout, table, options.communication);
    samples.links = measure_links(world, layout, options.communication);
  }
  return samples;
}

}  // namespace meshplan::runtime
