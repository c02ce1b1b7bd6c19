// Matrix products of a layer, with what tensor parallelism moves around them and FP8 casts.
#include <cmath>

#include "models/adapters.hpp"
#include "stacks/layer/layer_walk.hpp"

namespace meshplan::sim {
namespace {

using models::Split;

}  // namespace

void LayerWalk::product(double count, double m, double n, double k, bool low_precision,
                        const OperationHabit& habit, bool routed) {
  forward({.kind = WorkKind::Product,
           .count = count,
           .m = m,
           .n = n,
           .k = k,
           .low_precision = low_precision,
           .routed = routed,
           .kernels = habit.forward_kernels});
  if (needs_input_gradient_)
    backward({.kind = WorkKind::Product,
              .count = count,
              .m = m,
              .n = k,
              .k = n,
              .low_precision = low_precision,
              .backward = true,
              .routed = routed,
              .kernels = habit.backward_kernels / 2});
  if (!trains_weight_) return widen_weights(count * n * k);
  backward({.kind = WorkKind::Product,
            .count = count,
            .m = n,
            .n = k,
            .k = m,
            .low_precision = low_precision,
            .bytes = count * n * k * profile_.gradient_accumulation_bytes,
            .backward = true,
            .routed = routed,
            .kernels = habit.backward_kernels / 2});
}

void LayerWalk::widen_weights(double elements) {
  using program::FrozenStorage;
  const FrozenStorage storage = run_.settings.frozen_storage.value_or(FrozenStorage::Bf16);
  if (storage != FrozenStorage::Nf4 && storage != FrozenStorage::Int8) return;
  const double bytes = elements * (program::bytes_of(storage) + kHalfBytes);
  forward({.kind = WorkKind::Stream, .bytes = bytes});
  if (needs_input_gradient_) backward({.kind = WorkKind::Stream, .bytes = bytes});
}

void LayerWalk::casts(double inputs, double outputs, double pieces, bool routed) {
  if (!is_low_precision()) return;
  const bool per_tensor = run_.precision == RunPrecision::Fp8;
  const bool at_once = routed && is_on(run_.settings.fused_experts);  // rows and columns
  const OperationHabit& habit = run_.precision == RunPrecision::NvFp4 ? profile_.fp4_cast
                                : per_tensor || at_once               ? profile_.fp8_cast
                                                                      : profile_.block_cast;
  if (per_tensor && run_.settings.grouped_experts != false) pieces = 1;
  if (inputs > 0)
    forward({.kind = WorkKind::Stream,
             .bytes = inputs * habit.forward_bytes,
             .routed = routed,
             .kernels = habit.forward_kernels * pieces});
  if (outputs > 0)
    backward({.kind = WorkKind::Stream,
              .bytes = outputs * habit.backward_bytes,
              .routed = routed,
              .kernels = habit.backward_kernels * pieces});
}

/// A rank casts its part of what is gathered. The weight gradient takes the whole in another layout
/// than the other products, on devices whose FP8 instructions know one
/// (Transformer Engine, fp8_transpose): read and written once.
void LayerWalk::casts_of_linear(const Op& op, double inputs, double outputs, bool gathers) {
  if (!casts_before_gather() || op.split == Split::None) return casts(inputs, outputs);
  const double tp = run_.parallel.tp;
  const double whole = gathers ? inputs : outputs;
  casts(gathers ? inputs / tp : inputs, gathers ? outputs : outputs / tp);
  if (profile_.lays_out_fp8 && trains_weight_)
    backward({.kind = WorkKind::Stream, .bytes = 2 * whole, .kernels = 0});
}

void LayerWalk::linear(const Op& op, Place in) {
  const auto& parallel = run_.parallel;
  const TensorId input = op.inputs.front(), output = op.outputs.front();
  const bool column = op.split == Split::Column || op.split == Split::Vocab;
  Place out = in;
  if (column) out = Place::Sharded;
  if (op.split == Split::Row) out = Place::Residual;
  places_[at(output)] = out;
  const bool gathers = column && in == Place::Residual;
  const double m = op.split == Split::None ? rows(in) : tokens_;
  double n = width(output, column ? Place::Sharded : Place::Residual);
  if (is_head(op)) n = padded_vocabulary(n * parallel.tp) / parallel.tp;
  const double k = width(input, op.split == Split::Row ? Place::Sharded : Place::Residual);
  const bool low = is_low_precision() && !is_head(op) && !models::is_of_adapter(op.name);
  if (parallel.tp > 1 && gathers) gather_input(op, input, low);
  product(1, m, n, k, low, profile_.linear);
  if (low) casts_of_linear(op, m * k, m * n, gathers);
  if (parallel.tp > 1 && op.split == Split::Row) reduce_output(m * n, low);
  save_product_input(input, low);
  if (profile_.linear.forward_bytes > 0)  // an unfused bias
    forward({.kind = WorkKind::Stream, .bytes = m * n * profile_.linear.forward_bytes});
  if (op.parameters.size() > 1 && trains_weight_ && profile_.bias_gradient_bytes > 0)
    backward({.kind = WorkKind::Stream, .bytes = elements(output) * profile_.bias_gradient_bytes});
  if (is_head(op)) work_.logits = m * n;
}

double LayerWalk::padded_vocabulary(double v) const {
  const double multiple = 128.0 * run_.parallel.tp;
  return std::ceil(v / multiple) * multiple;
}

/// FP8 inputs and output gradients are cast before they are gathered (Transformer Engine,
/// module/base.py, grad_output_preprocess; torchao, float8_tensor_parallel.py).
bool LayerWalk::casts_before_gather() const {
  return is_low_precision() && run_.parallel.sp && run_.parallel.tp > 1 && profile_.tp_gathers_fp8;
}

void LayerWalk::gather_input(const Op& op, TensorId input, bool low) {
  const bool fresh = gathered_.insert(input).second;
  const bool beside = !is_head(op);
  if (!fresh) return;
  const double whole = tokens_ * width(input, Place::Residual) * kHalfBytes;
  if (run_.parallel.sp) {
    const double full = low && casts_before_gather() ? whole / kHalfBytes * low_bytes() : whole;
    // The gathered input is not kept: backward gathers again (Korthikanti et al. 2022, 4.2.2).
    work_.forward.push_back(sequence(Collective::AllGather, full, beside));
    if (profile_.keeps_gathered_inputs)
      keep(full * (run_.parallel.tp - 1) / run_.parallel.tp);
    else if (trains_weight_)
      backward(sequence(Collective::AllGather, full, beside)).beside_gradient = true;
    if (!needs_input_gradient_) return;
    const bool async = is_on(run_.settings.async_tp) && beside;
    const bool fused = beside && !(async && adds_input_gradients(op));
    backward(sequence(Collective::ReduceScatter, whole, fused)).beside_gradient = true;
    if (async && fused) backward(partial_sums(whole));
  } else if (needs_input_gradient_) {
    backward(tp(Collective::AllReduce, whole, beside)).beside_gradient = true;
  }
}

/// Do several products, whose input gradients are added up, read the input? Then their sum is no
/// product's result, and PyTorch's compiler moves its scatter beside none
/// (torch/_inductor/fx_passes/micro_pipeline_tp.py, fuse_matmul_reduce_scatter).
bool LayerWalk::adds_input_gradients(const Op& op) const {
  return !layer_.tensors[at(op.outputs.front())].sections.empty();
}

/// PyTorch's asynchronous tensor parallelism moves each rank's partial results beside the product
/// and sums them in a kernel of its own (torch/distributed/_symmetric_memory,
/// _fused_matmul_reduce_scatter_impl): it reads what tp ranks sent, together the whole output, and
/// writes the rank's part.
WorkItem LayerWalk::partial_sums(double bytes) const {
  return {.kind = WorkKind::Stream, .bytes = bytes * (1 + 1.0 / run_.parallel.tp), .kernels = 1};
}

void LayerWalk::reduce_output(double elements_full, bool low) {
  const double full = elements_full * kHalfBytes;
  if (run_.parallel.sp) {
    forward(sequence(Collective::ReduceScatter, full));
    if (is_on(run_.settings.async_tp)) forward(partial_sums(full));
    backward(sequence(Collective::AllGather, low && casts_before_gather() ? full / 2 : full));
  } else {
    forward(tp(Collective::AllReduce, full));
  }
}

void LayerWalk::save_product_input(TensorId input, bool low) {
  if (trains_weight_) save(input, low && profile_.saves_fp8_inputs ? low_bytes() : kHalfBytes);
}

}  // namespace meshplan::sim
