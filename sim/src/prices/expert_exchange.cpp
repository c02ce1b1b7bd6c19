#include "prices/expert_exchange.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "core/index.hpp"
#include "core/units.hpp"
#include "prices/measured_shapes.hpp"
#include "sim/prices/pricing.hpp"

namespace meshplan::sim {
namespace {

// Kernels of an exchange by copies between the ranks of a domain: flags before, copies, flags
// after.
constexpr double kDomainKernels = 3;

/// One exchange of a group, and the parts of its time.
class Exchange {
 public:
  Exchange(const ExchangeWork& work, const GroupPlacement& placement, const Cluster& cluster,
           const OperatorConstants& constants)
      : work_(work), placement_(placement), cluster_(cluster), c_(constants) {}

  double copied() const { return work_.tokens * work_.token_ranks * work_.bytes; }
  int num_nodes() const { return placement_.domains.front(); }
  bool combines() const { return work_.part == ExchangePart::Combine; }

  /// Links inside the domain: a token's rows but those that stay on their rank.
  double inner_links(double fraction) const {
    const double inside = static_cast<double>(placement_.size) / num_nodes();
    return copied() * (inside - 1) / inside / (fraction * link_capacity_bytes_per_s(cluster_, 0));
  }

  /// The slowest of the levels outside: one row to each node of a token that lies beyond.
  double outer_links() const {
    double slowest = 0;
    for (int level = 1; level <= *placement_.level; ++level) {
      const double domains = placement_.domains[at(level - 1)];
      const double leaving =
          work_.tokens * work_.token_nodes * work_.bytes * (domains - 1) / domains;
      slowest = std::max(slowest, leaving / (work_.wire * c_.exchange_wire *
                                             link_capacity_bytes_per_s(cluster_, level)));
    }
    return slowest;
  }

  /// DeepEP's SMs: each row costs a fixed time and its bytes, the token its bytes once more, and on
  /// several nodes each row between nodes its bytes at the rank that relays it.
  double deep_ep_sms() const {
    const double kilobytes = work_.bytes / 1e3;
    const double row = c_.deepep_row_us + kilobytes * c_.deepep_row_kb_us;
    const double relayed = combines() ? c_.deepep_sum_kb_us : c_.deepep_relay_kb_us;
    const double token = work_.token_ranks * row + kilobytes * c_.deepep_token_kb_us +
                         (num_nodes() > 1 ? work_.token_nodes * kilobytes * relayed : 0);
    return work_.tokens * token / work_.sms / kMicroseconds;
  }

  /// HybridEP's SMs, of all rows. Its authors' figures on GB200 and B200 (DeepEP, branch hybrid-ep,
  /// README): with 16 SMs and more than 8 ranks 600 to 660 GB/s of dispatch in 16 bit, 540 to 600
  /// of combine.
  double hybrid_ep_sms() const {
    constexpr double kDispatchGbPerS = 40, kCombineGbPerS = 36;  // of an SM
    const double rate = (combines() ? kCombineGbPerS : kDispatchGbPerS) * kGigabyte;
    return copied() / (rate * work_.sms);
  }

  /// By such exchanges that were timed. Across nodes none corrects: what was measured there says
  /// what one cluster's network did, which was a third of its links over 8 nodes.
  double correction() const {
    return num_nodes() > 1 ? 1 : exchange_correction(work_, cluster_).factor;
  }

  /// Starts, and across nodes the counts that are exchanged before the rows.
  double deep_ep_start() const {
    return (c_.deepep_us + (num_nodes() > 1 ? c_.deepep_notify_us : 0)) / kMicroseconds;
  }
  double domain_start() const { return kDomainKernels * c_.kernel_us / kMicroseconds; }

 private:
  const ExchangeWork& work_;
  const GroupPlacement& placement_;
  const Cluster& cluster_;
  const OperatorConstants& c_;
};

}  // namespace

double default_exchange_sms(ExchangeKernels kernels) {
  constexpr double kDeepEpSms = 20, kHybridEpSms = 16;
  switch (kernels) {
    case ExchangeKernels::DeepEp:
      return kDeepEpSms;
    case ExchangeKernels::HybridEp:
      return kHybridEpSms;
    case ExchangeKernels::OneSided:
    case ExchangeKernels::TwoSided:
      return 0;
  }
  throw InvariantError("unknown kernels");
}

double exchange_seconds(const ExchangeWork& stated, const GroupPlacement& placement,
                        const Cluster& cluster, const OperatorConstants& c) {
  if (placement.size <= 1) return 0;
  ExchangeWork work = stated;
  if (work.sms <= 0) work.sms = default_exchange_sms(work.kernels);
  const Exchange exchange(work, placement, cluster, c);
  if (work.part == ExchangePart::Prepare)
    return exchange.domain_start() + work.tokens * c.prepared_token_us / kMicroseconds;
  const double outer = exchange.outer_links();
  switch (work.kernels) {
    case ExchangeKernels::DeepEp:
      return exchange.correction() *
             (exchange.deep_ep_start() +
              std::max({outer, exchange.inner_links(c.deepep_links), exchange.deep_ep_sms()}));
    case ExchangeKernels::HybridEp:
      return exchange.domain_start() +
             std::max({outer, exchange.inner_links(1), exchange.hybrid_ep_sms()});
    case ExchangeKernels::OneSided:
      return exchange.domain_start() + std::max(outer, exchange.inner_links(1));
    case ExchangeKernels::TwoSided:
      return exchange.domain_start() +
             std::max({outer, exchange.inner_links(c.deepep_links),
                       work.tokens * c.two_sided_token_us / kMicroseconds});
  }
  throw InvariantError("unknown kernels");
}

}  // namespace meshplan::sim
