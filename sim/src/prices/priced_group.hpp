// A process group on the cluster, and what collectives of it that were priced before took.
#pragma once

#include <array>
#include <cstdint>

#include "sim/clusters/cluster.hpp"
#include "sim/prices/pricing.hpp"

namespace meshplan::sim {

class PricedGroup {
 public:
  PricedGroup() = default;
  explicit PricedGroup(GroupPlacement placement) : placement_(std::move(placement)) {}

  int size() const { return placement_.size; }
  const GroupPlacement& placement() const { return placement_; }

  /// Seconds of a collective while nothing else runs.
  /// @param bytes  that one rank passes in
  double seconds(program::Collective collective, double bytes, const Cluster& cluster) {
    if (bytes <= 0 || placement_.size <= 1) return 0;
    constexpr std::uint64_t kSpread = 0x9E3779B97F4A7C15ULL;  // Knuth, TAOCP 3, section 6.4
    constexpr int kSlotBits = 6;
    const auto whole = static_cast<std::int64_t>(bytes);
    const auto hash =
        static_cast<std::uint64_t>(8 * whole) + static_cast<std::uint64_t>(collective);
    Known& known = known_[hash * kSpread >> (64 - kSlotBits)];
    if (known.bytes != whole || known.collective != collective)
      known = {whole, collective, price_collective(collective, whole, placement_, cluster).seconds};
    return known.seconds;
  }

 private:
  struct Known {
    std::int64_t bytes = -1;
    program::Collective collective{};
    double seconds = 0;
  };
  GroupPlacement placement_;
  std::array<Known, 64> known_;
};

}  // namespace meshplan::sim
