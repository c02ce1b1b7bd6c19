// Prices of the tables' operators: the formulas of products, attention and collectives that steps
// are priced with, and what the serving stack that was timed does around them.
#include <algorithm>
#include <array>
#include <cmath>

#include "core/error.hpp"
#include "core/units.hpp"
#include "prices/device_speeds.hpp"
#include "prices/expert_exchange.hpp"
#include "sim/prices/measured_works.hpp"
#include "sim/prices/pricing.hpp"

namespace meshplan::sim {
namespace {

constexpr double kHalf = 2;  // bytes of an element
// Kernels that the serving stack starts around an operator, one after another (TensorRT-LLM): the
// largest value and the cast; lengths, rotation, cache and attention; routing, sorting by expert,
// gathering, two products, activation, scaling and summing.
constexpr double kScaledCastKernels = 3;  // a buffer for the largest value is cleared first
constexpr double kAttentionKernels = 4;
constexpr double kExpertsKernels = 8;

/// A product's operands: the peak that it reaches and what it reads.
struct Operands {
  double peak = 0;  // FLOP/s, less what its type loses besides
  double bytes = 0;
};

Operands operands_of(OperandType type, const Cluster& cluster) {
  const Efficiency& efficiency = cluster.device.efficiency;
  switch (type) {
    case OperandType::Half:
      return {peak_flop_per_s(cluster, DType::BF16), kHalf};
    case OperandType::Fp8:
      return {float8_peak_flop_per_s(cluster) * efficiency.fp8, 1};
    case OperandType::Fp8Block:
      return {float8_peak_flop_per_s(cluster) * efficiency.fp8_block, 1};
    case OperandType::Fp4:
      return {2 * float8_peak_flop_per_s(cluster) * efficiency.fp4, 0.5};
  }
  throw InvariantError("unknown operand type");
}

double products_seconds(OperandType type, const ProductShape& shape, const Cluster& cluster) {
  const Operands operands = operands_of(type, cluster);
  ProductShape typed = shape;
  typed.type = type;
  const double bytes = shape.count * (operands.bytes * (shape.m * shape.k + shape.k * shape.n) +
                                      kHalf * shape.m * shape.n);
  return product_seconds(typed, operands.peak, bytes, cluster);
}

/// The activations (m, k) in 16 bit become the product's operand: with one scale a tensor they are
/// read twice, for its largest value and to be divided by it; with a scale a block once.
double cast_seconds(const ProductWork& work, const Cluster& cluster, const OperatorConstants& c) {
  const double elements = work.m * work.k;
  switch (work.type) {
    case OperandType::Half:
      return 0;
    case OperandType::Fp8:
      return kScaledCastKernels * c.kernel_us / kMicroseconds +
             stream_seconds((2 * kHalf + 1) * elements, cluster);
    case OperandType::Fp8Block:
      return c.kernel_us / kMicroseconds + stream_seconds((kHalf + 1) * elements, cluster);
    case OperandType::Fp4:
      return c.kernel_us / kMicroseconds + stream_seconds((kHalf + 0.5) * elements, cluster);
  }
  throw InvariantError("unknown operand type");
}

double price(const ProductWork& work, const Cluster& cluster, const OperatorConstants& c) {
  return cluster.device.launch_us / kMicroseconds +
         products_seconds(work.type, {.m = work.m, .n = work.n, .k = work.k}, cluster) +
         cast_seconds(work, cluster, c);
}

double price(const AttentionWork& work, const Cluster& cluster, const OperatorConstants& c) {
  const double tile = cluster.device.efficiency.attention_tile;
  const double rows = work.batch * work.seq;
  const AttentionShape shape{.pairs = rows * work.heads * causal_keys(work.seq, work.window, c),
                             .head_sizes = work.head + work.value_head,
                             .blocks = work.batch * work.heads * std::ceil(work.seq / tile)};
  const double kernel = attention_seconds(shape, peak_flop_per_s(cluster, DType::BF16), cluster);
  const double queries = rows * work.heads * work.head;
  const double keys_values = rows * work.kv_heads * (work.head + work.value_head);
  const double output = rows * work.heads * work.value_head;
  const double traffic = stream_seconds(kHalf * (queries + keys_values + output), cluster);
  const double prepared =
      work.prepares ? stream_seconds(2 * kHalf * (queries + keys_values), cluster) : 0;
  return kAttentionKernels * c.kernel_us / kMicroseconds + std::max(kernel, traffic) + prepared;
}

double price(const ExpertsWork& work, const Cluster& cluster, const OperatorConstants& c) {
  const double here = work.experts / work.ep;  // experts
  const double rows = work.tokens * work.top_k / work.ep;
  const double ffn = work.ffn / work.etp;
  const double halves = work.gated ? 2 : 1;  // of the first product's output
  ProductShape up{.count = here, .m = rows / here, .n = halves * ffn, .k = work.hidden};
  ProductShape down{.count = here, .m = rows / here, .n = work.hidden, .k = ffn};
  // Rows are gathered and scattered again; the activation reads both halves and writes one; what
  // the experts of a token made is added up.
  const double permuted = c.permuted_bytes * rows * work.hidden;
  const double activated = kHalf * rows * ffn * (halves + 1);
  const double summed = kHalf * work.tokens * work.hidden;
  return kExpertsKernels * c.kernel_us / kMicroseconds + products_seconds(work.type, up, cluster) +
         products_seconds(work.type, down, cluster) +
         c.permuted_clocks * rows * work.hidden / unit_clocks_per_s(cluster.device) +
         stream_seconds(permuted + activated + summed, cluster);
}

GroupPlacement first_ranks(int count, const Cluster& cluster) {
  std::vector<int> ranks;
  for (int rank = 0; rank < count; ++rank) ranks.push_back(rank);
  return place(cluster, ranks);
}

double price(const CollectiveWork& work, const Cluster& cluster, const OperatorConstants& c) {
  if (!work.switches_sum) {
    Cluster without = cluster;
    std::erase(without.communication.offers, FabricOffer::Nvls);
    CollectiveWork by_ranks = work;
    by_ranks.switches_sum = true;
    return price(by_ranks, without, c);
  }
  return price_collective(work.collective, static_cast<std::int64_t>(work.bytes),
                          first_ranks(work.ranks, cluster), cluster)
      .seconds;
}

double price(const ExchangeWork& work, const Cluster& cluster, const OperatorConstants& c) {
  return exchange_seconds(work, first_ranks(work.ranks, cluster), cluster, c);
}

double price(const LinearAttentionWork& work, const Cluster& cluster, const OperatorConstants& c) {
  return linear_attention_seconds(work, cluster, c);
}

double price(const ShortConvolutionWork& work, const Cluster& cluster, const OperatorConstants& c) {
  return short_convolution_seconds(work, cluster, c);
}

}  // namespace

double work_seconds(const MeasuredWork& row, const Cluster& cluster,
                    const OperatorConstants& constants) {
  return std::visit([&](const auto& work) { return price(work, cluster, constants); }, row.work);
}

}  // namespace meshplan::sim
