// What mixes tokens besides attention: linear attention, Mamba and convolutions; what chooses keys
// for sparse attention; gates; streams of hyper-connections.
#include <algorithm>

#include "core/error.hpp"
#include "prices/attention/sparse_attention.hpp"
#include "prices/element_bytes.hpp"
#include "stacks/layer/layer_walk.hpp"

namespace meshplan::sim {

using models::TensorClass;

namespace {

LinearAttention kind_of(const models::Op& op) {
  if (!op.attributes.linear_attention) return LinearAttention::Mamba2;
  switch (op.attributes.linear_attention->kind) {
    case models::LinearAttentionKind::GatedDelta:
      return LinearAttention::GatedDelta;
    case models::LinearAttentionKind::KimiDelta:
      return LinearAttention::KimiDelta;
    case models::LinearAttentionKind::Simple:
      return LinearAttention::Simple;
  }
  throw InvariantError("unknown kind of linear attention");
}

}  // namespace

void LayerWalk::save_inputs(const Op& op) {
  for (const TensorId id : op.inputs)
    if (layer_.tensors[at(id)].tensor_class == TensorClass::Activation) save(id, kHalfBytes);
}

/// Scores of every key for each query and index head, then the largest of them; trained by the
/// divergence from attention's own distribution, over the chosen keys alone (DeepSeek-V3.2, section
/// 2.1.1). What each costs stands in sparse_attention.hpp.
void LayerWalk::select_keys(const Op& op) {
  const auto& attributes = op.attributes;
  const double tokens_of_key = std::max(1, attributes.compression);
  const double seq = static_cast<double>(run_.seq_len);
  SparseAttentionWork work{.batch = tokens_ / seq / tokens_of_key,
                           .seq = seq,
                           .selected = static_cast<double>(attributes.selected_keys),
                           .index_heads = static_cast<double>(attributes.heads),
                           .index_head = static_cast<double>(attributes.head_size)};
  places_[at(op.outputs.front())] = Place::Residual;
  const auto scores = [&](double pairs, double products, bool backward) {
    return WorkItem{.kind = WorkKind::Product,
                    .count = products,
                    .m = tokens_ * work.index_heads,
                    .n = pairs / tokens_,
                    .k = work.index_head,
                    .backward = backward};
  };
  forward(scores(causal_pairs(work), 1, false));
  forward({.kind = WorkKind::Stream, .bytes = selection_bytes(work), .kernels = 2});
  work.backward = true;
  backward(scores(selected_pairs(work), 3, true));
  backward({.kind = WorkKind::Stream, .bytes = selection_bytes(work)});
  save_inputs(op);
}

/// Each group of heads by rows of its own: as many products of a group's width.
void LayerWalk::grouped_output(const Op& op) {
  places_[at(op.outputs.front())] = Place::Sharded;
  const auto& weight = layer_.tensors[at(op.parameters.front())];
  const double in = static_cast<double>(weight.shape[1].count);
  const double groups = width(op.inputs.front(), Place::Residual) / in;
  const double rank = static_cast<double>(weight.shape[0].count) / groups;
  product(groups / run_.parallel.tp, tokens_, rank, in, false, profile_.linear);
  save(op.inputs.front(), kHalfBytes);
}

void LayerWalk::short_convolution(const Op& op) {
  const double channels = width(op.outputs.front(), places_[at(op.outputs.front())]);
  const double taps = static_cast<double>(layer_.tensors[at(op.parameters.front())].shape[1].count);
  const double seq = static_cast<double>(run_.seq_len);
  const auto mixer = std::ranges::find_if(layer_.ops, [](const Op& other) {
    return other.kind == models::OpKind::LinearAttention ||
           other.kind == models::OpKind::StateSpace;
  });
  const LinearAttention before =
      mixer == layer_.ops.end() ? LinearAttention::Mamba2 : kind_of(*mixer);
  const ShortConvolutionWork work{.kind = before,
                                  .batch = tokens_ / seq,
                                  .seq = seq,
                                  .channels = channels,
                                  .taps = taps,
                                  .kernels = before == LinearAttention::KimiDelta ? 3 : 1};
  forward({.kind = WorkKind::Convolution, .convolution = work});
  ShortConvolutionWork gradient = work;
  gradient.backward = true;
  backward({.kind = WorkKind::Convolution, .backward = true, .convolution = gradient});
  save_inputs(op);
}

/// The states between chunks are computed again in the backward pass (flash-linear-attention,
/// mamba_ssm), so that queries, keys, values and decays are all that is kept, and the output.
void LayerWalk::recurrence(const Op& op) {
  const auto& attributes = op.attributes;
  const double tp = run_.parallel.tp;
  const double seq = static_cast<double>(run_.seq_len);
  LinearAttentionWork work{.kind = kind_of(op),
                           .batch = tokens_ / seq,
                           .seq = seq,
                           .key_heads = std::max(1.0, attributes.kv_heads / tp),
                           .key_size = static_cast<double>(attributes.head_size),
                           .value_heads = std::max(1.0, attributes.heads / tp),
                           .value_size = static_cast<double>(attributes.value_head_size)};
  if (attributes.mamba) work.chunk = attributes.mamba->chunk_size;
  forward({.kind = WorkKind::Recurrence, .recurrence = work});
  work.backward = true;
  backward({.kind = WorkKind::Recurrence, .backward = true, .recurrence = work});
  save_inputs(op);
  save(op.outputs.front(), kHalfBytes);
}

/// A value scaled by what another makes of it, and perhaps normed.
void LayerWalk::gated(const Op& op) {
  const double n = elements(op.outputs.front());
  if (op.kind == models::OpKind::GatedNorm) streams(profile_.norm, n);
  streams(profile_.gated_activation, n);
  save_inputs(op);
}

/// A mix reads and writes whole streams; without a fused kernel it does so once for each of them.
void LayerWalk::stream_mix(const Op& op) {
  streams(profile_.residual_add,
          std::max(elements(op.inputs.front()), elements(op.outputs.front())));
  save(op.inputs.front(), kHalfBytes);
}

}  // namespace meshplan::sim
