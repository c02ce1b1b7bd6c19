#include "prices/operator_table.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <sstream>

#include "core/limits.hpp"
#include "core/parse_number.hpp"
#include "core/units.hpp"
#include "prices/device_speeds.hpp"
#include "program/cost/cost.hpp"

namespace meshplan::sim {
namespace {

constexpr double kKib = 1024;
constexpr double kWorstEfficiency = 1e-3;

bool starts_with(const std::string& text, std::string_view prefix) {
  return text.compare(0, prefix.size(), prefix) == 0;
}

/// Rows, columns and inner size of the matrix product of a linear's phase; of grouped linears one
/// product for each expert, of the mean number of tokens.
ProductShape product_shape(const SignatureParts& parts) {
  const bool grouped = starts_with(parts.kind, "grouped_linear.");
  const bool scaled = starts_with(parts.kind, "scaled_linear.");
  const bool half = parts.dtype == DType::BF16 || parts.dtype == DType::F16;
  const std::optional<OperandType> type = scaled ? std::optional(OperandType::Fp8)
                                          : half ? std::optional(OperandType::Half)
                                                 : std::nullopt;
  const double count = grouped ? std::max(1.0, parts.sizes[1]) : 1;
  const double t = parts.sizes[0] / count;
  const double out = parts.sizes[grouped ? 2 : 1], in = parts.sizes[grouped ? 3 : 2];
  if (parts.kind.ends_with(".input_grad")) return {count, t, in, out, type, false};
  if (parts.kind.ends_with(".weight_grad")) return {count, out, in, t, type, false};
  return {count, t, out, in, type};
}

bool is_product(const SignatureParts& parts) {
  const bool one = starts_with(parts.kind, "linear.") || starts_with(parts.kind, "scaled_linear.");
  return (one && parts.sizes.size() == 3) ||
         (starts_with(parts.kind, "grouped_linear.") && parts.sizes.size() == 4);
}

/// Peak of a product's operands, and bytes of one of their elements.
struct ProductType {
  double peak = 0;
  double operand_bytes = 0;
};
ProductType product_type(const SignatureParts& parts, const Cluster& cluster) {
  if (starts_with(parts.kind, "scaled_linear."))
    return {float8_peak_flop_per_s(cluster) * cluster.device.efficiency.fp8, 1};
  return {peak_flop_per_s(cluster, parts.dtype), static_cast<double>(size_of(parts.dtype))};
}

double round_up(double value, double multiple) {
  return std::ceil(value / multiple) * multiple;
}

/// Least seconds of our own kernels of grouped products in 16 bits, which no library's stand in
/// for: what they compute, whole tiles, at the rate at which an SM's shared memory feeds the units,
/// 128 bytes a clock (CUDA C++ programming guide, "Compute capabilities"). docs/cuda.md counts both
/// tiles: tiles of 128 x 256 on Hopper move 128 KiB for 64 of the depth, others of 64 x 64 56 KiB.
double grouped_kernel_seconds(const ProductShape& shape, const Cluster& cluster) {
  struct Kernel {
    double tile_m, tile_n, shared_kib;  // of a tile, for kDepth of the summed dimension
  };
  constexpr double kDepth = 64, kSharedBytesPerClock = 128;
  const bool hopper = cluster.device.architecture == Architecture::Hopper;
  const Kernel kernel = hopper ? Kernel{128, 256, 128} : Kernel{64, 64, 56};
  const double tiles = round_up(shape.m, kernel.tile_m) / kernel.tile_m *
                       round_up(shape.n, kernel.tile_n) / kernel.tile_n;
  const double steps = shape.count * tiles * round_up(shape.k, kDepth) / kDepth;
  const double clocks = kernel.shared_kib * kKib / kSharedBytesPerClock;
  return steps * clocks / unit_clocks_per_s(cluster.device);
}

/// A product of weight gradients ends in fp32 sums: what it reads and writes of them waits for the
/// last product of a tile.
double formula_of_product(const SignatureParts& parts, double bytes, const Cluster& cluster) {
  const ProductShape shape = product_shape(parts);
  const auto [peak, element] = product_type(parts, cluster);
  const bool gpu = cluster.device.kind == DeviceKind::Gpu;
  const bool own = gpu && starts_with(parts.kind, "grouped_linear.") && shape.type.has_value();
  const double least = own ? grouped_kernel_seconds(shape, cluster) : 0;
  const bool sums = gpu && parts.kind.ends_with("weight_grad");
  if (!sums) return std::max(least, product_seconds(shape, peak, bytes, cluster));
  const double read = element * shape.count * (shape.m * shape.k + shape.k * shape.n);
  const double written =
      static_cast<double>(size_of(parts.dtype)) * shape.count * shape.m * shape.n;
  return std::max(least, product_seconds(shape, peak, read + written, cluster)) +
         stream_seconds(std::max(0.0, bytes - read), cluster);
}

/// An activation or a residual that is part of a product costs a GPU what its product reads or
/// writes more (it is among the operands); a CPU passes over what the product made once more, in
/// place or to another buffer, and over the residual. @see kernels::cpu::run(LinearForward)
double pass_after_product_seconds(const SignatureParts& parts, const Cluster& cluster) {
  if (cluster.device.kind == DeviceKind::Gpu) return 0;
  const double passes = parts.has("residual") ? 3 : (parts.has("gelu_tanh") ? 2 : 0);
  const ProductShape shape = product_shape(parts);
  const double element = static_cast<double>(size_of(parts.dtype));
  return stream_seconds(passes * element * shape.m * shape.n, cluster);
}

/// Elements of a query head and of a value head together: "e=128", or "e=192:128".
double head_sizes_of(const SignatureParts& parts) {
  const double query = parts.size("e");
  const std::string& both = parts.named.find("e")->second;
  const std::size_t colon = both.find(':');
  if (colon == std::string::npos) return 2 * query;
  return query + parse_number(both.substr(colon + 1), 0, limits::kWidth).value_or(query);
}

bool is_attention(const SignatureParts& parts) {
  return starts_with(parts.kind, "attention.") && parts.size("h") > 0 && parts.size("e") > 0;
}

/// Of a query and a key, over all heads. @see attention_flops
double pairs_of(const SignatureParts& parts, double flops) {
  return flops / (2 * head_sizes_of(parts) * (parts.kind == "attention.forward" ? 1 : 2.5));
}

/// A deterministic backward pass of cuDNN writes the scores' gradient and reads it again
/// (program::score_gradient_bytes). It is charged as a pass over memory beside the products, like
/// sums of weight gradients: what of it hides under them was not measured.
double score_gradient_seconds(const SignatureParts& parts, double flops, const Cluster& cluster) {
  if (cluster.device.kind != DeviceKind::Gpu || !parts.has(program::kStoresScoreGradient)) return 0;
  const double seq = parts.size("s"), keys = std::max(seq, parts.size("keys"));
  const double chunks = std::max(1.0, parts.size("chunks")), window = parts.size("window");
  const double queries = parts.size("b") * parts.size("h") * seq * chunks;
  const double edges = program::mean_mask_edges(keys, !parts.has("full"), window);
  return stream_seconds(
      2 * program::score_gradient_bytes(pairs_of(parts, flops), queries, keys, edges), cluster);
}

/// "b= s= h= k= e=" and a mask; with what a block of queries computes beside its pairs.
AttentionShape attention_shape(const SignatureParts& parts, double flops, const Cluster& cluster) {
  const double batch = parts.size("b"), seq = parts.size("s"), heads = parts.size("h");
  const double head_sizes = head_sizes_of(parts);
  const double tile = cluster.device.efficiency.attention_tile;
  const bool softcap = parts.has("softcap");
  AttentionShape shape{.head_sizes = head_sizes,
                       .backward = parts.kind != "attention.forward",
                       .exponentials = exponentials_of(softcap)};
  shape.pairs = pairs_of(parts, flops);
  const bool full = parts.has("full");
  if (tile > 0) {
    if (!full) {
      const double keys = std::max(seq, parts.size("keys")), window = parts.size("window");
      shape.pairs += batch * heads * seq *
                     std::max(0.0, causal_keys(keys, window) - attended_keys(keys, window));
    }
    shape.blocks = heads * std::ceil(batch * seq / tile);
  }
  if (!full && parts.size("keys") <= seq)
    shape.causal = AttentionWork{.batch = batch,
                                 .seq = seq,
                                 .heads = heads,
                                 .kv_heads = parts.size("k"),
                                 .head = parts.size("e"),
                                 .value_head = head_sizes - parts.size("e"),
                                 .window = parts.size("window")};
  return shape;
}

/// Was a shape like it timed on the device?
bool is_near_measured(const SignatureParts& parts, double flops, const Cluster& cluster) {
  if (is_product(parts)) return correction_of(product_shape(parts), cluster).near;
  return is_attention(parts) && correction_of(attention_shape(parts, flops, cluster), cluster).near;
}

/// Seconds with one output tile; `rate` is what the tile's data reuse leaves of the peak.
double tiled_gemm_seconds(const ProductShape& shape, double tile_m, double tile_n, double rate,
                          double peak, const Cluster& cluster) {
  constexpr double kFewestSplitK = 512;  // per part, or the reduction costs more than it saves
  const Device& device = cluster.device;
  const double units = device.num_units;
  const double tiles = shape.count * std::ceil(shape.m / tile_m) * std::ceil(shape.n / tile_n);
  const double splits = std::clamp(std::floor(units / tiles), 1.0,
                                   std::max(1.0, std::floor(shape.k / kFewestSplitK)));
  const double waves = std::ceil(tiles * splits / units);
  const double k = shape.k / splits;
  const double inner_rate = k / (k + shape.fill() * device.efficiency.half_k);
  const double unit_flops =
      std::max(kWorstEfficiency, device.efficiency.gemm * rate * inner_rate) * peak / units;
  return waves * 2 * tile_m * tile_n * k / unit_flops;
}

double size_of_work(double flops, double bytes) {
  return flops > 0 ? flops : bytes;
}

std::string group_key(const SignatureParts& parts) {
  return fmt::format("{} {} {}", parts.kind, name_of(parts.dtype), parts.sizes.size());
}

/// Distance in powers of two over all sizes, plus one for each flag that only one of them has.
double distance(const SignatureParts& a, const SignatureParts& b) {
  double squared = 0;
  for (std::size_t i = 0; i < a.sizes.size(); ++i) {
    const double steps = std::log2(std::max(1.0, a.sizes[i]) / std::max(1.0, b.sizes[i]));
    squared += steps * steps;
  }
  std::vector<std::string> differing;
  std::ranges::set_symmetric_difference(a.flags, b.flags, std::back_inserter(differing));
  return std::sqrt(squared) + static_cast<double>(differing.size());
}

}  // namespace

SignatureParts parse_signature(std::string_view signature) {
  SignatureParts parts;
  std::istringstream words{std::string(signature)};
  words >> parts.kind;
  for (std::string word; words >> word;) {
    const auto equals = word.find('=');
    const std::string value = equals == std::string::npos ? word : word.substr(equals + 1);
    if (equals != std::string::npos) parts.named.emplace(word.substr(0, equals), value);
    if (const auto size = parse_number(value, 0, limits::kBytes))
      parts.sizes.push_back(*size);
    else if (word == "fp32" || word == "bf16" || word == "fp16" || word == "fp64")
      parts.dtype = parse_dtype(word);
    else
      parts.flags.push_back(word);
  }
  std::ranges::sort(parts.flags);
  return parts;
}

bool SignatureParts::has(std::string_view flag) const {
  return std::ranges::find(flags, flag) != flags.end();
}

double SignatureParts::size(std::string_view name) const {
  const auto found = named.find(name);
  if (found == named.end()) return 0;
  const std::string_view text = found->second;
  return parse_number(text.substr(0, text.find(':')), 0, limits::kBytes).value_or(0);
}

double gemm_seconds(double m, double n, double k, DType dtype, const Cluster& cluster) {
  return batched_gemm_seconds(1, m, n, k, peak_flop_per_s(cluster, dtype), cluster);
}

double batched_gemm_seconds(double count, double m, double n, double k, double peak,
                            const Cluster& cluster) {
  return tiled_product_seconds({count, m, n, k}, peak, cluster);
}

double tiled_product_seconds(const ProductShape& shape, double peak, const Cluster& cluster) {
  // Tile and wave quantization: NVIDIA, "Matrix Multiplication Background User's Guide", sections 3
  // and 4. Smaller tiles quantize less and reuse less; a library takes the best of a few.
  const Efficiency& efficiency = cluster.device.efficiency;
  const double half = efficiency.half_tile, quarter = half * half;
  const double tile_m = efficiency.tile_m, tile_n = efficiency.tile_n;
  const double half_m = std::max(1.0, tile_m / 2), half_n = std::max(1.0, tile_n / 2);
  return std::min({tiled_gemm_seconds(shape, tile_m, tile_n, 1.0, peak, cluster),
                   tiled_gemm_seconds(shape, half_m, tile_n, half, peak, cluster),
                   tiled_gemm_seconds(shape, tile_m, half_n, half, peak, cluster),
                   tiled_gemm_seconds(shape, half_m, half_n, quarter, peak, cluster)});
}

double stream_seconds(double bytes, const Cluster& cluster) {
  // Hockney's half-performance length (1983) for memory streams: t = (bytes + half) / rate.
  const Efficiency& efficiency = cluster.device.efficiency;
  if (bytes <= 0) return 0;
  return (bytes + efficiency.half_stream_kib * kKib) /
         (efficiency.memory * cluster.device.memory_gb_per_s * kGigabyte);
}

double formula_seconds(const SignatureParts& parts, double flops, double bytes,
                       const Cluster& cluster) {
  const double launch = cluster.device.launch_us / kMicroseconds;
  const double traffic = stream_seconds(bytes, cluster);
  if (is_product(parts))
    return launch + formula_of_product(parts, bytes, cluster) +
           pass_after_product_seconds(parts, cluster);
  if (is_attention(parts))
    return launch +
           std::max(traffic, attention_seconds(attention_shape(parts, flops, cluster),
                                               peak_flop_per_s(cluster, parts.dtype), cluster)) +
           score_gradient_seconds(parts, flops, cluster);
  return launch + traffic;
}

OperatorTable::OperatorTable(const Cluster& cluster) : cluster_(cluster) {
  for (const MeasuredOperator& measured : cluster.operators) {
    if (measured.seconds <= 0) continue;
    exact_[measured.signature] = &measured;
    Sample sample{.measured = &measured, .parts = parse_signature(measured.signature)};
    const double expected = formula_seconds(sample.parts, measured.flops, measured.bytes, cluster);
    if (expected > 0) sample.correction = measured.seconds / expected;
    Kind& kind = by_kind_[group_key(sample.parts)];
    const double size = size_of_work(measured.flops, measured.bytes);
    kind.sizes.least = kind.samples.empty() ? size : std::min(kind.sizes.least, size);
    kind.sizes.most = std::max(kind.sizes.most, size);
    kind.samples.push_back(std::move(sample));
  }
}

OperatorTable::Correction OperatorTable::correction_for(const SignatureParts& parts,
                                                        const std::vector<Sample>& samples) const {
  constexpr double kNearest = 0.05;  // keeps weights finite; exact matches never come here
  double weights = 0, log_seconds = 0, log_slowdown = 0;
  for (const Sample& sample : samples) {
    const double d = distance(parts, sample.parts) + kNearest;
    const double weight = 1 / (d * d);
    const MeasuredOperator& measured = *sample.measured;
    const double slowdown =
        measured.seconds_busy > 0 ? measured.seconds_busy / measured.seconds : 1;
    weights += weight;
    log_seconds += weight * std::log(sample.correction);
    log_slowdown += weight * std::log(slowdown);
  }
  return {std::exp(log_seconds / weights), std::exp(log_slowdown / weights)};
}

/// As many copies as the host has cores, each asking for capacity * slowdown / cores, slow each
/// other by exactly `slowdown`: the sum of demands is slowdown times the capacity.
Price OperatorTable::with_memory_demand(Price price, double slowdown, double bytes) const {
  if (cluster_.device.kind != DeviceKind::Cpu || cluster_.host_memory_gb_per_s <= 0) return price;
  const double fair = cluster_.host_memory_gb_per_s * kGigabyte / cluster_.cores_per_host;
  if (slowdown > 1)
    price.memory_bytes_per_s = fair * slowdown;
  else if (price.seconds > 0)
    price.memory_bytes_per_s = std::min(bytes / price.seconds, fair);
  return price;
}

Price OperatorTable::price(const std::string& signature, double flops, double bytes) const {
  if (const auto found = exact_.find(signature); found != exact_.end()) {
    const MeasuredOperator& measured = *found->second;
    const double slowdown =
        measured.seconds_busy > 0 ? measured.seconds_busy / measured.seconds : 1;
    return with_memory_demand({.seconds = measured.seconds, .source = PriceSource::Measured},
                              slowdown, bytes);
  }
  const SignatureParts parts = parse_signature(signature);
  Price price{.seconds = formula_seconds(parts, flops, bytes, cluster_)};
  if (const auto found = by_kind_.find(group_key(parts)); found != by_kind_.end()) {
    const Correction correction = correction_for(parts, found->second.samples);
    price.seconds *= correction.seconds;
    price.source = PriceSource::Interpolated;
    price.sizes = found->second.sizes;
    price.sizes.asked = size_of_work(flops, bytes);
    return with_memory_demand(price, correction.slowdown, bytes);
  }
  if (is_near_measured(parts, flops, cluster_)) price.source = PriceSource::Interpolated;
  if (cluster_.device.kind != DeviceKind::Cpu || price.seconds <= 0 ||
      cluster_.host_memory_gb_per_s <= 0)
    return price;
  price.memory_bytes_per_s =
      bytes / price.seconds;  // unmeasured: what it moves is what it asks for
  return price;
}

}  // namespace meshplan::sim
