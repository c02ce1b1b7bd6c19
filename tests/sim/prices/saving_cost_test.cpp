#include "sim/prices/saving_cost.hpp"

#include <catch2/catch.hpp>

#include "core/units.hpp"
#include "sim/run_cases.hpp"

namespace meshplan::sim {

// PCIe 4.0 x16 reaches 25.6 GB/s, memory for one of eight devices 40.96 GB/s (offload_test.cpp): a
// copy over the link, and one reading for the hashes.
TEST_CASE("Keeping a state in memory costs a copy to the host and a reading of it", "[sim]") {
  const Cluster cluster = load_data_sheet("dgx-a100");
  const double bytes = 256 * kGib;
  CHECK(checkpoint_stall_seconds(bytes, cluster) == Approx(bytes / 25.6e9).epsilon(1e-4));
  CHECK(saving_stall_seconds(bytes, cluster) ==
        Approx(bytes * (1 / 25.6e9 + 1 / 40.96e9)).epsilon(1e-4));
  CHECK(saving_stall_seconds(0, cluster) < 1e-4);
}

// A core streams 0.8 * 12 GB/s, and 16 of them share 96 GB/s: a copy reads and writes, hashes read.
TEST_CASE("A processor copies a state through its memory, which the ranks share", "[sim]") {
  const Cluster host = load_data_sheet("cpu-host");
  const double bytes = kGib;
  const Cluster two = with_ranks(host, 2);
  CHECK(checkpoint_stall_seconds(bytes, two) == Approx(2 * bytes / 9.6e9).epsilon(1e-3));
  CHECK(saving_stall_seconds(bytes, two) == Approx(3 * bytes / 9.6e9).epsilon(1e-3));
  const Cluster all = with_ranks(host, 16);
  CHECK(checkpoint_stall_seconds(bytes, all) == Approx(2 * bytes * 16 / 96e9).epsilon(1e-3));
  CHECK(saving_stall_seconds(bytes, all) == Approx(3 * bytes * 16 / 96e9).epsilon(1e-3));
}

}  // namespace meshplan::sim
