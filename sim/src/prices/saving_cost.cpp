#include "sim/prices/saving_cost.hpp"

#include <algorithm>

#include "core/units.hpp"
#include "prices/offload.hpp"
#include "sim/prices/pricing.hpp"

namespace meshplan::sim {
namespace {

/// Seconds in which each rank of a host moves `bytes` through its memory.
double host_stream_seconds(double bytes, const Cluster& cluster) {
  const double alone = stream_seconds(bytes, cluster);
  if (cluster.host_memory_gb_per_s <= 0) return alone;
  return std::max(alone,
                  bytes * cluster.devices_per_node / (cluster.host_memory_gb_per_s * kGigabyte));
}

}  // namespace

double checkpoint_stall_seconds(double bytes, const Cluster& cluster) {
  if (cluster.device.kind == DeviceKind::Gpu) return host_copy_seconds(bytes, cluster);
  return host_stream_seconds(2 * bytes, cluster) + cluster.device.launch_us / kMicroseconds;
}

double saving_stall_seconds(double bytes, const Cluster& cluster) {
  const double hash_s = cluster.device.kind == DeviceKind::Gpu
                            ? bytes / host_link(cluster.device).memory_bytes_per_s
                            : host_stream_seconds(bytes, cluster);
  return checkpoint_stall_seconds(bytes, cluster) + hash_s;
}

}  // namespace meshplan::sim
