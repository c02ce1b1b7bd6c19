#include <algorithm>
#include <fmt/format.h>
#include <optional>
#include <set>
#include <tuple>

#include "clusters/architecture_names.hpp"
#include "core/hash.hpp"
#include "core/json_fields.hpp"
#include "core/limits.hpp"
#include "program/calibration/collective_table.hpp"
#include "program/cost/cost.hpp"
#include "sim/clusters/cluster.hpp"

namespace meshplan {

template <>
struct EnumNames<sim::DeviceKind> {
  static constexpr std::array<std::pair<sim::DeviceKind, std::string_view>, 2> value = {
      {{sim::DeviceKind::Gpu, "gpu"}, {sim::DeviceKind::Cpu, "cpu"}}};
};

template <>
struct EnumNames<sim::FabricOffer> {
  static constexpr std::array<std::pair<sim::FabricOffer, std::string_view>, 3> value = {
      {{sim::FabricOffer::Nvls, "nvls"},
       {sim::FabricOffer::CollNet, "collnet"},
       {sim::FabricOffer::Pat, "pat"}}};
};

}  // namespace meshplan

namespace meshplan::sim {

namespace {

constexpr std::string_view kFp8 = "fp8";  // a rate of matrix units, not a dtype of tensors
constexpr double kSmallest = 1e-12;       // bound of what must be positive
constexpr double kLargestTile = 1 << 16;  // rows or columns
constexpr double kLargestFactor = 1e6;    // of a ratio: larger ones are mistakes
constexpr double kLargestSlowness = 1e3;  // of a rank that still takes part

/// A flag that files leave out where it is not set.
template <class Visitor>
void stated_flag(Visitor& v, std::string_view key, bool& flag, std::string_view meaning) {
  std::optional<bool> spelled = flag ? std::optional(true) : std::nullopt;
  v.stated(key, spelled, meaning);
  flag = spelled.value_or(false);
}

/// A list that files leave out where it is empty.
template <class Visitor, class T>
void stated_list(Visitor& v, std::string_view key, std::vector<T>& list, std::string_view meaning) {
  std::optional<std::vector<T>> spelled = list.empty() ? std::nullopt : std::optional(list);
  v.stated(key, spelled, meaning);
  list = spelled.value_or(std::vector<T>{});
}

}  // namespace

template <class Visitor>
void fields(Visitor& v, Efficiency& e) {
  v.optional("gemm", e.gemm, "part of the peak that a large matrix product reaches",
             between(kSmallest, 1));
  v.optional("fp8", e.fp8, "part of `gemm` that products in FP8 reach", between(0, 2));
  v.optional("fp8_block", e.fp8_block, "the same with a scale a block", between(0, 2));
  v.optional("fp4", e.fp4, "the same in 4 bit, whose peak is twice FP8's", between(0, 2));
  v.optional("half_tile", e.half_tile, "rate of a tile of half the size, over a whole one's",
             between(kSmallest, 2));
  v.optional("tile_m", e.tile_m, "rows of the output tile of one unit", between(1, kLargestTile));
  v.optional("tile_n", e.tile_n, "columns of the output tile of one unit",
             between(1, kLargestTile));
  v.optional("half_k", e.half_k, "inner dimension at which a product runs at half its rate",
             between(0, limits::kRate));
  v.optional("attention_forward", e.attention_forward, "part of the peak", between(kSmallest, 1));
  v.optional("attention_backward", e.attention_backward, "part of the peak", between(kSmallest, 1));
  v.optional("attention_tile", e.attention_tile, "queries of one thread block; 0 = no waves",
             between(0, kLargestTile));
  v.optional("attention_block_us", e.attention_block_us, "start and end of a thread block",
             between(0, limits::kSeconds));
  v.optional("exponentials_per_ps", e.exponentials_per_ps,
             "of fused attention, beside its products; 0 = hidden", between(0, limits::kRate));
  v.optional("clock", e.clock, "of kernels priced by clocks, over the one that they were timed at",
             between(kSmallest, 2));
  v.optional("memory", e.memory, "part of the memory bandwidth that streams reach",
             between(kSmallest, 1));
  v.optional("half_stream_kib", e.half_stream_kib,
             "size of a memory-bound operation that reaches half of the bandwidth",
             between(0, limits::kRate));
}

template <class Visitor>
void fields(Visitor& v, Device& d) {
  v.required("name", d.name, "as on the data sheet", of_name());
  v.required("kind", d.kind, "gpu, or cpu: a rank is a process on one core");
  v.stated("source", d.source, "where its figures are public");
  v.optional("architecture", d.architecture, "generation of a GPU");
  v.optional("operators", d.operators,
             "device whose measured operators correct the formulas: a100_sxm, h100_sxm, b200_sxm, "
             "gb200, l40s");
  v.optional("power_w", d.power_w, "board power limit; 0 = not stated", between(0, limits::kRate));
  v.required("peak_tflop_per_s", d.peak_tflop_per_s, "dense peak by dtype, of one rank's device",
             between(kSmallest, limits::kRate));
  v.required("memory_gib", d.memory_gib, "of a GPU; of the whole host for cpu",
             between(kSmallest, limits::kRate));
  v.required("memory_gb_per_s", d.memory_gb_per_s, "memory bandwidth of one rank alone",
             between(kSmallest, limits::kRate));
  v.optional("num_units", d.num_units, "SMs or CUs, or cores of one rank",
             between(1, limits::kRanks));
  v.stated("clock_ghz", d.clock_ghz, "of these units, where the peak does not tell it",
           between(kSmallest, kLargestFactor));
  v.optional("launch_us", d.launch_us, "fixed time of every operation",
             between(0, limits::kSeconds));
  v.optional("host_issue_us", d.host_issue_us, "host time to issue one operation",
             between(0, limits::kSeconds));
  v.optional("runtime_base_mib", d.runtime_base_mib, "resident before any tensor",
             between(0, limits::kRate));
  v.optional("efficiency", d.efficiency, "how shapes lower the peaks");
}

template <class Visitor>
void fields(Visitor& v, FabricLevel& l) {
  v.required("name", l.name, "e.g. nvlink, infiniband", of_name());
  v.optional("ranks_per_group", l.ranks_per_group,
             "ranks inside one group of this level; 0 on the last level = all",
             between(0, limits::kRanks));
  v.required("latency_us", l.latency_us, "of one hop", between(0, limits::kSeconds));
  v.required("link_gb_per_s", l.link_gb_per_s, "one link, one direction, large messages",
             between(kSmallest, limits::kRate));
  v.optional("ranks_per_link", l.ranks_per_link, "ranks that share one link",
             between(1, limits::kRanks));
  stated_flag(
      v, "full_mesh", l.full_mesh,
      "an equal part of a rank's link goes to each other rank of its group, not to a switch");
  v.optional("oversubscription", l.oversubscription, "offered traffic over capacity",
             between(1, kLargestFactor));
  v.optional("reached", l.reached, "part of the links' rate that large collectives reach",
             between(kSmallest, 2));
  v.optional("operators", l.operators,
             "device whose measured collectives correct the formulas; of the innermost level");
}

template <class Visitor>
void fields(Visitor& v, About& a) {
  v.required("vendor", a.vendor, "who sells it, e.g. NVIDIA, AWS, or generic", of_name());
  v.optional("instances", a.instances, "names that stand for a preset, e.g. p5.48xlarge",
             of_name());
  v.stated("usd_per_device_hour", a.usd_per_device_hour, "list price on demand",
           between(0, limits::kRate));
  v.optional("price_of", a.price_of, "region and date of the price");
  v.optional("sources", a.sources, "where the nodes' figures are public");
  v.optional("assumed", a.assumed, "what none of them says");
}

template <class Visitor>
void fields(Visitor& v, OtherNodes& n) {
  v.required("num_nodes", n.num_nodes, "of this type", between(1, limits::kRanks));
  v.required("device", n.device, "what a rank computes on");
  v.optional("inside", n.inside, "instead of the fabric's levels inside a node");
}

template <class Visitor>
void fields(Visitor& v, SlowRank& s) {
  v.required("rank", s.rank, "that computes more slowly than others on nodes like its own",
             between(0, limits::kRanks));
  v.required("times", s.times, "as long as they take for the same work",
             between(1, kLargestSlowness));
}

template <class Visitor>
void fields(Visitor& v, Protocol& p) {
  v.optional("name", p.name, "e.g. ll, simple", of_name());
  v.optional("base_us", p.base_us, "of a whole collective", between(0, limits::kSeconds));
  v.optional("latency_factor", p.latency_factor, "times the level's latency, per hop",
             between(0, kLargestFactor));
  v.optional("bandwidth_fraction", p.bandwidth_fraction, "of the link", between(kSmallest, 1));
}

template <class Visitor>
void fields(Visitor& v, Communication& c) {
  v.optional("needs_host", c.needs_host, "transfers move only while their ranks wait");
  v.optional("device_share", c.device_share, "units that a communication occupies", between(0, 1));
  v.optional("all_to_all", c.all_to_all, "part of its formula's speed that an all-to-all reaches",
             between(kSmallest, 1));
  v.optional("all_to_all_inner", c.all_to_all_inner, "the same on the innermost level",
             between(kSmallest, 1));
  v.optional("nvls", c.nvls, "part of the links' rate at which switches sum; 0 = as NCCL says",
             between(0, 1));
  v.optional("nvls_us", c.nvls_us, "start of what switches sum; 0 = as NCCL's tuning says",
             between(0, limits::kSeconds));
  v.optional("own_part", c.own_part,
             "time of a byte that stays on its rank, over one that travels inside",
             between(0, kLargestFactor));
  v.optional("oversubscription_wake_us", c.oversubscription_wake_us,
             "until a waiting rank runs again, if ranks exceed cores",
             between(0, limits::kSeconds));
  v.optional("progress_overhead_percent", c.progress_overhead_percent,
             "that a progress thread adds to the time of a communication",
             between(0, kLargestFactor));
  v.optional("buffer_mib", c.buffer_mib, "per communicator and rank", between(0, limits::kRate));
  v.optional("protocols", c.protocols, "the library's ways to move data; the fastest counts");
  v.optional("offers", c.offers, "beyond rings and trees: nvls, collnet, pat");
}

template <class Visitor>
void fields(Visitor& v, MeasuredOperator& o) {
  v.required("signature", o.signature, "kind, phase, dtype, local shape");
  v.required("seconds", o.seconds, "first quartile of undisturbed timings, alone",
             between(0, limits::kSeconds));
  v.optional("seconds_busy", o.seconds_busy, "while every core ran the same; 0 = not measured",
             between(0, limits::kSeconds));
  v.optional("flops", o.flops, "executed", between(0, limits::kMagnitude));
  v.optional("bytes", o.bytes, "through memory", between(0, limits::kBytes));
}

template <class Visitor>
void fields(Visitor& v, MeasuredCollective& c) {
  v.required("op", c.op,
             "all_reduce, all_gather, reduce_scatter, all_to_all, broadcast or point_to_point");
  v.required("group_size", c.group_size, "ranks", between(1, limits::kRanks));
  v.optional("ranks_on_host", c.ranks_on_host, "of the job on the busiest host",
             between(1, limits::kRanks));
  v.required("bytes", c.bytes, "that one rank passes in", between(0, limits::kBytes));
  v.required("seconds", c.seconds, "first quartile, of the slowest rank",
             between(0, limits::kSeconds));
  v.optional("cold", c.cold, "of buffers that no cache holds, as gradients and parameters");
}

template <class Visitor>
void fields(Visitor& v, ReferenceSpeed& r) {
  v.optional("seconds", r.seconds, "one rank alone; 0 = not measured",
             between(0, limits::kSeconds));
  v.optional("seconds_busy", r.seconds_busy, "while every core ran it",
             between(0, limits::kSeconds));
}

template <class Visitor>
void fields(Visitor& v, Noise& n) {
  v.optional("one_rank", n.one_rank, "at work on a host", between(0, limits::kRate));
  v.optional("all_cores", n.all_cores, "at work: the slowest rank's", between(0, limits::kRate));
}

template <class Visitor>
void fields(Visitor& v, Cluster& c) {
  v.required("schema_version", c.schema_version, "1", between(1, 1));
  v.required("name", c.name, "what it is called", of_name());
  v.stated("about", c.about, "vendor, names, price and sources; nothing is predicted from it");
  v.required("num_nodes", c.num_nodes, "hosts", between(1, limits::kRanks));
  v.required("devices_per_node", c.devices_per_node, "ranks of a host", between(1, limits::kRanks));
  v.optional("cores_per_host", c.cores_per_host, "shared by the ranks of a cpu host",
             between(1, limits::kRanks));
  v.optional("host_memory_gb_per_s", c.host_memory_gb_per_s,
             "shared by the ranks of a cpu host; 0 = no limit", between(0, limits::kRate));
  v.optional("host_memory_gib", c.host_memory_gib,
             "of each host of GPUs, which what is offloaded shares; 0 = not known",
             between(0, limits::kRate));
  v.unusual("storage_gb_per_s", c.storage_gb_per_s, 0.0,
            "that all nodes together write to the file system of checkpoints; 0 = not known",
            between(0, limits::kRate));
  v.required("device", c.device, "what a rank computes on");
  v.optional("other_nodes", c.other_nodes, "the last of num_nodes, of other types");
  stated_list(v, "slow_ranks", c.slow_ranks, "ranks that compute more slowly, ascending");
  v.optional("fabric", c.fabric, "levels, innermost first");
  v.optional("communication", c.communication, "the collective library");
  v.optional("jitter", c.jitter, "part of a step lost to the slowest rank, per doubling of ranks",
             between(0, 1));
  v.optional("step_overhead_ms", c.step_overhead_ms, "of a step, in which no operation runs",
             between(0, limits::kSeconds));
  v.optional("operators", c.operators, "measured; exact signatures win over formulas");
  v.optional("collectives", c.collectives, "measured; interpolated in message size");
  v.optional("reference", c.reference,
             "time of a fixed matrix product while this was measured, to tell drift by");
  v.optional("noise", c.noise, "what others on the machine added to undisturbed times meanwhile");
}

namespace {

[[noreturn]] void fail(const std::string& file, const std::string& path, const std::string& what) {
  throw ConfigError(fmt::format("{}: {}: {}", file, path, what));
}

void validate_fabric(const Cluster& c, const std::string& file) {
  if (c.fabric.empty() && c.num_ranks() > 1)
    fail(file, "fabric",
         fmt::format("is empty, but {} ranks must be connected; add a level", c.num_ranks()));
  int inner = 1;
  for (std::size_t l = 0; l < c.fabric.size(); ++l) {
    const int ranks = c.fabric[l].ranks_per_group;
    const auto path = fmt::format("fabric[{}].ranks_per_group", l);
    const bool last = l + 1 == c.fabric.size();
    if (c.fabric[l].full_mesh && ranks < 2)
      fail(file, path, fmt::format("a full mesh connects at least 2 ranks, got {}", ranks));
    if (ranks == 0) {
      if (!last) fail(file, path, "0 (all ranks) is for the last level only");
      continue;
    }
    if (ranks <= inner && l > 0)
      fail(file, path, fmt::format("{} must exceed the {} of the level inside it", ranks, inner));
    if (!last && ranks % inner != 0)
      fail(file, path,
           fmt::format("{} is not a multiple of the {} of the level inside it; nearest: {}", ranks,
                       inner, std::max(2, ranks / inner) * inner));
    inner = ranks;
  }
  if (!c.fabric.empty() && c.fabric.back().ranks_per_group != 0 &&
      c.fabric.back().ranks_per_group < c.num_ranks())
    fail(
        file, fmt::format("fabric[{}].ranks_per_group", c.fabric.size() - 1),
        fmt::format("the last level must hold all num_nodes * devices_per_node = {} ranks, got {}; "
                    "0 means all",
                    c.num_ranks(), c.fabric.back().ranks_per_group));
}

void validate_peaks(const Device& device, const std::string& file, const std::string& path) {
  if (device.peak_tflop_per_s.empty())
    fail(file, path, "needs at least one dtype, e.g. {\"fp32\": 19.5}");
  for (const auto& [dtype, peak] : device.peak_tflop_per_s) {
    if (dtype == kFp8) continue;
    try {
      parse_dtype(dtype);
    } catch (const ConfigError& error) {
      fail(file, path, error.what());
    }
  }
}

/// Other nodes have the first ones' number and kind of devices, and levels like theirs.
void validate_other_nodes(const Cluster& c, const std::string& file) {
  std::int64_t others = 0;
  for (std::size_t i = 0; i < c.other_nodes.size(); ++i) {
    const OtherNodes& nodes = c.other_nodes[i];
    const auto path = fmt::format("other_nodes[{}]", i);
    others += nodes.num_nodes;
    validate_peaks(nodes.device, file, path + ".device.peak_tflop_per_s");
    if (nodes.device.kind != DeviceKind::Gpu || c.device.kind != DeviceKind::Gpu)
      fail(file, path + ".device.kind", "nodes of different types hold GPUs, all of them");
    if (nodes.inside.size() > c.fabric.size())
      fail(file, path + ".inside",
           fmt::format("{} levels, but the fabric has {}", nodes.inside.size(), c.fabric.size()));
    for (std::size_t l = 0; l < nodes.inside.size(); ++l) {
      const int ranks = c.fabric[l].ranks_per_group;
      if (ranks == 0 || ranks > c.devices_per_node)
        fail(file, fmt::format("{}.inside[{}]", path, l),
             fmt::format("level '{}' of the fabric is not inside a node", c.fabric[l].name));
      if (nodes.inside[l].ranks_per_group != ranks)
        fail(file, fmt::format("{}.inside[{}].ranks_per_group", path, l),
             fmt::format("got {}, expected {} as in the fabric", nodes.inside[l].ranks_per_group,
                         ranks));
    }
  }
  if (!c.other_nodes.empty() && others >= c.num_nodes)
    fail(file, "other_nodes",
         fmt::format("{} nodes, but num_nodes counts all: it must exceed that, got {}", others,
                     c.num_nodes));
}

void validate_slow_ranks(const Cluster& c, const std::string& file) {
  int least = 0;
  for (std::size_t i = 0; i < c.slow_ranks.size(); ++i) {
    const int rank = c.slow_ranks[i].rank;
    const auto path = fmt::format("slow_ranks[{}].rank", i);
    if (rank >= c.num_ranks())
      fail(file, path,
           fmt::format("got {}, but the {} ranks are numbered 0 to {}", rank, c.num_ranks(),
                       c.num_ranks() - 1));
    if (rank < least)
      fail(file, path, fmt::format("got {} behind {}: ranks ascend, each once", rank, least - 1));
    least = rank + 1;
  }
}

/// A measurement under a name that nothing looks up, or one that was given twice.
void validate_measured(const Cluster& c, const std::string& file) {
  std::set<std::string> signatures;
  for (std::size_t i = 0; i < c.operators.size(); ++i) {
    const auto path = fmt::format("operators[{}].signature", i);
    try {
      program::check_signature(c.operators[i].signature);
    } catch (const ConfigError& error) {
      fail(file, path, error.what());
    }
    if (!signatures.insert(c.operators[i].signature).second)
      fail(file, path, fmt::format("'{}' is given twice", c.operators[i].signature));
  }
  std::set<std::tuple<std::string, int, int, bool, std::int64_t>> cases;
  for (std::size_t i = 0; i < c.collectives.size(); ++i) {
    const MeasuredCollective& m = c.collectives[i];
    try {
      program::parse_comm_op(m.op);
    } catch (const ConfigError& error) {
      fail(file, fmt::format("collectives[{}].op", i), error.what());
    }
    if (!cases.emplace(m.op, m.group_size, m.ranks_on_host, m.cold, m.bytes).second)
      fail(file, fmt::format("collectives[{}]", i),
           fmt::format("{} of {} bytes over {} ranks is given twice", m.op, m.bytes, m.group_size));
  }
}

void validate(const Cluster& c, const std::string& file) {
  if (std::int64_t{c.num_nodes} * c.devices_per_node > limits::kRanks)
    fail(file, "num_nodes",
         fmt::format("num_nodes({}) * devices_per_node({}) = {} ranks; at most {} are supported",
                     c.num_nodes, c.devices_per_node,
                     std::int64_t{c.num_nodes} * c.devices_per_node, limits::kRanks));
  validate_peaks(c.device, file, "device.peak_tflop_per_s");
  validate_other_nodes(c, file);
  validate_slow_ranks(c, file);
  if (c.communication.protocols.empty())
    fail(file, "communication.protocols",
         "needs at least one entry, e.g. [{\"name\": \"simple\"}]");
  validate_fabric(c, file);
  validate_measured(c, file);
}

}  // namespace

Cluster parse_cluster(std::string_view text, const std::string& file) {
  auto cluster = read_json<Cluster>(text, file);
  validate(cluster, file);
  return cluster;
}

std::string to_json(const Cluster& cluster) {
  return write_json(cluster).dump(2, ' ', false, Json::error_handler_t::replace) +
         "\n";  // a name may be an argument
}

std::string cluster_schema() {
  Json schema = json_schema<Cluster>();
  schema["$schema"] = "https://json-schema.org/draft/2020-12/schema";
  schema["title"] = "meshplan cluster";
  return schema.dump(2) + "\n";
}

std::string hash_of(const Cluster& cluster) {
  return hex(content_hash(to_json(without_description(cluster))));
}

Cluster without_description(Cluster cluster) {
  cluster.about.reset();
  cluster.device.source.reset();
  for (OtherNodes& nodes : cluster.other_nodes) nodes.device.source.reset();
  return cluster;
}

}  // namespace meshplan::sim
