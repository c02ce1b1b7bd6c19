// Attention of a layer: fused or with its scores in memory, and what context parallelism exchanges.
#include <algorithm>
#include <cmath>

#include "prices/device_speeds.hpp"
#include "prices/element_bytes.hpp"
#include "program/cost/cost.hpp"
#include "stacks/layer/layer_walk.hpp"

namespace meshplan::sim {
namespace {

using models::OpKind;
using models::TensorClass;

constexpr double kFlashTile = 128;  // queries that one thread block holds

/// Tokens that attention is among: of a chunk, or of the sequence.
double span_of(const models::Op& op, double seq) {
  const double chunk = op.attributes.chunk;
  return chunk > 0 ? std::min(chunk, seq) : seq;
}

}  // namespace

/// Of an indexer's choice only what it chose (DeepSeek-V3.2, section 2.1); compressed keys stand
/// beside those of the window, for the tokens before it.
double LayerWalk::keys_per_query(const Op& op) const {
  const double seq = static_cast<double>(run_.seq_len);
  const auto& attributes = op.attributes;
  if (!attributes.causal) return seq;
  const double near = causal_keys(span_of(op, seq), attributes.window);
  const double selected = attributes.selected_keys;
  if (attributes.compression == 0) return selected > 0 ? std::min(near, selected) : near;
  const double far = attended_keys(seq, 0) / attributes.compression;
  return near + (selected > 0 ? std::min(far, selected) : far);
}

void LayerWalk::attention(const Op& op) {
  const auto& parallel = run_.parallel;
  places_[at(op.outputs.front())] = Place::Sharded;
  const double heads = static_cast<double>(op.attributes.heads) / parallel.tp;
  const double head = op.attributes.head_size;
  const double value = op.attributes.value_head_size > 0 ? op.attributes.value_head_size : head;
  const double seq = static_cast<double>(run_.seq_len);
  streams(profile_.attention, elements(op.outputs.front()));
  for (const TensorId id : op.inputs)
    if (layer_.tensors[at(id)].tensor_class == TensorClass::Activation) save(id, kHalfBytes);
  save(op.outputs.front(), kHalfBytes);
  if (run_.attention == AttentionKernel::Unfused) return scores(heads, head, value, seq);
  const double pairs = heads * tokens_ * keys_per_query(op);
  WorkItem flash{.kind = WorkKind::Flash,
                 .pairs = pairs,
                 .head_sizes = head + value,
                 .blocks = heads * std::ceil(tokens_ / kFlashTile),
                 .exponentials = exponentials_of(op.attributes.softcap > 0)};
  const bool sees_all = op.attributes.selected_keys == 0 && op.attributes.compression == 0;
  if (op.attributes.causal && sees_all && parallel.cp == 1)
    flash.causal = AttentionWork{.batch = tokens_ / span_of(op, seq),
                                 .seq = span_of(op, seq),
                                 .heads = heads,
                                 .kv_heads = local_kv_heads(op, heads),
                                 .head = head,
                                 .value_head = value,
                                 .window = static_cast<double>(op.attributes.window)};
  flash.low_precision = is_on(run_.settings.fp8_attention);
  if (is_on(run_.settings.fp8_attention)) {  // queries, keys and values, and their gradients' input
    for (const TensorId id : op.inputs)
      if (layer_.tensors[at(id)].tensor_class == TensorClass::Activation)
        forward({.kind = WorkKind::Stream,
                 .bytes = elements(id) * profile_.fp8_cast.forward_bytes,
                 .kernels = profile_.fp8_cast.forward_kernels});
    backward({.kind = WorkKind::Stream,
              .bytes = elements(op.outputs.front()) * profile_.fp8_cast.backward_bytes,
              .kernels = profile_.fp8_cast.backward_kernels});
  }
  forward(flash);
  flash.backward = true;
  backward(flash);
  if (stores_score_gradient(op, head, value)) store_score_gradient(op, heads, seq);
  keep(heads * tokens_ * kStatistic);
  if (parallel.cp > 1) exchange_context(op, heads, head, value);
}

/// As MemoryPlan::workspace_bytes has it of a plan whose attention fits the workspace.
bool LayerWalk::stores_score_gradient(const Op& op, double head, double value) const {
  constexpr double kLargestHead = 128;  // of cuDNN
  return profile_.stores_score_gradient && run_.deterministic && head == value &&
         head <= kLargestHead && op.attributes.softcap <= 0;
}

void LayerWalk::store_score_gradient(const Op& op, double heads, double seq) {
  const double window = op.attributes.window;
  const double keys = op.attributes.causal ? attended_keys(seq, window) : seq;
  const double edges = program::mean_mask_edges(seq, op.attributes.causal, window);
  const double queries = heads * tokens_;
  backward({.kind = WorkKind::Stream,
            .bytes = 2 * program::score_gradient_bytes(queries * keys, queries, seq, edges),
            .kernels = 0});
}

double LayerWalk::local_kv_heads(const Op& op, double heads) const {
  if (op.kind == OpKind::LatentAttention) return heads;
  return std::max(1.0, static_cast<double>(op.attributes.kv_heads) / run_.parallel.tp);
}

void LayerWalk::exchange_context(const Op& op, double heads, double head, double value) {
  const auto& parallel = run_.parallel;
  const double kv_heads = local_kv_heads(op, heads);
  const double kv = tokens_ * kv_heads * (head + value) * kHalfBytes;
  if (run_.context_parallel == program::ContextMethod::Ulysses) {
    const double qkvo = tokens_ * (heads * head * 2 + kv_heads * (head + value)) * kHalfBytes;
    forward(exchange(Collective::AllToAll, Group::Cp, qkvo));
    backward(exchange(Collective::AllToAll, Group::Cp, qkvo));
    return;
  }
  const double steps = parallel.cp - 1;
  const double merge = tokens_ * heads * value;  // partial outputs are rescaled and added
  const ContextExchange how = run_.context_parallel == program::ContextMethod::Ring
                                  ? ContextExchange::Ring
                                  : profile_.context;
  const auto ring = [&](double bytes) {
    return WorkItem{.kind = WorkKind::Ring, .count = steps, .bytes = bytes, .group = Group::Cp};
  };
  if (how == ContextExchange::Gather) {
    forward(exchange(Collective::AllGather, Group::Cp, kv));
    backward(exchange(Collective::ReduceScatter, Group::Cp, kv * parallel.cp));
    keep(steps * kv);
    return;
  }
  if (how == ContextExchange::GatherThenRing) {
    forward(ring(kv)).at_once = true;
    backward(ring(kv)).at_once = true;
    backward(ring(kv));
  } else {
    forward(ring(kv));
    backward(ring(2 * kv));
  }
  forward({.kind = WorkKind::Stream,
           .bytes = steps * merge * profile_.ring.forward_bytes,
           .kernels = profile_.ring.forward_kernels * steps});
  backward({.kind = WorkKind::Stream,
            .bytes = steps * merge * profile_.ring.backward_bytes,
            .kernels = profile_.ring.backward_kernels * steps});
}

void LayerWalk::scores(double heads, double head, double value, double seq) {
  const double batch = heads * tokens_ / seq;
  const double n = batch * seq * seq;
  const auto batched = [&](double rows_, double columns, double inner) {
    return WorkItem{
        .kind = WorkKind::Product, .count = batch, .m = rows_, .n = columns, .k = inner};
  };
  core_begin_ = work_.forward.size();
  forward(batched(seq, seq, head));
  forward({.kind = WorkKind::Stream,
           .bytes = n * (dropout() > 0 ? profile_.scores.forward_bytes : 4),
           .kernels = profile_.scores.forward_kernels});
  forward(batched(seq, value, seq));
  core_end_ = work_.forward.size();
  backward(batched(seq, seq, value));
  backward(batched(seq, value, seq));
  backward({.kind = WorkKind::Stream,
            .bytes = n * (dropout() > 0 ? profile_.scores.backward_bytes : 6),
            .kernels = profile_.scores.backward_kernels});
  backward(batched(seq, head, seq));
  backward(batched(seq, head, seq));
  const double kept = dropout() > 0 ? 2 * kHalfBytes + kMaskBytes : kHalfBytes;
  keep(n * kept);
  core_saved_ = is_differentiated_ ? n * kept : 0;
}

}  // namespace meshplan::sim
