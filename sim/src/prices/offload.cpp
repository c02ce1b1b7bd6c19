#include "prices/offload.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/error.hpp"
#include "core/units.hpp"
#include "sim/prices/pricing.hpp"

namespace meshplan::sim {
namespace {

// What pinned copies and streams on a host reach of the line rate: 25 to 26 of 32 GB/s over PCI
// Express 4.0 (CUDA sample bandwidthTest), 0.8 of memory bandwidth (STREAM).
constexpr double kReached = 0.8;
constexpr double kDevicesOfDgx = 8;
// Above this the Blackwell boards are sold as superchips with Grace only (B200 1,000 W, GB200
// 1,200).
constexpr double kSuperchipPowerW = 1100;

HostLink reached(double link_gb_per_s, double memory_gb_per_s) {
  return {kReached * link_gb_per_s * kGigabyte, kReached * memory_gb_per_s * kGigabyte};
}

}  // namespace

HostLink host_link(const Device& device) {
  switch (device.architecture) {
    case Architecture::Ampere:  // PCIe 4.0 x16; 16 channels of DDR4-3200 a node
    case Architecture::Ada:
      return reached(32, 409.6 / kDevicesOfDgx);
    case Architecture::Hopper:  // PCIe 5.0 x16; 16 channels of DDR5-4800
      return reached(64, 614.4 / kDevicesOfDgx);
    case Architecture::Blackwell:
      if (device.power_w > kSuperchipPowerW)  // NVLink-C2C 900 GB/s, both ways, for two devices;
        return reached(900.0 / 2 / 2, 512.0 / 2);  // LPDDR5X of one Grace
      return reached(64, 716.8 / kDevicesOfDgx);   // PCIe 5.0 x16; 16 channels of DDR5-5600
    case Architecture::BlackwellRtx:
      return reached(64, 716.8 / kDevicesOfDgx);
    case Architecture::Cdna3:  // PCIe 5.0 x16; two EPYC with 12 channels of DDR5-4800 each
    case Architecture::Cdna4:
      return reached(64, 921.6 / kDevicesOfDgx);
    case Architecture::Other:
      return reached(32, 409.6 / kDevicesOfDgx);
  }
  throw InvariantError("unknown architecture");
}

double state_copy_seconds(double bytes, const Cluster& cluster) {
  const HostLink link = host_link(cluster.device);
  return cluster.device.launch_us / kMicroseconds +
         bytes / std::min(link.link_bytes_per_s, link.memory_bytes_per_s);
}

double host_copy_seconds(double bytes, const Cluster& cluster) {
  if (cluster.device.kind == DeviceKind::Gpu) return state_copy_seconds(bytes, cluster);
  return stream_seconds(2 * bytes, cluster) + cluster.device.launch_us / kMicroseconds;
}

double offloaded_update_seconds(const OffloadedUpdate& update) {
  const auto pieces = std::max(1, static_cast<int>(std::round(update.pieces)));
  const double copy = update.copy_seconds / pieces;
  const double work = update.update_seconds / pieces;
  double fetched = -update.lead, updated = 0, stored = 0;
  std::array<double, 2> free_at{-update.lead, -update.lead};  // of the slots
  for (int piece = 0; piece < pieces; ++piece) {
    double& slot = free_at[static_cast<std::size_t>(piece % 2)];
    fetched = std::max(fetched, slot) + copy;
    updated = std::max(updated, fetched) + work;
    stored = std::max(stored, updated) + copy;
    slot = stored;
  }
  return std::max(updated, stored);
}

double beside_transfer(double seconds, double bytes, const HostLink& link) {
  return std::max(seconds, link.transfer_seconds(bytes));
}

double host_optimizer_seconds(double gradient_bytes, double update_bytes, double weight_bytes,
                              double window, const HostLink& link) {
  const double down = std::max(0.0, link.transfer_seconds(gradient_bytes) - window);
  return down + update_bytes / link.memory_bytes_per_s + link.transfer_seconds(weight_bytes);
}

}  // namespace meshplan::sim
