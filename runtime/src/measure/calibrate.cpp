#include "runtime/measure/calibrate.hpp"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "measure/host_load.hpp"
#include "measure/measure_collectives.hpp"
#include "measure/measure_device.hpp"
#include "measure/measure_operators.hpp"
#include "measure/measure_progress.hpp"
#include "measure/process_memory.hpp"
#include "program/checks/check.hpp"
#include "runtime/execute/device.hpp"
#include "runtime/os/host_info.hpp"

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
  for (int ep = 2; model.moe && ep <= max_tp; ++ep)
    for (const int micro_batch : micro_batches) {
      program::Plan plan;
      plan.model = model;
      plan.workload = workload;
      plan.workload.global_batch_size = 2 * static_cast<std::int64_t>(micro_batch) * ep;
      plan.parallel = {.dp = ep, .ep = ep};
      plan.micro_batch_size = micro_batch;
      if (micro_batch <= workload.global_batch_size && program::check(plan).empty())
        plans.push_back(std::move(plan));
    }
  return plans;
}

namespace {

/// One description of each rank, in rank order.
std::vector<program::GpuDescription> gather_gpus(const program::GpuDescription& own,
                                                 Communicator& world) {
  std::vector<program::GpuDescription> gpus;
  for (int rank = 0; rank < world.size(); ++rank) {
    std::string text =
        rank == world.rank() ? program::to_json(program::CalibrationSamples{.gpus = {own}}) : "";
    std::int64_t bytes = std::ssize(text);
    world.broadcast({&bytes, 1, DType::I64}, rank).wait();
    text.resize(static_cast<std::size_t>(bytes));
    world.broadcast({text.data(), bytes, DType::U8}, rank).wait();
    gpus.push_back(
        program::parse_samples(text, "rank " + std::to_string(rank) + "'s GPU").gpus.front());
  }
  return gpus;
}

void measure_device(Communicator& world, Device& device, program::CalibrationSamples& samples) {
  constexpr Seconds kPerCopy{0.05};
  const std::optional<program::GpuDescription> gpu = device.gpu();
  if (!gpu) return;
  samples.gpus = gather_gpus(*gpu, world);
  if (world.rank() == 0) {
    samples.copies = measure_copies(device, copy_sizes(), kPerCopy);
    samples.launch = measure_launch(device);
  }
  world.barrier().wait();
}

/// Before the operators and after: a burst of another process hits one of the two.
void keep_faster(program::CalibrationSamples& samples, const MemoryBandwidth& bandwidth) {
  samples.memory_rate = std::max(samples.memory_rate, bandwidth.alone);
  samples.host_memory_rate = std::max(samples.host_memory_rate, bandwidth.all);
}

void add_counts(program::Quietness& sum, const program::Quietness& part) {
  sum.samples += part.samples;
  sum.disturbed += part.disturbed;
  sum.repeated_visits += part.repeated_visits;
}

}  // namespace

program::CalibrationSamples calibrate(const CalibrationOptions& options, const JobLayout& layout,
                                      const program::CollectiveTable& table, Communicator& world,
                                      Device& device, const Progress& progress) {
  const HostInfo host = detect_host();
  HostLoad load(layout);
  program::CalibrationSamples samples{
      .hostname = host.hostname,
      .processor = host.cpu_model,
      .ranks = world.size(),
      .cores = *std::ranges::max_element(layout.cores_of_machine),
      .num_machines = layout.num_machines(),
      .memory_bytes = static_cast<double>(host.memory_bytes),
      .process_bytes = device.gpu() ? resident_bytes() : measure_process_bytes(world, device),
      .device_driven = device.rules().communications == program::CommunicationDriver::Device};
  if (!options.shapes.empty()) {
    keep_faster(samples, measure_memory_bandwidth(options.operators, world, device));
    for (const program::Plan& plan : options.shapes) {
      const std::string dtype(program::precision_name(plan.workload));
      if (std::ranges::find(samples.dtypes, dtype) == samples.dtypes.end())
        samples.dtypes.push_back(dtype);
    }
    MeasuredOperators measured =
        measure_operators(options.shapes, options.operators, world, device, progress);
    samples.operators = std::move(measured.samples);
    samples.quietness = measured.quietness;
    keep_faster(samples, measure_memory_bandwidth(options.operators, world, device));
  }
  measure_device(world, device, samples);
  if (world.size() > 1) {
    const std::unique_ptr<Communicator> device_world = device.make_world(world);
    const MeasuredWorld measured{
        .host = world,
        .device = device_world == nullptr ? nullptr : &device,
        .moves = device_world.get(),
        .reference = layout.oversubscribed() ? nullptr : options.operators.reference};
    auto collectives = measure_collectives(measured, layout, table, options.communication);
    auto links = measure_links(measured, layout, options.communication);
    samples.communication = std::move(collectives.samples);
    samples.links = std::move(links.samples);
    add_counts(samples.quietness, collectives.quietness);
    add_counts(samples.quietness, links.quietness);
    if (device_world == nullptr)
      samples.progress = measure_progress(world, layout, device.backend(), progress_sizes());
  }
  program::MachineSpeed machine;
  load.measure(world, machine);
  samples.quietness.other_cores = machine.other_cores;
  return samples;
}

}  // namespace meshplan::runtime
