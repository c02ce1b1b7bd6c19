// A cluster: what a rank runs on, and what lies between ranks. Data sheet presets are compiled in;
// `fit_cluster` (calibration_fit.hpp) makes one from measurements.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.hpp"
#include "program/plan/mesh.hpp"

namespace meshplan::sim {

enum class DeviceKind { Gpu, Cpu };

/// GPU generations whose matrix units differ; Other: none of these, or not a GPU. BlackwellRtx:
/// graphics boards of that generation (compute capability 12), whose matrix units are issued like
/// Ada's. Cdna: AMD Instinct.
enum class Architecture { Other, Ampere, Ada, Hopper, Blackwell, BlackwellRtx, Cdna3, Cdna4 };

/// Fractions of the data sheet's peaks that well-shaped work reaches, and where shape takes it
/// down.
struct Efficiency {
  double gemm = 0.75;  // of the peak, large M, N and K
  double fp8 = 1;  // what products in FP8 with a scale a tensor reach of that part of their peak
  double fp8_block = 1;     // the same with a scale a block
  double fp4 = 1;           // the same in 4 bit, whose peak is twice FP8's
  double half_tile = 0.85;  // rate of a tile of half the size, over a whole one's
  int tile_m = 128;         // output tile of one SM or core: tile quantization
  int tile_n = 128;
  double half_k = 64;              // K at which the inner loop reaches half of its rate
  double attention_forward = 0.5;  // of the peak
  double attention_backward = 0.4;
  int attention_tile = 0;          // queries of a thread block: wave quantization; 0 = none
  double attention_block_us = 0;   // start and end of a thread block
  double exponentials_per_ps = 0;  // of the softmax, on a unit of their own; 0 = hidden
  double memory = 0.85;            // of the memory bandwidth, streams of several MiB
  double clock = 1;  // of kernels that are priced by clocks, over the one that they were timed at
  double half_stream_kib = 512;  // bytes at which a memory-bound operation reaches half of it
  bool operator==(const Efficiency&) const = default;
};

struct Device {
  std::string name;
  DeviceKind kind = DeviceKind::Gpu;
  Architecture architecture = Architecture::Other;
  std::string operators;  // measured ones that speak for it, a name in sim/operators; may be empty
  double power_w = 0;     // board power limit; 0 = not stated
  std::optional<double> clock_ghz;                 // of its units, where the peak does not tell it
  std::optional<std::string> source;               // where its figures are public
  std::map<std::string, double> peak_tflop_per_s;  // dense, by dtype or "fp8": {"bf16": 989}
  double memory_gib = 0;        // of one device; of the whole host if ranks are CPU processes
  double memory_gb_per_s = 0;   // reached by one rank alone
  int num_units = 1;            // SMs of a GPU, cores that one CPU rank uses: wave quantization
  double launch_us = 0;         // fixed time of an operation on the device's timeline
  double host_issue_us = 0;     // time the host needs to issue one operation
  double runtime_base_mib = 0;  // resident before the arena: CUDA context, libraries, process
  Efficiency efficiency;
  bool operator==(const Device&) const = default;
};

/// One level of the fabric. Levels are listed innermost first; ranks are placed in order.
struct FabricLevel {
  std::string name;
  int ranks_per_group = 0;   // in one group of this level; 0 = all ranks, on the last level only
  double latency_us = 0;     // of one hop
  double link_gb_per_s = 0;  // one link, one direction, as reached by large messages
  int ranks_per_link = 1;    // ranks that share one link
  bool full_mesh = false;    // no switch: equal parts of a rank's link go to each other rank of its
                             // group, so n ranks have n - 1 of these parts
  double oversubscription = 1.0;  // traffic entering the level over what it can carry
  double reached = 1.0;           // of the links' rate by large collectives, as measured
  std::string operators;          // measured collectives that speak for it, as Device::operators
  bool operator==(const FabricLevel&) const = default;
};

/// How a collective library moves a chunk: low-latency protocols flag every word and lose
/// bandwidth. NCCL's LL, LL128 and Simple: latencies and ratios from its src/graph/tuning.cc.
struct Protocol {
  std::string name = "simple";
  double base_us = 0;               // of the whole collective
  double latency_factor = 1.0;      // times the level's latency, per hop
  double bandwidth_fraction = 1.0;  // of the link
  bool operator==(const Protocol&) const = default;
};

/// What switches and the collective library have beyond rings and trees of point-to-point messages;
/// see nccl_algorithms.cpp.
enum class FabricOffer {
  Nvls,     // NVSwitch sums and multicasts: Hopper and later, NCCL 2.17
  CollNet,  // the network's switches sum (SHARP), NCCL 2.6 with its plugin
  Pat,      // parallel aggregated trees, NCCL 2.23
};
/// The first NCCL 2.x that has it.
int first_nccl_minor(FabricOffer offer);

struct Communication {
  bool needs_host = false;  // no progress by itself: a transfer moves while its ranks wait for it
  int progress_overhead_percent = 0;  // that a progress thread adds to a communication's time
  double device_share = 0;        // part of a device's units that a running communication occupies
  double all_to_all = 1.0;        // part of its formula's speed that an all-to-all reaches
  double all_to_all_inner = 1.0;  // the same on the innermost level
  double nvls = 0;      // part of links' rate at which NVSwitch sums; 0 = as NCCL's own tuning says
  double nvls_us = 0;   // start of what it sums; 0 = the same
  double own_part = 0;  // time of a byte that stays on its rank, over one that travels inside
  double oversubscription_wake_us = 0;  // until a waiting rank runs again, if ranks exceed cores
  double buffer_mib = 0;                // of the library, per communicator and rank
  std::vector<Protocol> protocols{Protocol{}};
  std::vector<FabricOffer> offers;
  bool operator==(const Communication&) const = default;
};

/// A calibrated operator: see program::OperatorSample.
struct MeasuredOperator {
  std::string signature;
  double seconds = 0;
  double seconds_busy = 0;  // while every core of the host ran the same operator
  double flops = 0;
  double bytes = 0;
  bool operator==(const MeasuredOperator&) const = default;
};

/// A calibrated communication: `op` is "all_reduce", "all_gather", "reduce_scatter", "all_to_all",
/// "broadcast" or "send_recv"; bytes are what one rank passes in.
struct MeasuredCollective {
  std::string op;
  int group_size = 1;
  int ranks_on_host = 1;  // of the whole job while it was measured
  std::int64_t bytes = 0;
  double seconds = 0;
  bool cold = false;  // of buffers that no cache holds, as gradients and parameters
  bool operator==(const MeasuredCollective&) const = default;
};

/// What the reference product (runtime/reference_product.hpp) took while the cluster was measured:
/// beside what it takes later it says how much faster or slower the machine has become.
struct ReferenceSpeed {
  double seconds = 0;       // one rank alone; 0 = not measured
  double seconds_busy = 0;  // while every core of the host ran it
  bool operator==(const ReferenceSpeed&) const = default;
};

/// What other users of a machine, and its own unevenness, add to undisturbed times, as a part of
/// them, while it was measured (docs/noise.md).
struct Noise {
  double one_rank = 0;   // at work on a host
  double all_cores = 0;  // at work: the slowest rank's, for which the others wait
  bool operator==(const Noise&) const = default;
};

/// Who sells a machine, under which names, for how much, and where that is public. Nothing that is
/// predicted depends on it but money.
struct About {
  std::string vendor;                  // "NVIDIA", "AWS"; "generic": nobody's in particular
  std::vector<std::string> instances;  // names that stand for the preset: "p5.48xlarge", "p5"
  std::optional<double> usd_per_device_hour;  // on demand, list price; absent: not public
  std::string price_of;                       // its region and date
  std::vector<std::string> sources;           // of the nodes and their network
  std::vector<std::string> assumed;           // what none of them says
  bool operator==(const About&) const = default;
};

/// Nodes of another type than a cluster's first ones.
struct OtherNodes {
  int num_nodes = 1;
  Device device;
  std::vector<FabricLevel> inside = {};  // instead of the fabric's levels inside a node
  bool operator==(const OtherNodes&) const = default;
};

/// A rank whose device computes more slowly than the others' of its type: a thermal limit, a bad
/// link to its host, somebody else's work. Its links are as fast as theirs.
struct SlowRank {
  int rank = 0;
  double times = 1;  // as long as the others take for the same work, at least 1
  bool operator==(const SlowRank&) const = default;
};

struct Cluster {
  int schema_version = 1;
  std::string name;
  std::optional<About> about;
  int num_nodes = 1;
  int devices_per_node = 1;  // ranks of one node
  int cores_per_host = 1;    // shared by the ranks of the node if they are CPU processes
  double host_memory_gb_per_s =
      0;  // shared by the ranks of a CPU host; 0 = no limit beyond a rank's own
  double host_memory_gib = 0;  // of a node of GPUs, for what is offloaded; 0 = not known
  Device device;
  std::vector<OtherNodes> other_nodes;  // the last of num_nodes, in this order; `device` elsewhere
  std::vector<SlowRank> slow_ranks;     // ascending, each rank once
  double storage_gb_per_s = 0;  // of the file system that all nodes share, writing; 0 = not known
  std::vector<FabricLevel> fabric;  // the last level holds all ranks; may be empty for one rank
  Communication communication;
  double jitter = 0;            // of a step, lost to the slowest rank per doubling of the ranks
  double step_overhead_ms = 0;  // of a step, in which no operation runs: loading, logging, checks
  std::vector<MeasuredOperator> operators;
  std::vector<MeasuredCollective> collectives;
  ReferenceSpeed reference;  // where it was calibrated
  Noise noise;               // there

