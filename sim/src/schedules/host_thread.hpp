#pragma once

#include "program/plan/plan.hpp"
#include "sim/clusters/cluster.hpp"

namespace meshplan::sim {

/// Does a rank move its communications only while it waits for them, as far as the estimator is
/// concerned? So do CPU ranks, unless each has a second core for a progress thread: on the rank's
/// own core what the thread moves early takes as long from computation. (The engine shares the
/// cores between both.)
inline bool moves_only_in_waits(const program::Plan& plan, const Cluster& cluster) {
  const bool spare_cores = cluster.cores_per_host >= 2 * cluster.devices_per_node;
  return cluster.communication.needs_host && !(plan.progress_thread && spare_cores);
}

/// What a communication takes, as a multiple of what it takes without a progress thread.
inline double progress_factor(const program::Plan& plan, const Cluster& cluster) {
  const bool threaded = cluster.communication.needs_host && plan.progress_thread;
  return threaded ? 1 + cluster.communication.progress_overhead_percent / 100.0 : 1;
}

}  // namespace meshplan::sim
