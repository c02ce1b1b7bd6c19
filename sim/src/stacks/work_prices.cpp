#include "stacks/work_prices.hpp"

#include <algorithm>
#include <cmath>

#include "core/error.hpp"
#include "core/index.hpp"
#include "core/units.hpp"
#include "prices/collective_rates.hpp"
#include "prices/device_speeds.hpp"
#include "prices/element_bytes.hpp"
#include "prices/expert_exchange.hpp"
#include "prices/token_places.hpp"
#include "sim/prices/operator_constants.hpp"
#include "sim/prices/pricing.hpp"

namespace meshplan::sim {
namespace {

// Tokens of the busiest expert rank over the mean under an auxiliary balance loss. Assumed.
constexpr double kRoutingImbalance = 0.03;
// Host time of a collective call in launches: its kernel, and the events that order two streams.
constexpr double kCollectiveLaunches = 2;
constexpr double kTera = 1e12;

double peak_of(const Cluster& cluster, RunPrecision precision) {
  const auto& peaks = cluster.device.peak_tflop_per_s;
  const auto find = [&](const char* key) {
    const auto found = peaks.find(key);
    return found == peaks.end() ? 0.0 : found->second * kTera;
  };
  const double half = find("bf16") > 0 ? find("bf16") : find("fp32");
  const bool low = precision != RunPrecision::Bf16 && precision != RunPrecision::Fp16;
  if (!low || find("fp8") <= 0) return half;
  return precision == RunPrecision::NvFp4 ? 2 * find("fp8") : find("fp8");
}

/// Devices of a node that share a network card all use it at the same time in a symmetric job, so
/// each has its share.
Cluster with_shared_links(Cluster cluster) {
  for (FabricLevel& level : cluster.fabric) {
    level.link_gb_per_s /= level.ranks_per_link;
    level.ranks_per_link = 1;
  }
  return cluster;
}

AttentionShape shape_of(const WorkItem& flash) {
  return {flash.pairs,    flash.head_sizes,   flash.blocks,
          flash.backward, flash.exponentials, flash.causal};
}

/// Each boundary between stages, where it crosses most: the ranks of a stage meet its next one
/// together, and a node's are as good as any other's.
std::vector<GroupPlacement> between_stages(const TrainingRun& run, const Cluster& cluster,
                                           const program::Mesh& mesh) {
  const int pp = run.parallel.pp;
  std::vector<GroupPlacement> boundaries(at(pp));
  if (pp == 1) return boundaries;
  const int of_a_node = std::min(run.parallel.world_size() / pp, cluster.devices_per_node);
  for (int rank = 0; rank < of_a_node; ++rank) {
    const auto ranks = mesh.group(program::Group::Pp, rank);
    for (int stage = 0; stage < pp; ++stage) {
      const GroupPlacement pair = place(cluster, {ranks[at(stage)], ranks[at((stage + 1) % pp)]});
      GroupPlacement& worst = boundaries[at(stage)];
      if (!worst.level || pair.level > worst.level) worst = pair;
    }
  }
  return boundaries;
}

}  // namespace

RunPlacements place_groups(const TrainingRun& run, const Cluster& cluster) {
  using program::Group;
  const program::Mesh mesh(run.parallel);
  RunPlacements placements;
  const auto of = [&](Group group) { return place(cluster, mesh, group, 0); };
  placements.tp = of(Group::Tp);
  placements.cp = of(Group::Cp);
  placements.ep = of(Group::Ep);
  placements.etp = of(Group::Etp);
  placements.dp = of(Group::DpCp);
  placements.expert_dp = of(Group::ExpertDp);
  std::vector<int> in_node, one_a_node;
  for (const int rank : mesh.group(Group::DpCp, 0)) {
    if (rank < cluster.devices_per_node) in_node.push_back(rank);
    if (rank % cluster.devices_per_node == 0) one_a_node.push_back(rank);
  }
  placements.node_dp = place(cluster, in_node);
  placements.across_dp = place(cluster, one_a_node);
  placements.next_stage = between_stages(run, cluster, mesh);
  if (const auto ring = mesh.group(Group::Cp, 0); ring.size() > 1)
    placements.next_in_ring = place(cluster, {ring[0], ring[1]});
  return placements;
}

WorkPricer::WorkPricer(const TrainingRun& run, const ExecutionProfile& profile, const Cluster& base,
                       const RunPlacements& placements, const Constants& constants)
    : run_(run),
      profile_(profile),
      placements_(placements),
      constants_(constants),
      cluster_(with_shared_links(with_fitted_speeds(base, constants, profile.flash))) {
  std::erase_if(cluster_.communication.offers,
                [&](FabricOffer offer) { return first_nccl_minor(offer) > profile.nccl_minor; });
  const Device& device = cluster_.device;
  peak_ = peak_of(cluster_, RunPrecision::Bf16);
  peak_low_ = peak_of(cluster_, run.precision);
  if (peak_low_ > peak_)
    low_fraction_ = run.precision == RunPrecision::Fp8     ? device.efficiency.fp8
                    : run.precision == RunPrecision::NvFp4 ? device.efficiency.fp4
                                                           : device.efficiency.fp8_block;
  if (!is_on(run.settings.token_drop) && !is_on(run.settings.balanced_routing))
    imbalance_ = run.expert_imbalance > 1 ? run.expert_imbalance - 1 : kRoutingImbalance;
  launch_ = device.launch_us / kMicroseconds;
  host_factor_ = run.settings.cuda_graphs == program::CudaGraphs::Full ? 0 : profile.issue_fraction;
  tp_overlap_ = (is_on(run.settings.overlap_tp) && profile.tp_overlap == TpOverlap::UserBuffers) ||
                is_on(run.settings.async_tp);
}

ProductShape WorkPricer::product_shape(const WorkItem& item) const {
  const bool fp8 = item.low_precision && peak_low_ > peak_;
  const OperandType low = run_.precision == RunPrecision::Fp8     ? OperandType::Fp8
                          : run_.precision == RunPrecision::NvFp4 ? OperandType::Fp4
                                                                  : OperandType::Fp8Block;
  return {item.count, item.m, item.n, item.k, fp8 ? low : OperandType::Half, !item.backward};
}

bool WorkPricer::near_timed_shape(const WorkItem& item) const {
  if (item.kind == WorkKind::Product) return correction_of(product_shape(item), cluster_).near;
  return item.kind == WorkKind::Flash && correction_of(shape_of(item), cluster_).near;
}

double WorkPricer::product(const WorkItem& item) const {
  const ProductShape shape = product_shape(item);
  const bool fp8 = shape.type != OperandType::Half;
  const double peak = fp8 ? peak_low_ * low_fraction_ : peak_;
  const double element = shape.type == OperandType::Half  ? 2
                         : shape.type == OperandType::Fp4 ? 0.5
                                                          : 1;
  const double bytes =
      item.count * (element * (item.m * item.k + item.k * item.n) + 2 * item.m * item.n);
  const double seconds = product_seconds(shape, peak, bytes, cluster_);
  const double scale = item.routed ? 1 + imbalance_ : 1;
  // What the epilogue adds to memory waits for the last product of a tile.
  return scale * seconds + (item.bytes > 0 ? stream(item.bytes) : 0);
}

/// In how many of n places of equal size a token's experts lie, on average. A stack's balanced
/// routing may take neighbours instead, from multiples of k on: of e experts a place, they lie in
/// one if k divides e, in k / e if e divides k, else in 1 + (k - 1) / e.
double WorkPricer::places_of_token(double places, int k) const {
  if (!run_.model.moe) return std::min<double>(places, k);
  const models::RouterSpec& router = run_.model.moe->router;
  const double all = run_.model.moe->num_experts;
  const bool neighbours = is_on(run_.settings.balanced_routing) &&
                          profile_.balances_over_neighbours && router.num_groups <= 1;
  if (!neighbours)
    return expected_places(places, {.experts = all,
                                    .top_k = k,
                                    .groups = std::max(1, router.num_groups),
                                    .top_groups = std::max(1, router.top_groups)});
  const double experts = std::max(1.0, all / places);
  if (std::fmod(experts, k) == 0) return 1;
  return std::min(places, std::fmod(k, experts) == 0 ? k / experts : 1 + (k - 1) / experts);
}

/// One copy of a token to every rank, and across the network to every node, that holds one of its
/// k experts.
double WorkPricer::dispatch(const WorkItem& item) const {
  const GroupPlacement& group = placements_.ep;
  if (group.size <= 1) return 0;
  const bool hybrid = run_.settings.expert_dispatch == program::ExpertDispatch::HybridEp;
  const int k = static_cast<int>(item.count);
  const ExchangeWork work{.kernels = hybrid ? ExchangeKernels::HybridEp : ExchangeKernels::DeepEp,
                          .part = item.combines ? ExchangePart::Combine : ExchangePart::Dispatch,
                          .tokens = item.m * (1 + imbalance_),
                          .bytes = item.bytes / item.m,
                          .token_ranks = places_of_token(group.size, k),
                          .token_nodes = places_of_token(group.domains.front(), k),
                          .ranks = group.size,
                          .sms = static_cast<double>(run_.settings.expert_dispatch_sms.value_or(0)),
                          .wire = hybrid ? profile_.hybrid_ep_wire : 1};
  return exchange_seconds(work, group, cluster_);
}

double WorkPricer::flash(const WorkItem& item) const {
  // Its exponentials are no faster in FP8.
  return attention_seconds(shape_of(item), item.low_precision ? peak_low_ : peak_, cluster_);
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
  return price_collective(kind, static_cast<std::int64_t>(bytes), placement, cluster_).seconds;
}

double WorkPricer::transfer(double bytes, const GroupPlacement& placement) const {
  if (placement.size <= 1) return 0;
  return price_transfer(static_cast<std::int64_t>(bytes), placement, cluster_).seconds;
}

double WorkPricer::gather_received() const {
  const auto& parallel = run_.parallel;
  if (parallel.sp || profile_.replicated_activation_sends) return 0;
  const double elements = static_cast<double>(run_.local_tokens()) * run_.model.hidden_size;
  return collective(program::Collective::AllGather, elements * kHalfBytes / parallel.tp,
                    placements_.tp);
}

PhaseTime& PhaseTime::add(const PhaseTime& other, double times) {
  for (double PhaseTime::*part :
       {&PhaseTime::compute, &PhaseTime::products, &PhaseTime::attention, &PhaseTime::starts,
        &PhaseTime::exposed, &PhaseTime::context, &PhaseTime::experts, &PhaseTime::exchange,
        &PhaseTime::hidden, &PhaseTime::host, &PhaseTime::product_flops,
        &PhaseTime::attention_flops})
    this->*part += times * other.*part;
  return *this;
}

namespace {

/// What a device idles while the host launches, where the host waits for it now and then and so
/// cannot run ahead: in each part between two waits the longer of both counts.
class IdleTime {
 public:
  explicit IdleTime(double host_factor) : host_factor_(host_factor) {}

