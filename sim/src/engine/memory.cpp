#include "sim/engine/memory.hpp"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "clusters/node_types.hpp"
#include "core/index.hpp"
#include "core/units.hpp"
#include "program/lower/lower.hpp"

namespace meshplan::sim {
namespace {

using program::Region;

double region_bytes(const program::Program& program, Region region) {
  const auto index = static_cast<std::size_t>(region);
  if (index >= program.memory.regions.size()) return 0;
  return static_cast<double>(program.memory.regions[index].bytes());
}

/// Bytes on the device of a region that may lie on the host.
double device_bytes(const program::Program& program, Region region, const Cluster& cluster) {
  const auto index = static_cast<std::size_t>(region);
  if (index >= program.memory.regions.size()) return 0;
  const bool elsewhere =
      program.memory.regions[index].on_host && cluster.device.kind == DeviceKind::Gpu;
  return elsewhere ? 0 : region_bytes(program, region);
}

/// Communicators that a rank opens: one per process group of more than one rank, one for peers.
int num_communicators(const program::Program& program) {
  const auto& parallel = program.plan.parallel;
  std::set<program::Group> groups;
  const auto note = [&](const program::Operation& operation) {
    if (const auto* flat = std::get_if<program::FlatCollectiveOp>(&operation.work))
      groups.insert(flat->collective.group);
    if (const auto* collective = std::get_if<program::CollectiveOp>(&operation.work))
      groups.insert(collective->group);
  };
  for (const auto& operation : program.step_operations) note(operation);
  for (const auto& block : program.blocks) {
    for (const auto& operation : block.forward) note(operation);
    for (const auto& operation : block.backward) note(operation);
  }
  const auto open = std::ranges::count_if(
      groups, [&](program::Group group) { return program::group_size(group, program.plan) > 1; });
  return static_cast<int>(open) + (parallel.pp > 1 ? 1 : 0);
}

}  // namespace

double StageMemory::total() const {
  return parameters + master_parameters + gradients + optimizer + activations + transient +
         workspace + boundary + communication + runtime_base;
}

MemoryNeed StageMemory::need() const {
  return deciding({.bytes = total(), .capacity_bytes = capacity},
                  {.bytes = host, .capacity_bytes = host_capacity, .of_host = true});
}

StageMemory stage_memory(const program::Program& program, const Cluster& cluster) {
  StageMemory memory;
  memory.stage = program.role.stage;
  memory.parameters = device_bytes(program, Region::Weights, cluster) +
                      region_bytes(program, Region::ResidentWeights) +
                      region_bytes(program, Region::GatheredWeights) +
                      region_bytes(program, Region::QuantizedWeights);
  memory.master_parameters = device_bytes(program, Region::MasterWeights, cluster);
  for (const Region region :
       {Region::Gradients, Region::UnreducedBuckets, Region::CompressionErrors, Region::SumErrors,
        Region::CompressedGradients})
    memory.gradients += region_bytes(program, region);
  memory.optimizer = device_bytes(program, Region::Moment1, cluster) +
                     device_bytes(program, Region::Moment2, cluster) +
                     region_bytes(program, Region::OptimizerStaging);
  memory.host =
      cluster.device.kind == DeviceKind::Gpu ? static_cast<double>(program.memory.host_bytes()) : 0;
  memory.activations = region_bytes(program, Region::Saved) +
                       region_bytes(program, Region::StagedActivations) +
                       device_bytes(program, Region::OffloadedActivations, cluster);
  memory.transient = region_bytes(program, Region::Transient);
  if (cluster.device.kind == DeviceKind::Gpu)
    memory.workspace = static_cast<double>(program.memory.workspace_bytes);
  memory.boundary = region_bytes(program, Region::Boundary) + region_bytes(program, Region::Batch) +
                    region_bytes(program, Region::Scalars) +
                    region_bytes(program, Region::ExpertLoad);
  memory.communication = num_communicators(program) * cluster.communication.buffer_mib * kMib;
  memory.runtime_base = cluster.device.runtime_base_mib * kMib;
  memory.capacity = memory_capacity_bytes(cluster);
  memory.host_capacity = host_capacity_bytes(cluster);
  return memory;
}

double memory_capacity_bytes(const Cluster& cluster) {
  const double bytes = cluster.device.memory_gib * kGib;
  return cluster.device.kind == DeviceKind::Cpu ? bytes / cluster.devices_per_node : bytes;
}

double host_capacity_bytes(const Cluster& cluster) {
  if (cluster.device.kind == DeviceKind::Cpu || cluster.host_memory_gib <= 0)
    return std::numeric_limits<double>::infinity();
  return (1 - kHostReserve) * cluster.host_memory_gib * kGib / cluster.devices_per_node;
}

MemoryReport memory_report(const std::vector<program::Program>& stages, const Cluster& cluster) {
  MemoryReport report;
  const program::Mesh mesh = program::mesh_of(stages.front().plan);
  const std::vector<std::vector<int>> types = node_types(cluster, mesh);
  const std::vector<Cluster> uniform = by_node_type(cluster);
  double least_room = std::numeric_limits<double>::infinity();
  for (const program::Program& program : stages) {
    StageMemory own;
    for (const int type : types[at(program.role.stage)]) {
      const StageMemory there = stage_memory(program, uniform[at(type)]);
      if (own.capacity == 0 || there.need().room_bytes() < own.need().room_bytes()) own = there;
    }
    const MemoryNeed need = own.need();
    if (need.room_bytes() < least_room) {
      least_room = need.room_bytes();
      report.peak_bytes = need.bytes;
      report.capacity_bytes = need.capacity_bytes;
      report.of_host = need.of_host;
      report.largest_stage = program.role.stage;
    }
    report.stages.push_back(own);
  }
  return report;
}

MemoryReport memory_of(const program::Plan& plan, const Cluster& cluster) {
  // Which communicators there are does not depend on the number of micro-batches.
  const int few = std::min(plan.num_microbatches(), 2 * plan.parallel.pp);
  program::Plan shorter = plan;
  shorter.workload.global_batch_size = std::int64_t{few} * plan.micro_batch_size * plan.parallel.dp;
  if (plan.schedule == program::ScheduleKind::Custom) shorter = plan;  // it is of all of them
  std::vector<program::Program> stages = program::lower_all(shorter);
  std::vector<program::MemoryPlan> memory = program::lower_memory(plan);
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    stages[stage].memory = std::move(memory[stage]);
    stages[stage].plan = plan;
  }
  return memory_report(stages, cluster);
}

}  // namespace meshplan::sim
