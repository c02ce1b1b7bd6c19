#include "html/packed_bars.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "core/index.hpp"
#include "program/plan/mesh.hpp"
#include "program/trace/lane_names.hpp"
#include "sim/engine/breakdown.hpp"

namespace meshplan::reports {
namespace {

using program::Span;

constexpr double kTicks = 1e9;  // a second

class Packer {
 public:
  void add(std::uint64_t number) {
    constexpr std::uint64_t kLow = 0x7f, kMore = 0x80;
    for (; number > kLow; number >>= 7) bytes_.push_back(static_cast<std::uint8_t>(number | kMore));
    bytes_.push_back(static_cast<std::uint8_t>(number));
  }
  void add_signed(std::int64_t number) {
    add((static_cast<std::uint64_t>(number) << 1) ^ static_cast<std::uint64_t>(number >> 63));
  }
  std::string text() const { return base64(bytes_); }

 private:
  std::vector<std::uint8_t> bytes_;
};

std::string pack_row(const std::vector<const Span*>& spans, const std::vector<int>& operations) {
  Packer packer;
  std::int64_t start_before = 0, microbatch_before = 0, layer_before = 0;
  for (std::size_t i = 0; i < spans.size(); ++i) {
    const Span& span = *spans[i];
    const std::int64_t microbatch = span.microbatch.value_or(-1), layer = span.layer.value_or(-1);
    const std::int64_t start = std::llround(span.start_s * kTicks);
    const std::int64_t end = std::llround(span.end_s * kTicks);
    packer.add(static_cast<std::uint64_t>(operations[i]));
    packer.add_signed(microbatch - microbatch_before);
    packer.add_signed(layer - layer_before);
    packer.add_signed(start - start_before);
    packer.add(static_cast<std::uint64_t>(std::max<std::int64_t>(0, end - start)));
    start_before = start;
    microbatch_before = microbatch;
    layer_before = layer;
  }
  return packer.text();
}

}  // namespace

std::string base64(std::span<const std::uint8_t> bytes) {
  static constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t given = std::min<std::size_t>(3, bytes.size() - i);
    std::uint32_t group = 0;
    for (std::size_t j = 0; j < 3; ++j) group = group << 8 | (j < given ? bytes[i + j] : 0U);
    for (std::size_t j = 0; j < 4; ++j)
      text += j <= given ? kDigits[group >> (18 - 6 * j) & 63U] : '=';
  }
  return text;
}

PackedBars pack_bars(const program::Trace& trace) {
  const program::Mesh mesh = program::mesh_of(trace.plan);
  PackedBars packed;
  std::map<BarOperation, int> numbers;
  std::map<std::tuple<int, int, program::Lane>, std::vector<const Span*>> lanes;
  for (const Span& span : trace.spans)
    lanes[{mesh.coordinates(span.rank).pp, span.rank, span.lane}].push_back(&span);
  const auto number_of = [&](const Span& span) {
    BarOperation operation{
        .name = span.name,
        .phase = std::string(name_of(span.phase)),
        .category = static_cast<int>(sim::kind_of(span, trace.plan.parallel).category),
        .group = span.group,
        .peer = span.peer.value_or(-1),
        .bytes = span.bytes,
        .flops = span.flops};
    const auto [entry, fresh] =
        numbers.try_emplace(operation, static_cast<int>(packed.operations.size()));
    if (fresh) packed.operations.push_back(std::move(operation));
    return entry->second;
  };
  for (auto& [key, spans] : lanes) {
    std::ranges::stable_sort(spans, {}, &Span::start_s);
    std::vector<int> operations;
    operations.reserve(spans.size());
    for (const Span* span : spans) operations.push_back(number_of(*span));
    packed.rows.push_back({.rank = std::get<1>(key),
                           .stage = std::get<0>(key),
                           .lane = std::string(name_of(std::get<2>(key))),
                           .bars = static_cast<int>(spans.size()),
                           .packed = pack_row(spans, operations)});
  }
  return packed;
}

}  // namespace meshplan::reports
