// What other tools write about machines.
#include "fuzz/reader.hpp"
#include "fuzz/samples.hpp"
#include "sim/estimator/estimator.hpp"
#include "sim/import/import.hpp"

namespace meshplan::fuzz {
namespace {

const char* const kTopology = R"(<system version="1">
  <cpu numaid="0" affinity="ffff" arch="x86_64" vendor="GenuineIntel">
    <pci busid="0000:17:00.0" class="0x060400" link_speed="32.0 GT/s PCIe" link_width="16">
      <pci busid="0000:1b:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16">
        <gpu dev="0" sm="90" rank="0" gdr="1"><nvlink target="0000:c1:00.0" count="18"/></gpu>
      </pci>
      <pci busid="0000:1c:00.0" class="0x030200" link_speed="16 GT/s" link_width="16">
        <gpu dev="1" sm="90" rank="1" gdr="1"><nvlink target="0000:c1:00.0" count="18"/></gpu>
      </pci>
      <nic><net name="mlx5_0" dev="0" speed="400000" port="1" guid="0x1"/></nic>
    </pci>
  </cpu>
</system>
)";
const char* const kMatrix =
    "\tGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tNIC1\tCPU Affinity\n"
    "GPU0\t X \tNV18\tNV18\tNV18\tPXB\tSYS\t0-47\n"
    "GPU1\tNV18\t X \tNV18\tNV18\tPXB\tSYS\t0-47\n"
    "GPU2\tNV18\tNV18\t X \tNV18\tSYS\tPXB\t0-47\n"
    "\x1b[4mGPU3\x1b[0m\tNV18\tNV18\tNV18\t X \tSYS\tPXB\t0-47\n"
    "NIC0\tPXB\tPXB\tSYS\tSYS\t X \tSYS\n\nLegend:\n  X = Self\n";
const char* const kNcclTests =
    "# nThread 1 nGpus 1 minBytes 8 maxBytes 1073741824 step: 2(factor)\n"
    "# Using devices\n"
    "#  Rank  0 Group  0 Pid   4711 on     node1 device  0 [0x1b] NVIDIA H100 80GB HBM3\n"
    "#  Rank  1 Group  0 Pid   4711 on     node1 device  1 [0x43] NVIDIA H100 80GB HBM3\n"
    "# Collective test starting: all_reduce_perf\n"
    "#       size         count      type   redop    root     time   algbw   busbw #wrong\n"
    "           8             2     float     sum      -1    12.57    0.00    0.00      0\n"
    "     1048576        262144     float     sum      -1    33.01   31.77   31.77      0\n"
    "# Avg bus bandwidth    : 15.9\n";
const char* const kCalculon = R"({"matrix": {"float16": {"tflops": 312,
   "gflops_efficiency": [[128, 0.99], [0, 0.5]]}, "float32": {"tflops": 19.5}},
 "vector": {"float16": {"tflops": 78, "gflops_efficiency": [[0, 0.9]]}},
 "mem1": {"GiB": 80, "GBps": 2039, "MB_efficiency": [[100, 0.9], [0, 0.7]]},
 "mem2": {"GiB": 512, "GBps": 100, "MB_efficiency": [[0, 1.0]]}, "processing_mode": "no_overlap",
 "networks": [{"bandwidth": 300, "efficiency": 0.65, "size": 8, "latency": 0.00001,
   "ops": {"all_reduce": [1.0, null]}, "must_be_filled": true, "processor_usage": 0.02},
  {"bandwidth": 25, "efficiency": 0.85, "size": 65536, "latency": 0.00002, "ops": {}}]})";
const char* const kAstraSim =
    "topology: [ Ring, FullyConnected, Switch ]\n# comment\nnpus_count: [ 2, 8, 4 ]\n"
    "bandwidth: [ 200.0, 100.0, 50.0 ]  # GB/s\nlatency: [ 50.0, 500.0, 2000.0 ]\n";

Reader reader_of(const std::string& format, const std::string& seed) {
  const auto read = [format](const std::string& text) -> Consumer {
    const sim::ImportedCluster imported = sim::import_cluster(
        {.format = format, .text = text, .file = kFile, .base = {}, .collective = {}});
    return [cluster = imported.cluster] {
      const int dp = cluster.num_ranks() >= 2 ? 2 : 1;
      sim::Estimator(sim::with_ranks(cluster, dp)).estimate(sample_plan({.dp = dp}, 4));
    };
  };
  return {format, 4, 30, true, read, {seed}};
}

}  // namespace

std::vector<Reader> import_readers() {
  return {reader_of("nccl-topology", kTopology), reader_of("nvidia-smi", kMatrix),
          reader_of("nccl-tests", kNcclTests), reader_of("calculon", kCalculon),
          reader_of("astra-sim", kAstraSim)};
}

}  // namespace meshplan::fuzz
