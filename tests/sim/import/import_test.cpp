// Clusters from other tools' files; the fixtures are written by hand after the formats.
#include "sim/import/import.hpp"

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "core/error.hpp"

namespace meshplan::sim {
namespace {

ImportedCluster imported(const std::string& format, const std::string& text,
                         std::optional<std::string> collective = {}) {
  return import_cluster({.format = format,
                         .text = text,
                         .file = "given",
                         .base = {},
                         .collective = std::move(collective)});
}

std::string error_of(const std::string& format, const std::string& text,
                     std::optional<std::string> collective = {}) {
  try {
    imported(format, text, std::move(collective));
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const auto place = text.find(from);
  REQUIRE(place != std::string::npos);
  return text.replace(place, from.size(), to);
}

const std::string kTopology = R"(<system version="1">
  <cpu numaid="0" affinity="ff" arch="x86_64" vendor="GenuineIntel">
    <pci busid="0000:0a:00.0" class="0x060400" link_speed="32.0 GT/s PCIe" link_width="16">
      <pci busid="0000:0b:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16">
        <gpu dev="0" sm="90" rank="0" gdr="1">
          <nvlink target="0000:20:00.0" count="9" tclass="0x068000"/>
          <nvlink target="0000:21:00.0" count="9" tclass="0x068000"/>
        </gpu>
      </pci>
      <pci busid="0000:0c:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16">
        <gpu dev="1" sm="90" rank="1" gdr="1"><nvlink target="0000:20:00.0" count="18"/></gpu>
      </pci>
      <pci busid="0000:0d:00.0" class="0x020700" link_speed="32.0 GT/s PCIe" link_width="16">
        <nic><net name="mlx5_0" dev="0" speed="400000" port="1" latency="0.0" gdr="1"/></nic>
      </pci>
    </pci>
  </cpu>
</system>
)";

const std::string kMatrix =
    "\t\x1b[4mGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\x1b[0m\n"
    "GPU0\t X \tNV18\tNV18\tNV18\tPIX\tSYS\t0-47\t0\n"
    "GPU1\tNV18\t X \tNV18\tNV18\tPIX\tSYS\t0-47\t0\n"
    "GPU2\tNV18\tNV18\t X \tNV18\tSYS\tPIX\t48-95\t1\n"
    "GPU3\tNV18\tNV18\tNV18\t X \tSYS\tPIX\t48-95\t1\n"
    "NIC0\tPIX\tPIX\tSYS\tSYS\t X \tSYS\n"
    "NIC1\tSYS\tSYS\tPIX\tPIX\tSYS\t X \n"
    "\nLegend:\n  X    = Self\n  SYS  = Connection traversing PCIe\n";

const std::string kNcclTests =
    R"(# nThread 1 nGpus 2 minBytes 1024 maxBytes 1048576 step: 32(factor)
#  Rank  0 Group  0 Pid  11 on node01 device  0 [0x1b] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid  11 on node01 device  1 [0x43] NVIDIA H100 80GB HBM3
#
#       size         count      type   redop    root     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)
        1024           256     float     sum      -1    12.50    0.08    0.08      0
     1048576        262144     float     sum      -1    20.00   52.43   52.43      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 26.2
)";

const std::string kCalculon = R"({
  "matrix": {"tflops": 312, "gflops_efficiency": {"float16": [[128, 0.95], [0, 0.1]]}},
  "vector": {"tflops": 78, "gflops_efficiency": {"float16": [[16, 0.95]]}},
  "mem1": {"GiB": 80, "GBps": 2000, "MB_efficiency": [[100, 0.9], [0, 0.3]]},
  "mem2": {"GiB": 512, "GBps": 32, "MB_efficiency": [[0, 0.3]]},
  "networks": [
    {"bandwidth": 300, "efficiency": 0.6, "size": 8, "latency": 0.000001, "processor_usage": 0.15},
    {"bandwidth": 25, "efficiency": 0.8, "size": 65536, "latency": 0.000002}
  ]
})";

