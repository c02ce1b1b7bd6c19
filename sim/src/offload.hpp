// Tensors that a run keeps in its host's memory: what moving and updating them there costs.
#pragma once

#include "sim/cluster.hpp"

namespace meshplan::sim {

/// A device's way to its host in one direction, and its share of the host's memory bandwidth, as
/// copies and streams reach them.
struct HostLink {
  double link_bytes_per_s = 0;
  double memory_bytes_per_s = 0;

  double transfer_seconds(double bytes) const { return bytes / link_bytes_per_s; }
};

/// Of the boards and hosts that a device is sold with. Sources: NVIDIA data sheets (PCI Express
/// generation, NVLink-C2C), DGX user guides (processors and memory channels).
HostLink host_link(const Device& device);

/// What moves in a micro-batch beside a task that takes `seconds`: nothing is paid until the link
/// is slower than the task.
double beside_transfer(double seconds, double bytes, const HostLink& link);

/// ZeRO-Offload (Ren et al. 2021, section 4): gradients go down under backward, the host updates
/// the parameters, their 16-bit values come up.
/// @param gradient_bytes, update_bytes, weight_bytes  of all parameters that this rank updates
/// @param window  seconds of backward that hide the way down
double host_optimizer_seconds(double gradient_bytes, double update_bytes, double weight_bytes,
                              double window, const HostLink& link);

}  // namespace meshplan::sim
