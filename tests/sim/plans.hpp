// Plans and clusters that several tests of sim share.
#pragma once

#include "models/model_spec.hpp"
#include "program/lower/lower.hpp"
#include "program/plan/plan.hpp"
#include "sim/clusters/cluster.hpp"
#include "sim/engine/engine.hpp"
#include "sim/stacks/cluster_preset.hpp"

namespace meshplan::sim {

/// tiny-llama in fp32, 128 tokens a sequence, micro-batches of one sequence.
inline program::Plan tiny_plan(program::ParallelConfig parallel, int num_microbatches) {
  program::Plan plan;
  plan.model = models::load_preset("tiny-llama");
  plan.workload.seq_len = 128;
  plan.workload.precision = DType::F32;
  plan.parallel = parallel;
  plan.micro_batch_size = 1;
  plan.workload.global_batch_size = num_microbatches * parallel.dp;
  return plan;
}

/// GPUs whose communication costs nothing and takes nothing of the device, and no launch cost.
inline Cluster free_communication(int ranks) {
  Cluster cluster = with_ranks(load_data_sheet("dgx-h100"), ranks);
  cluster.device.launch_us = 0;
  cluster.device.host_issue_us = 0;
  cluster.communication.device_share = 0;
  cluster.communication.protocols = {Protocol{}};
  for (FabricLevel& level : cluster.fabric) {
    level.latency_us = 0;
    level.link_gb_per_s = 1e15;
  }
  return cluster;
}

/// One host of CPU ranks without measured tables.
inline Cluster cpu_host(int ranks, int cores) {
  Cluster cluster = with_ranks(load_cluster_preset("cpu-host"), ranks);
  cluster.cores_per_host = cores;
  return cluster;
}

/// Seconds of a step, by the engine.
inline double played(const program::Plan& plan, const Cluster& cluster, bool contention = true) {
  return simulate(program::lower_all(plan), cluster,
                  {.contention = contention, .break_down = false, .record_spans = false})
      .step_time_s;
}

}  // namespace meshplan::sim