const std::string kAstra =
    "topology: [ Switch, Ring ]  # two dimensions\n"
    "npus_count: [ 8, 4 ]\n"
    "bandwidth: [ 200.0, 25.0 ]  # GB/s\n"
    "latency: [ 500.0, 2000.0 ]  # ns\n";

}  // namespace

TEST_CASE("NCCL's topology gives links, network cards and who shares them", "[sim][import]") {
  const Cluster cluster = imported("nccl-topology", kTopology).cluster;
  CHECK(cluster.devices_per_node == 2);
  CHECK(cluster.device.architecture == Architecture::Hopper);
  REQUIRE(cluster.fabric.size() == 2);
  CHECK(cluster.fabric[0].link_gb_per_s == Approx(18 * 20.6));  // NCCL's rate of an NVLink 4
  CHECK(cluster.fabric[0].ranks_per_group == 2);
  CHECK(cluster.fabric[1].link_gb_per_s == Approx(0.96 * 50));  // 400 Gb/s
  CHECK(cluster.fabric[1].ranks_per_link == 2);                 // one card for two GPUs
}

// PCIe 4 with 16 lanes: NCCL's 120 a lane * 16 / 80 = 24 GB/s.
TEST_CASE("Without NVLinks GPUs talk over their PCI lanes", "[sim][import]") {
  const std::string text =
      R"(<system><cpu numaid="0"><pci busid="1" link_speed="16.0 GT/s PCIe" link_width="16">
         <gpu dev="0" sm="89" rank="0"/></pci><pci busid="2" link_speed="16.0 GT/s PCIe"
         link_width="16"><gpu dev="1" sm="89" rank="1"/></pci></cpu></system>)";
  const Cluster cluster = imported("nccl-topology", text).cluster;
  CHECK(cluster.device.architecture == Architecture::Ada);
  REQUIRE(cluster.fabric.size() == 1);
  CHECK(cluster.fabric[0].link_gb_per_s == Approx(24));
}

TEST_CASE("A topology that is none is refused with the place", "[sim][import]") {
  CHECK_THAT(error_of("nccl-topology", "<system><cpu>"), Catch::Contains("given: byte "));
  CHECK_THAT(error_of("nccl-topology", "<graphs/>"), Catch::Contains("expected <system>"));
  CHECK_THAT(error_of("nccl-topology", "<system/>"), Catch::Contains("no <gpu>"));
  CHECK_THAT(error_of("nccl-topology", replaced(kTopology, "sm=\"90\"", "sm=\"x\"")),
             Catch::Contains("pci[busid=0000:0b:00.0]/gpu: attribute sm=\"x\""));
  CHECK_THAT(error_of("nccl-topology", replaced(kTopology, "sm=\"90\"", "sm=\"80\"")),
             Catch::Contains("capability 90 and 80") || Catch::Contains("capability 80 and 90"));
}

TEST_CASE("The matrix of nvidia-smi gives NVLinks behind a switch", "[sim][import]") {
  const Cluster cluster = imported("nvidia-smi", kMatrix).cluster;
  CHECK(cluster.devices_per_node == 4);
  REQUIRE(cluster.fabric.size() == 2);
  CHECK(cluster.fabric[0].link_gb_per_s == Approx(18 * 20.6));
  CHECK(cluster.fabric[1].ranks_per_link == 2);  // two cards for four GPUs
}

TEST_CASE("A matrix without NVLinks is PCIe, one with a hole is refused", "[sim][import]") {
  const std::string pcie = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tPHB\t0-7\nGPU1\tPHB\t X \t0-7\n";
  const Cluster cluster = imported("nvidia-smi", pcie).cluster;
  CHECK(cluster.fabric.front().name == "pcie");
  CHECK(cluster.fabric.front().link_gb_per_s == Approx(24));
  CHECK_THAT(error_of("nvidia-smi", replaced(pcie, "PHB", "NVX")),
             Catch::Contains("GPU0, GPU1: 'NVX'"));
  CHECK_THAT(error_of("nvidia-smi", "\tGPU0\tGPU1\nGPU0\t X \tSYS\n"),
             Catch::Contains("1 rows for 2 columns"));
  CHECK_THAT(error_of("nvidia-smi", "nothing"), Catch::Contains("nvidia-smi topo -m"));
}

