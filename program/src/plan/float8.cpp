#include "plan/float8.hpp"

#include <algorithm>

#include "core/index.hpp"
#include "models/adapters.hpp"

namespace meshplan::program {
namespace {

/// Features of a dimension that a tp rank holds, in sections that are cut one by one; fewer heads
/// than ranks are not cut (see Sharder::sections_of).
std::int64_t features_per_rank(const std::vector<std::int64_t>& sections, std::int64_t head_size,
                               int tp) {
  std::int64_t held = 0;
  for (const std::int64_t size : sections) {
    const std::int64_t heads = head_size > 0 ? size / head_size : tp;
    held += heads < tp ? head_size : size / tp;
  }
  return held;
}

/// Its outputs say how streams of hyper-connections are mixed: some 24 numbers, which nobody rounds
/// to FP8 (DeepSeek-V4).
bool mixes_streams(const models::LayerGraph& layer, const models::Op& op) {
  return std::ranges::any_of(layer.ops, [&](const models::Op& reader) {
    return reader.kind == models::OpKind::StreamMix &&
           std::ranges::find(reader.inputs, op.outputs.front()) != reader.inputs.end();
  });
}

std::optional<OddFeatures> odd_features(const models::LayerGraph& layer, const models::Op& op,
                                        int tp) {
  if (op.kind != models::OpKind::Linear || models::is_of_adapter(op.name)) return std::nullopt;
  const models::Tensor& weight = layer.tensors[at(op.parameters.front())];
  const std::int64_t out = weight.shape[0].count, in = weight.shape[1].count;
  if (!computes_in_float8(op.split, out) || mixes_streams(layer, op)) return std::nullopt;
  const auto sections = weight.sections.empty() ? std::vector<std::int64_t>{out} : weight.sections;
  const bool column = op.split == models::Split::Column;
  const OddFeatures sizes[] = {
      {op.name, true, out, column ? features_per_rank(sections, weight.head_size, tp) : out},
      {op.name, false, in, op.split == models::Split::Row ? in / tp : in}};
  const auto odd = std::ranges::find_if(
      sizes, [](const OddFeatures& size) { return size.per_rank % kFloat8Multiple != 0; });
  return odd == std::end(sizes) ? std::nullopt : std::optional(*odd);
}

}  // namespace

std::optional<OddFeatures> odd_float8_features(const models::ModelGraph& graph, int tp) {
  for (const models::LayerGraph& layer : graph.kinds)
    for (const models::Op& op : layer.ops)
      if (auto odd = odd_features(layer, op, tp)) return odd;
  return std::nullopt;
}

}  // namespace meshplan::program
