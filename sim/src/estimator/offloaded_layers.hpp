#pragma once

#include <vector>

#include "sim/clusters/cluster.hpp"

namespace meshplan::sim {

/// A layer's part of the tasks of a chunk, and what it moves to the host and back.
struct OffloadedLayer {
  double forward = 0;   // seconds
  double backward = 0;  // seconds
  double bytes = 0;     // of a micro-batch; 0 = it stays on the device
};

/// Seconds by which the copies of all layers make each task longer.
struct CopyDelays {
  double forward = 0;
  double backward = 0;
};

/// Once the pipeline is full, forwards and backwards taking turns, as
/// program::add_activation_copies issues them: a layer's work needs its slot, a copy to the host
/// begins when the layer is done, one back when its slot is free. On a processor one thread does it
/// all.
/// @param layers  in the order of the forward pass
/// @param returns_at_once  each backward is of the micro-batch of the forward before: what has just
/// gone to the host comes back
CopyDelays copy_delays(const std::vector<OffloadedLayer>& layers, bool returns_at_once,
                       const Cluster& cluster);

}  // namespace meshplan::sim