  int num_ranks() const { return num_nodes * devices_per_node; }
  /// Ranks outnumber the cores that they run on.
  bool oversubscribed() const {
    return device.kind == DeviceKind::Cpu && devices_per_node > cores_per_host;
  }
  bool operator==(const Cluster&) const = default;
};

/// @throws ConfigError naming file, path, value and rule
Cluster parse_cluster(std::string_view text, const std::string& file);
std::string to_json(const Cluster& cluster);
/// The JSON Schema of the cluster file.
std::string cluster_schema();
/// Sixteen hexadecimal digits over the resolved file, less what only describes it.
std::string hash_of(const Cluster& cluster);
/// The cluster less what only describes it: vendor, names, price and sources.
Cluster without_description(Cluster cluster);

// ---- types of ranks. Those of nodes come first: 0 has `device`, t is other_nodes[t - 1]. Slow
// ranks' come behind them: one for each node type and each `times` that such a rank has.

/// The number of types of nodes, which do not tell slow ranks apart.
inline int num_node_types(const Cluster& cluster) {
  return 1 + static_cast<int>(cluster.other_nodes.size());
}
/// The number of all types; 1 where all ranks compute alike.
int num_types(const Cluster& cluster);
/// @param type  of nodes
int num_nodes_of(const Cluster& cluster, int type);
/// The type of a rank: its node's, or a slow one's.
int node_type(const Cluster& cluster, int rank);
/// What the nodes of this type have; a slow rank's is as they are.
const Device& device_of(const Cluster& cluster, int type);
/// Types of a pipeline stage's ranks, by stage, ascending.
std::vector<std::vector<int>> node_types(const Cluster& cluster, const program::Mesh& mesh);
/// The cluster as it would be if all its ranks were of this type.
Cluster as_if_all(const Cluster& cluster, int type);
/// The same nodes, laid out in this order of their types: which ranks, and so which stages, they
/// hold. Slow ranks stay on their nodes. @param types  every type of nodes once
Cluster in_node_order(const Cluster& cluster, const std::vector<int>& types);
/// The nodes of all parts, in order. Levels outside a node are as slow as the slowest part's; the
/// communication library, jitter and overhead are the first's, its measurements are left out.
/// @throws ConfigError for parts that differ in kind of device, in devices of a node or in levels
Cluster joined(const std::vector<Cluster>& parts);

/// Names of the presets that are compiled in, sorted.
std::vector<std::string> cluster_names();
/// A preset as its data sheet says, by its name or by one of its instances (catalog.hpp).
/// "NAME-800g-node" is the preset NAME (or NAME-generic) with another network: 800 Gb/s a node.
/// @throws ConfigError for an unknown name, with the nearest known one
Cluster load_data_sheet(std::string_view name);

/// Noise of so many ranks on each host: linear between one and all cores.
double noise_of(const Cluster& cluster, int ranks_on_host);
/// A step of `seconds` on all ranks together with what no operation explains: stragglers, noise and
/// the overhead of a step.
double with_step_effects(const Cluster& cluster, double seconds);

/// The same machines, resized to hold exactly `num_ranks`: whole nodes, or part of one node. Ranks
/// of a single CPU host may be any number: they share its cores. Slow ranks beyond are dropped.
/// @throws ConfigError if whole nodes cannot hold it, with the nearest number that can; for another
/// number than it has of a cluster with other nodes
Cluster with_ranks(const Cluster& cluster, int num_ranks);

/// Dense peak in FLOP/s of the first nodes' device; fp32's stands in for a dtype that the data
/// sheet lacks.
/// @throws ConfigError if it lists neither
double peak_flop_per_s(const Cluster& cluster, DType dtype);

/// Dense peak in FLOP/s of products in FP8. CPU ranks compute them in software, at fp32's peak.
/// @throws ConfigError for a GPU without FP8
double float8_peak_flop_per_s(const Cluster& cluster);

/// Where the members of a group sit. `domains[l]` counts the groups of fabric level l that the
/// members touch; `level` is the outermost level that the group needs (absent for one rank).
struct GroupPlacement {
  int size = 1;
  std::optional<int> level;
  std::vector<int> domains;             // per level up to `level`
  std::vector<int> members_per_domain;  // fewest members in one domain of each level
  int on_first_host = 1;                // members on the host of the first one
  bool cold = false;  // its messages are gradients and parameters, which no cache holds
  bool operator==(const GroupPlacement&) const = default;
};

/// @param ranks  world ranks, each < cluster.num_ranks(). @throws InvariantError otherwise
GroupPlacement place(const Cluster& cluster, const std::vector<int>& ranks);

/// The level that connects two ranks: GroupPlacement::level of the group that they are.
int level_between(const Cluster& cluster, int a, int b);

/// The group of this kind that `rank` is in.
GroupPlacement place(const Cluster& cluster, const program::Mesh& mesh, program::Group group,
                     int rank);

}  // namespace meshplan::sim
