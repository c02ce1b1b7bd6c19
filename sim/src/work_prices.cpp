#include "work_prices.hpp"

#include <algorithm>
#include <cmath>

#include "core/error.hpp"
#include "core/units.hpp"
#include "sim/pricing.hpp"

namespace meshplan::sim {
namespace {

// Matrix rate of fused attention's backward over its forward: 561 of 648 TFLOP/s
// (FlashAttention-3), 370 to 581 of 484 to 688 (cuDNN 9), both on H100 with heads of 128.
constexpr double kBackwardRate = 0.75;
// Tokens of the busiest expert rank over the mean under an auxiliary balance loss. Assumed.
constexpr double kRoutingImbalance = 0.03;
// Host time of a collective call in launches: its kernel, and the events that order two streams.
constexpr double kCollectiveLaunches = 2;
constexpr double kTera = 1e12;
constexpr double kGiga = 1e9;

double gemm_fraction(Architecture architecture, const Constants& c, double preset) {
  switch (architecture) {
    case Architecture::Ampere:
      return c.gemm_ampere;
    case Architecture::Hopper:
      return c.gemm_hopper;
    case Architecture::Blackwell:
      return c.gemm_blackwell;
    case Architecture::Ada:
    case Architecture::Other:
      return preset;
  }
  throw InvariantError("unknown architecture");
}

/// Power that the generation's reference board may draw: A100 SXM, H100 SXM, B200 data sheets.
double reference_power_w(Architecture architecture) {
  switch (architecture) {
    case Architecture::Ampere:
      return 400;
    case Architecture::Hopper:
      return 700;
    case Architecture::Blackwell:
      return 1000;
    case Architecture::Ada:
    case Architecture::Other:
      return 0;
  }
  throw InvariantError("unknown architecture");
}

/// Dynamic power is C V^2 f (Hennessy and Patterson, 6th edition, section 1.5): a clock ~ P where
/// the voltage is at its floor, ~ P^(1/3) where it follows the clock.
double clock_under_power(const Device& device, const Constants& c) {
  const double reference = reference_power_w(device.architecture);
  if (reference <= 0 || device.power_w <= 0 || device.power_w >= reference) return 1;
  return std::pow(device.power_w / reference, c.power_exponent);
}

/// Multiply-adds of 16-bit matrix units per SM and clock, times two (architecture white papers).
double flop_per_clock(Architecture architecture) {
  switch (architecture) {
    case Architecture::Ampere:
      return 2048;
    case Architecture::Hopper:
      return 4096;
    case Architecture::Blackwell:
      return 8192;
    case Architecture::Ada:
    case Architecture::Other:
      return 1024;
  }
  throw InvariantError("unknown architecture");
}

/// Of FP8's peak, over the 16-bit fraction of its own.
double fp8_fraction(Architecture architecture, const Constants& c) {
  switch (architecture) {
    case Architecture::Hopper:
      return c.gemm_hopper_fp8 / c.gemm_hopper;
    case Architecture::Blackwell:
      return c.gemm_blackwell_fp8 / c.gemm_blackwell;
    case Architecture::Ampere:
    case Architecture::Ada:
    case Architecture::Other:
      return 1;
  }
  throw InvariantError("unknown architecture");
}

/// Matrix rate of a generation of fused attention over that of the one the constants speak of, with
/// exponentials apart. On Hopper with heads of 128 the second generation reaches about 350 and the
/// third 616 TFLOP/s forward (Shah et al. 2024, FlashAttention-3, section 4.1): less an exponential
/// unit's 0.256 ps a pair, 1.21 and 0.58 ps. On Ampere the second reaches 230 TFLOP/s and Triton's
/// form of the first about 150 (Dao 2023, FlashAttention-2, section 4.1): 1.81 and 3.0 ps.
double generation_fraction(FlashGeneration generation, Architecture architecture) {
  constexpr double kFirstOverSecond = 0.62;
  constexpr double kSecondOverThird = 0.48;
  const bool third =
      architecture == Architecture::Hopper || architecture == Architecture::Blackwell;
  const double second = third ? kSecondOverThird : 1;
  switch (generation) {
    case FlashGeneration::One:
      return kFirstOverSecond * second;
    case FlashGeneration::Two:
      return second;
    case FlashGeneration::Three:
      return 1;
  }
  throw InvariantError("unknown generation");
}

constexpr double kExponentialsPerClock = 16;  // of an SM (CUDA programming guide, table of rates)

double peak_of(const Cluster& cluster, RunPrecision precision) {
  const auto& peaks = cluster.device.peak_tflop_per_s;
  const auto find = [&](const char* key) {
    const auto found = peaks.find(key);
    return found == peaks.end() ? 0.0 : found->second * kTera;
  };
  const double half = find("bf16") > 0 ? find("bf16") : find("fp32");
  const bool fp8 = precision != RunPrecision::Bf16 && precision != RunPrecision::Fp16;
  return fp8 && find("fp8") > 0 ? find("fp8") : half;
}

/// The preset with the constants' speeds. Devices of a node that share a network card all use it at
/// the same time in a symmetric job, so each has its share.
Cluster with_constants(const Cluster& base, const Constants& c) {
  Cluster cluster = base;
  Efficiency& efficiency = cluster.device.efficiency;
  efficiency.gemm = gemm_fraction(cluster.device.architecture, c, efficiency.gemm) *
                    clock_under_power(cluster.device, c);
  efficiency.memory = c.memory;
  for (FabricLevel& level : cluster.fabric) {
    level.link_gb_per_s /= level.ranks_per_link;
    level.ranks_per_link = 1;
  }
  return cluster;
}

}  // namespace

RunPlacements place_groups(const TrainingRun& run, const Cluster& cluster) {
  using program::Group;
  const program::Mesh mesh(run.parallel);
  RunPlacements placements;
  const auto of = [&](Group group) { return place(cluster, mesh.group(group, 0)); };
  placements.tp = of(Group::Tp);
  placements.cp = of(Group::Cp);
  placements.ep = of(Group::Ep);
  placements.etp = of(Group::Etp);
  placements.dp = of(Group::DpCp);
  placements.expert_dp = of(Group::ExpertDp);
  const auto neighbour = [&](Group group) {
    const auto ranks = mesh.group(group, 0);
    return ranks.size() < 2 ? GroupPlacement{} : place(cluster, {ranks[0], ranks[1]});
  };
  placements.next_stage = neighbour(Group::Pp);
  placements.next_in_ring = neighbour(Group::Cp);
  return placements;
}

WorkPricer::WorkPricer(const TrainingRun& run, const ExecutionProfile& profile, const Cluster& base,
                       const RunPlacements& placements, const Constants& constants)
    : run_(run),
      profile_(profile),
      placements_(placements),
      constants_(constants),
      cluster_(with_constants(base, constants)) {
  const Device& device = cluster_.device;
  peak_ = peak_of(cluster_, RunPrecision::Bf16);
  peak_low_ = peak_of(cluster_, run.precision);
  low_fraction_ = peak_low_ > peak_ ? fp8_fraction(device.architecture, constants) : 1;
  const RunSwitches& switches = run.switches;
  if (!switches.token_drop && !switches.balanced_routing) imbalance_ = kRoutingImbalance;
  const double fraction =
      device.architecture == Architecture::Ampere ? constants.flash_ampere : constants.flash_hopper;
  flash_fraction_ = fraction * clock_under_power(device, constants) *
                    generation_fraction(profile.flash, device.architecture);
  exponentials_per_s_ = peak_ / flop_per_clock(device.architecture) * kExponentialsPerClock;
  launch_ = device.launch_us / kMicroseconds;
  if (run.switches.cuda_graphs == CudaGraphs::Full) {
    host_factor_ = 0;
  } else if (run.switches.cuda_graphs == CudaGraphs::Partial) {
    host_factor_ = constants.graph_host;
  } else if (run.switches.compile) {
    host_factor_ = constants.graph_host;
  }
  tp_overlap_ =
      (run.overlap_tp && profile.tp_overlap == TpOverlap::UserBuffers) || run.switches.async_tp;
}

double WorkPricer::product(const WorkItem& item) const {
  const double peak = item.low_precision ? peak_low_ * low_fraction_ : peak_;
  const double element = item.low_precision && peak_low_ > peak_ ? 1 : 2;
  const double bytes =
      item.count * (element * (item.m * item.k + item.k * item.n) + 2 * item.m * item.n);
  const double compute = batched_gemm_seconds(item.count, item.m, item.n, item.k, peak, cluster_);
  const double traffic = bytes / (constants_.memory * cluster_.device.memory_gb_per_s * kGiga);
  const double scale = item.routed ? 1 + imbalance_ : 1;
  // What the epilogue adds to memory waits for the last product of a tile.
  return scale * std::max(compute, traffic) + (item.bytes > 0 ? stream(item.bytes) : 0);
}

/// One copy of a token to every rank, and across the network to every node, that holds one of its
/// k experts: over n places, n (1 - (1 - 1/n)^k) different ones on average.
double WorkPricer::dispatch(const WorkItem& item) const {
  const GroupPlacement& group = placements_.ep;
  if (group.size <= 1) return 0;
  const auto different = [&](double places) {
    return places * (1 - std::pow(1 - 1 / places, item.count));
  };
  double slowest = 0;
  for (int level = 0; level <= *group.level; ++level) {
    const double places =
        level == 0 ? group.size : group.domains[static_cast<std::size_t>(level - 1)];
    const double leaving = item.bytes * different(places) * (places - 1) / places;
    const double rate = link_capacity_bytes_per_s(cluster_, level) * constants_.all_to_all;
    slowest = std::max(slowest, leaving / rate);
  }
  return slowest * (1 + imbalance_);
}

double WorkPricer::flash(const WorkItem& item) const {
  // Forward: scores and values; backward: scores again, dV, dP, dQ, dK (Dao 2023,
  // FlashAttention-2, section 3.1.2). Exponentials run on another unit (Shah et al. 2024,
  // FlashAttention-3, section 2.2), which these kernels hide only in part.
  const double products = item.backward ? 2.5 : 1;
  const double rate = flash_fraction_ * (item.backward ? kBackwardRate : 1);
  const double units = cluster_.device.num_units;
  const double waves = std::ceil(item.blocks / units) * units / std::max(1.0, item.blocks);
  const double quantization = std::min(waves, 4.0);
  const double products_s = products * 2 * item.pairs * item.head_sizes / (rate * peak_);
  return (products_s + item.pairs / exponentials_per_s_) * quantization;
}

const GroupPlacement& WorkPricer::placement_of(program::Group group) const {
  switch (group) {
    case program::Group::Tp:
      return placements_.tp;
    case program::Group::Cp:
      return placements_.cp;
    case program::Group::Ep:
      return placements_.ep;
    case program::Group::Etp:
      return placements_.etp;
    case program::Group::ExpertDp:
      return placements_.expert_dp;
    default:
      return placements_.dp;
  }
}

double WorkPricer::stream(double bytes) const {
  return bytes <= 0 ? 0 : stream_seconds(bytes, cluster_);
}

double WorkPricer::collective(program::Collective kind, double bytes,
                              const GroupPlacement& placement) const {
  if (placement.size <= 1 || bytes <= 0) return 0;
  const double seconds =
      price_collective(kind, static_cast<std::int64_t>(bytes), placement, cluster_).seconds;
  return kind == program::Collective::AllToAll ? seconds / constants_.all_to_all : seconds;
}

double WorkPricer::transfer(double bytes, const GroupPlacement& placement) const {
  if (placement.size <= 1) return 0;
  return price_transfer(static_cast<std::int64_t>(bytes), placement, cluster_).seconds;
}

PhaseTime WorkPricer::price(const std::vector<WorkItem>& items) const {
  PhaseTime time;
  double overlappable = 0, products = 0, last_flash = 0;
  for (const WorkItem& item : items) {
    switch (item.kind) {
      case WorkKind::Product: {
        const double seconds = product(item) + launch_;
        time.compute += seconds;
        products += seconds;
        time.host += item.kernels * constants_.host_issue_us / kMicroseconds;
        break;
      }
      case WorkKind::Flash:
        last_flash = flash(item) + launch_;
        time.compute += last_flash;
        time.host += item.kernels * constants_.host_issue_us / kMicroseconds;
        break;
      case WorkKind::Stream:
        time.compute += stream(item.bytes) * (item.routed ? 1 + imbalance_ : 1);
        if (item.bytes > 0) time.compute += launch_ * item.kernels;
        time.host += item.kernels * constants_.host_issue_us / kMicroseconds;
        break;
      case WorkKind::Collective: {
        const double seconds = collective(item.collective, item.bytes, placement_of(item.group)) *
                               (item.routed ? 1 + imbalance_ : 1);
        if (tp_overlap_ && item.beside_product)
          overlappable += seconds;
        else if (item.group == program::Group::Ep && run_.switches.moe_a2a_overlap)
          overlappable += seconds;
        else
          time.exposed += seconds;
        time.host += kCollectiveLaunches * constants_.host_issue_us / kMicroseconds;
        break;
      }
      case WorkKind::Dispatch:
        (run_.switches.moe_a2a_overlap ? overlappable : time.exposed) += dispatch(item);
        time.host += kCollectiveLaunches * constants_.host_issue_us / kMicroseconds;
        break;
      case WorkKind::Ring: {
        const double step = transfer(item.bytes, placements_.next_in_ring);
        const double hiding = last_flash / (item.count + 1);
        time.exposed += item.count * std::max(0.0, step - hiding);
        time.hidden += item.count * std::min(step, hiding);
        time.host +=
            2 * item.count * kCollectiveLaunches * constants_.host_issue_us / kMicroseconds;
        break;
      }
    }
  }
  const double exposed = std::max(constants_.tp_exposed * overlappable, overlappable - products);
  time.exposed += exposed;
  time.hidden += overlappable - exposed;
  time.host *= host_factor_;
  return time;
}

}  // namespace meshplan::sim