  void await(const PhaseTime& now) {
    const double host = host_factor_ * now.host;
    seconds_ += std::max(0.0, (host - host_) - (now.gpu() - gpu_));
    host_ = host;
    gpu_ = now.gpu();
    began_ = true;
  }
  bool began() const { return began_; }
  double seconds() const { return seconds_; }

 private:
  double host_factor_;
  double seconds_ = 0, host_ = 0, gpu_ = 0;
  bool began_ = false;
};

}  // namespace

PhaseTime WorkPricer::price(const std::vector<WorkItem>& items) const {
  PhaseTime time;
  const bool gradients = profile_.tp_overlap == TpOverlap::Gradients;
  double overlappable = 0, last_flash = 0, beside_gradients = 0;
  const bool graphs_router = run_.settings.cuda_graphs == program::CudaGraphs::Partial;
  IdleTime idle(host_factor_);
  for (const WorkItem& item : items) {
    if (item.awaited) idle.await(time);
    const double issued = graphs_router && item.static_router ? 0 : item.kernels;
    switch (item.kind) {
      case WorkKind::Product: {
        const double seconds = product(item) + launch_;
        time.compute += seconds;
        time.products += seconds;
        time.product_flops += 2 * item.count * item.m * item.n * item.k;
        time.host += issued * constants_.host_issue_us / kMicroseconds;
        break;
      }
      case WorkKind::Flash:
        last_flash = flash(item) + launch_;
        time.compute += last_flash;
        time.attention += last_flash;
        time.attention_flops += attention_flops(shape_of(item));
        time.host += issued * constants_.host_issue_us / kMicroseconds;
        break;
      case WorkKind::Convolution: {
        const ShortConvolutionWork& work = item.convolution.value();
        time.compute += short_convolution_seconds(work, cluster_);
        time.host += work.kernels * constants_.host_issue_us / kMicroseconds;
        break;
      }
      case WorkKind::Recurrence: {
        const LinearAttentionWork& work = item.recurrence.value();
        const double seconds = linear_attention_seconds(work, cluster_);
        time.compute += seconds;
        time.attention += seconds;
        time.attention_flops += linear_attention_flops(work);
        time.host += linear_attention_kernels(work) * constants_.host_issue_us / kMicroseconds;
        break;
      }
      case WorkKind::Stream:
        time.compute += stream(item.bytes) * (item.routed ? 1 + imbalance_ : 1);
        if (item.bytes > 0) {
          time.compute += launch_ * item.kernels;
          time.starts += launch_ * item.kernels;
        }
        time.host += issued * constants_.host_issue_us / kMicroseconds;
        break;
      case WorkKind::Collective: {
        const double seconds = collective(item.collective, item.bytes, placement_of(item.group)) *
                               (item.routed ? 1 + imbalance_ : 1);
        const bool experts = item.group == program::Group::Ep;
        if (gradients && item.beside_gradient) {
          beside_gradients += seconds;
        } else if (experts && is_on(run_.settings.overlap_ep)) {
          time.exchange += seconds;
        } else if (tp_overlap_ && item.beside_product) {
          overlappable += seconds;
        } else {
          time.exposed += seconds;
          if (item.group == program::Group::Cp) time.context += seconds;
          if (experts || item.group == program::Group::Etp) time.experts += seconds;
        }
        time.compute += stream(item.copied);
        time.host += kCollectiveLaunches * constants_.host_issue_us / kMicroseconds;
        break;
      }
      case WorkKind::Dispatch:
        if (is_on(run_.settings.overlap_ep)) {
          time.exchange += dispatch(item);
        } else {
          const double seconds = dispatch(item);
          time.exposed += seconds;
          time.experts += seconds;
        }
        time.host += kCollectiveLaunches * constants_.host_issue_us / kMicroseconds;
        break;
      case WorkKind::Ring: {
        const double step = transfer(item.bytes, placements_.next_in_ring);
        const double hiding = last_flash / (item.count + 1);
        const double messages = item.at_once ? 1 : item.count;
        const double message = item.count / messages * step;
        time.exposed += messages * std::max(0.0, message - hiding);
        time.context += messages * std::max(0.0, message - hiding);
        time.hidden += messages * std::min(message, hiding);
        time.host +=
            2 * item.count * kCollectiveLaunches * constants_.host_issue_us / kMicroseconds;
        break;
      }
    }
  }
  const double exposed =
      std::max(constants_.tp_exposed * overlappable, overlappable - time.products);
  time.exposed += exposed;
  time.hidden += overlappable - exposed;
  const double slowed = std::max(cluster_.communication.device_share * beside_gradients,
                                 beside_gradients - time.products);
  time.exposed += slowed;
  time.hidden += beside_gradients - slowed;
  const bool awaited = idle.began();
  if (awaited) idle.await(time);
  time.host *= host_factor_;
  if (awaited) time.host = std::max(time.host, time.gpu() + idle.seconds());
  return time;
}

}  // namespace meshplan::sim
