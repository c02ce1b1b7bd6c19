#include "reports/calibration_report.hpp"

#include <catch2/catch.hpp>

#include "core/units.hpp"

namespace meshplan::reports {

TEST_CASE("GPUs are shown with their ways to one another, copies and links", "[reports]") {
  program::CalibrationSamples job;
  job.gpus = {{.name = "a GPU",
               .capability = "9.0",
               .num_units = 132,
               .memory_bytes = 80 * kGib,
               .pci_bus = "0000:01:00.0",
               .pci_link = "32.0 GT/s PCIe x16",
               .numa_node = 1,
               .peers = {{.pci_bus = "b", .access = true, .native_atomics = true},
                         {.pci_bus = "c", .access = true},
                         {.pci_bus = "d"}}}};
  job.copies = {{"host_to_device", 25'000'000, 1e-3}};
  job.launch = {.device_seconds = 1.5e-6, .queued_seconds = 2e-6, .host_seconds = 3e-6};
  job.links = {{.from = 0, .to = 1, .bytes = 8, .seconds = 1e-5},
               {.from = 0, .to = 1, .bytes = 300'000'000, .seconds = 2e-3}};
  const std::string text = gpu_text(job);
  CHECK_THAT(text, Catch::Contains("a GPU  132  80.0  0000:01:00.0  32.0 GT/s PCIe x16"));
  CHECK_THAT(text, Catch::Contains("1 by NVLink, 1 by PCIe, 1 by host memory"));
  CHECK_THAT(text, Catch::Contains("25,000,000  1000.0  25.0"));  // 25 MB in a millisecond
  CHECK_THAT(text, Catch::Contains("1.50 us in a graph, 2.00 us launched by itself"));
  CHECK_THAT(text, Catch::Contains("300,000,000         150.0"));  // the largest message only
  CHECK(gpu_text({}).empty());
}

}  // namespace meshplan::reports