TEST_CASE("The table of nccl-tests becomes a measured curve", "[sim][import]") {
  const Cluster cluster = imported("nccl-tests", kNcclTests, "all_gather").cluster;
  REQUIRE(cluster.collectives.size() == 2);
  CHECK(cluster.collectives[0].bytes == 512);  // a rank's own part of 1,024 bytes
  CHECK(cluster.collectives[0].seconds == Approx(12.5e-6));
  CHECK(cluster.collectives[1].group_size == 2);
  CHECK(imported("nccl-tests", kNcclTests, "all_reduce_perf").cluster.collectives[0].bytes == 1024);
}

TEST_CASE("A table of nccl-tests that cannot be used is refused", "[sim][import]") {
  CHECK_THAT(error_of("nccl-tests", kNcclTests), Catch::Contains("--collective all_reduce"));
  CHECK_THAT(error_of("nccl-tests", kNcclTests, "all_reduse"), Catch::Contains("all_reduce"));
  CHECK_THAT(error_of("nccl-tests", replaced(kNcclTests, "12.50", "fast"), "all_reduce"),
             Catch::Contains("line 7: 'fast'"));
  CHECK_THAT(error_of("nccl-tests", replaced(kNcclTests, "on node01", "on node02"), "all_reduce"),
             Catch::Contains("2 hosts"));
  CHECK_THAT(error_of("nccl-tests", "# all_reduce_perf\n"), Catch::Contains("no line"));
}

TEST_CASE("A Calculon system keeps its speeds and levels", "[sim][import]") {
  const Cluster cluster = imported("calculon", kCalculon).cluster;
  CHECK(cluster.device.peak_tflop_per_s.at("bf16") == 312);
  CHECK(cluster.device.efficiency.gemm == 0.95);
  CHECK(cluster.device.efficiency.memory == 0.9);
  CHECK(cluster.communication.device_share == 0.15);
  REQUIRE(cluster.fabric.size() == 2);
  CHECK(cluster.fabric[0].link_gb_per_s == Approx(180));
  CHECK(cluster.fabric[0].latency_us == Approx(1));
  CHECK(cluster.fabric[0].ranks_per_group == 8);
  CHECK(cluster.fabric[1].ranks_per_group == 0);
  CHECK(with_ranks(cluster, 64).num_nodes == 8);
}

TEST_CASE("A Calculon system with a gap is refused with the path", "[sim][import]") {
  CHECK_THAT(error_of("calculon", "{"), Catch::Contains("given:1:2: not valid JSON"));
  CHECK_THAT(error_of("calculon", "[]"), Catch::Contains("no key 'matrix'"));
  CHECK_THAT(error_of("calculon", replaced(kCalculon, "\"size\": 8", "\"size\": -8")),
             Catch::Contains("networks[0].size: -8: expected a number above 0"));
  CHECK_THAT(error_of("calculon", replaced(kCalculon, "[128, 0.95]", "[128, 1.5]")),
             Catch::Contains("1.5: expected a number above 0, at most 1"));
  CHECK_THAT(error_of("calculon", replaced(kCalculon, "\"efficiency\": ", "\"efficiency\": 3")),
             Catch::Contains("networks[0].efficiency: 3"));
  CHECK_THAT(error_of("calculon", replaced(kCalculon, "\"latency\"", "\"latncy\"")),
             Catch::Contains("networks[0]: unknown key 'latncy'; did you mean 'latency'?"));
}

TEST_CASE("ASTRA-sim's network gives a level a dimension", "[sim][import]") {
  const Cluster cluster = imported("astra-sim", kAstra).cluster;
  CHECK(cluster.num_ranks() == 32);
  CHECK(cluster.devices_per_node == 8);
  REQUIRE(cluster.fabric.size() == 2);
  CHECK(cluster.fabric[0].link_gb_per_s == 200);
  CHECK(cluster.fabric[0].latency_us == Approx(0.5));
  CHECK(cluster.fabric[1].latency_us == Approx(2));
}

