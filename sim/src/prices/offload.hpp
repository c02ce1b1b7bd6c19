// Tensors that a run keeps in its host's memory: what moving and updating them there costs.
#pragma once

#include "sim/clusters/cluster.hpp"
#include "sim/prices/host_copy.hpp"

namespace meshplan::sim {

/// A device's way to its host in one direction, and its share of the host's memory bandwidth, as
/// copies and streams reach them.
struct HostLink {
  double link_bytes_per_s = 0;
  double memory_bytes_per_s = 0;

  double transfer_seconds(double bytes) const { return bytes / link_bytes_per_s; }
};

/// Rates of the boards and hosts that a device is sold with. Sources: NVIDIA data sheets (PCI
/// Express generation, NVLink-C2C), DGX user guides (processors and memory channels).
HostLink host_link(const Device& device);

/// What moves in a micro-batch beside a task that takes `seconds`: nothing is paid until the link
/// is slower than the task.
double beside_transfer(double seconds, double bytes, const HostLink& link);

/// One copy between a GPU and pinned memory of its host, which both take part in at their rates.
double state_copy_seconds(double bytes, const Cluster& cluster);

/// An update whose state comes from the host piece by piece, through two slots, and goes back
/// beside it (program/offload.hpp). Pieces are taken to be equally large.
/// @param lead  seconds before the update in which the first two pieces come
struct OffloadedUpdate {
  double pieces = 1;
  double copy_seconds = 0;    // of all pieces, one way
  double update_seconds = 0;  // of all pieces
  double lead = 0;
};
/// From the first update to the end of the last copy back, which the next step waits for.
double offloaded_update_seconds(const OffloadedUpdate& update);

/// ZeRO-Offload (Ren et al. 2021, section 4): gradients go down under backward, the host updates
/// the parameters, their 16-bit values come up.
/// @param gradient_bytes, update_bytes, weight_bytes  of all parameters that this rank updates
/// @param window  seconds of backward that hide the way down
double host_optimizer_seconds(double gradient_bytes, double update_bytes, double weight_bytes,
                              double window, const HostLink& link);

}  // namespace meshplan::sim
