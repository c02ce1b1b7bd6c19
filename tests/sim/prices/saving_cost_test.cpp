#include "sim/prices/saving_cost.hpp"

#include <catch2/catch.hpp>

#include "sim/run_cases.hpp"

namespace meshplan::sim {

// PCIe 4.0 x16 reaches 25.6 GB/s, memory for one of eight devices 40.96 GB/s (offload_test.cpp): a
// copy over the link, and one reading for the hashes.
TEST_CASE("Keeping a state in memory costs a copy to the host and a reading of it", "[sim]") {
  const Cluster cluster = load_data_sheet("dgx-a100");
  CHECK(saving_stall_seconds(std::int64_t{256} << 30, cluster) ==
        Approx((256.0 * (1 << 30)) * (1 / 25.6e9 + 1 / 40.96e9)).epsilon(1e-4));
  CHECK(saving_stall_seconds(0, cluster) < 1e-4);
}

}  // namespace meshplan::sim