TEST_CASE("ASTRA-sim's network with a wrong value is refused with its line", "[sim][import]") {
  CHECK_THAT(error_of("astra-sim", replaced(kAstra, "Ring", "Rings")),
             Catch::Contains("line 1: topology[1]") && Catch::Contains("did you mean 'Ring'"));
  CHECK_THAT(error_of("astra-sim", replaced(kAstra, "[ 8, 4 ]", "[ 8 ]")),
             Catch::Contains("line 2: npus_count: 1 values, but topology has 2"));
  CHECK_THAT(error_of("astra-sim", replaced(kAstra, "25.0", "slow")),
             Catch::Contains("line 3: bandwidth[1]: 'slow'"));
  CHECK_THAT(error_of("astra-sim", "topology: [ Ring ]\n"), Catch::Contains("no key 'npus_count'"));
}

TEST_CASE("Numbers that no machine has are refused where they stand", "[sim][import]") {
  for (const char* links : {"NV0", "NV-3", "NVx", "X"})
    CHECK_THAT(
        error_of("nvidia-smi", fmt::format("\tGPU0\tGPU1\nGPU0\tX\t{0}\nGPU1\t{0}\tX\n", links)),
        Catch::Contains(fmt::format("GPU0, GPU1: '{}': expected NV<links>", links)));
  CHECK_THAT(error_of("nvidia-smi", "\x1b"),
             Catch::Contains("expected the matrix"));  // no endless loop
  CHECK_THAT(error_of("nccl-topology", replaced(kTopology, "sm=\"90\"", "sm=\"1e30\"")),
             Catch::Contains("attribute sm=\"1e30\": expected a number from 1 to 1000"));
  CHECK_THAT(error_of("nccl-topology", replaced(kTopology, "sm=\"90\"", "sm=\"nan\"")),
             Catch::Contains("expected a number"));
  const std::string ranks =
      "# Rank 0 Group 0 Pid 1 on a device 0\n# Rank 1 Group 0 Pid 1 on a device 1\n";
  CHECK_THAT(error_of("nccl-tests", ranks + "8 2 float sum -1 0.00 0.00 0.00 0\n", "all_reduce"),
             Catch::Contains("line 3: '0.00': expected a time in us"));
  const std::string network = "topology: [ Ring ]\nnpus_count: [ 8 ]\nlatency: [ 5 ]\n";
  CHECK_THAT(error_of("astra-sim", "topology: []\n"),
             Catch::Contains("line 1: topology: expected at least"));
  CHECK_THAT(error_of("astra-sim", network + "bandwith: [ 5 ]\n"),
             Catch::Contains("did you mean 'bandwidth'?"));
  CHECK_THAT(error_of("astra-sim", network + "latency: [ 6 ]\nbandwidth: [ 5 ]\n"),
             Catch::Contains("line 4: the key 'latency' appears twice"));
  CHECK_THAT(error_of("astra-sim", replaced(network, "8", "1e9") + "bandwidth: [ 5 ]\n"),
             Catch::Contains("at most 1048576"));
}

TEST_CASE("A measured curve of nccl-tests is found again by what prices messages",
          "[sim][import]") {
  const std::string text =
      "# Rank 0 Group 0 Pid 1 on a device 0\n# Rank 1 Group 0 Pid 1 on a device 1\n"
      "8 2 float sum -1 9.0 0.00 0.00 0\n8 2 float sum -1 7.0 0.00 0.00 0\n";
  const ImportedCluster sends = imported("nccl-tests", text, "sendrecv_perf");
  REQUIRE(sends.cluster.collectives.size() == 1);  // the shorter of two times of one size
  CHECK(sends.cluster.collectives.front().op == "point_to_point");
  CHECK(sends.cluster.collectives.front().seconds == Approx(7e-6));
}

TEST_CASE("An unknown format is named with the nearest known one", "[sim][import]") {
  CHECK_THAT(error_of("nccl-topologie", ""), Catch::Contains("nccl-topology"));
}

}  // namespace meshplan::sim
