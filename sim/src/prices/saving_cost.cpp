#include "sim/prices/saving_cost.hpp"

#include "prices/offload.hpp"
#include "sim/prices/pricing.hpp"

namespace meshplan::sim {

double saving_stall_seconds(std::int64_t bytes, const Cluster& cluster) {
  const auto size = static_cast<double>(bytes);
  const double hash_s = cluster.device.kind == DeviceKind::Gpu
                            ? size / host_link(cluster.device).memory_bytes_per_s
                            : stream_seconds(size, cluster);
  return host_copy_seconds(size, cluster) + hash_s;
}

}  // namespace meshplan::sim
