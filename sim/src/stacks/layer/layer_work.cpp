#include "stacks/layer/layer_work.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "prices/element_bytes.hpp"
#include "stacks/layer/layer_walk.hpp"

namespace meshplan::sim {
namespace {

using models::OpKind;
using models::Split;

}  // namespace

LayerWalk::LayerWalk(const models::LayerGraph& layer, const TrainingRun& run,
                     const ExecutionProfile& profile, const FrozenLayer& frozen)
    : layer_(layer),
      run_(run),
      profile_(profile),
      places_(layer.tensors.size()),
      frozen_(layer.tensors.size(), false),
      has_gradient_(layer.tensors.size(), false) {
  std::size_t parameter = 0;
  for (std::size_t i = 0; i < layer.tensors.size() && !frozen.parameters.empty(); ++i)
    if (layer.tensors[i].tensor_class == models::TensorClass::Parameter)
      frozen_[i] = frozen.parameters[parameter++];
  if (layer.input) has_gradient_[at(*layer.input)] = frozen.needs_input_gradient;
  const auto& parallel = run.parallel;
  tokens_ = static_cast<double>(run.local_tokens());
  tokens_per_rank_ = parallel.sp ? tokens_ / parallel.tp : tokens_;
  if (run.model.moe) routed_ = tokens_per_rank_ * run.model.moe->top_k * parallel.etp;
}

LayerWork LayerWalk::run(bool recomputed) {
  for (const Op& op : layer_.ops) {
    walk(op);
    end_of_.push_back(work_.forward.size());
  }
  std::ranges::reverse(backward_ops_);
  for (auto& items : backward_ops_)
    work_.backward.insert(work_.backward.end(), items.begin(), items.end());
  count_saved(recomputed);
  if (recomputed) add_recompute();
  work_.forward.push_back(
      {.kind = WorkKind::Stream, .bytes = 0, .kernels = profile_.layer_kernels});
  return std::move(work_);
}

double LayerWalk::rows(Place place) const {
  switch (place) {
    case Place::Residual:
      return tokens_per_rank_;
    case Place::Sharded:
      return tokens_;
    case Place::Expert:
    case Place::ExpertSharded:
      return routed_;
  }
  throw InvariantError("unknown place");
}

double LayerWalk::width(TensorId id, Place place) const {
  const auto& tensor = layer_.tensors[at(id)];
  double features = 1;
  for (std::size_t d = 1; d < tensor.shape.size(); ++d)
    features *= static_cast<double>(tensor.shape[d].count);
  if (place == Place::Sharded) return features / run_.parallel.tp;
  if (place == Place::ExpertSharded) return features / run_.parallel.etp;
  return features;
}

double LayerWalk::elements(TensorId id) const {
  const Place place = places_[at(id)];
  return rows(place) * width(id, place);
}

double LayerWalk::parameter_elements(TensorId id) const {
  double product = 1;
  for (const auto& dim : layer_.tensors[at(id)].shape) product *= static_cast<double>(dim.count);
  return product;
}

bool LayerWalk::is_low_precision() const {
  return run_.precision != RunPrecision::Bf16 && run_.precision != RunPrecision::Fp16;
}

double LayerWalk::low_bytes() const {
  constexpr double kFp4Bytes = 0.5 + 1.0 / 16;  // with a scale of a byte for each 16 elements
  return run_.precision == RunPrecision::NvFp4 ? kFp4Bytes : 1;
}

double LayerWalk::dropout() const {
  return run_.settings.dropout.value_or(profile_.dropout);
}

void LayerWalk::begin() {
  backward_ops_.emplace_back();
}

void LayerWalk::streams(const OperationHabit& habit, double n) {
  forward({.kind = WorkKind::Stream,
           .bytes = n * habit.forward_bytes,
           .kernels = habit.forward_kernels});
  backward({.kind = WorkKind::Stream,
            .bytes = n * habit.backward_bytes,
            .kernels = habit.backward_kernels});
}

WorkItem LayerWalk::tp(Collective collective, double bytes, bool beside) {
  return {.kind = WorkKind::Collective,
          .bytes = bytes,
          .collective = collective,
          .group = Group::Tp,
          .beside_product = beside};
}

/// PyTorch's functional collectives gather and scatter along the first dimension, so where a
/// micro-batch has several sequences they copy, but for those that move beside a product
/// (torch/distributed/_functional_collectives.py, all_gather_tensor, reduce_scatter_tensor).
WorkItem LayerWalk::sequence(Collective collective, double full, bool beside) const {
  const bool gather = collective == Collective::AllGather;
  WorkItem item = tp(collective, gather ? full / run_.parallel.tp : full, beside);
  const bool in_place = run_.micro_batch_size == 1 || (is_on(run_.settings.async_tp) && beside);
  if (profile_.copies_sequences && !in_place) item.copied = 2 * full;
  return item;
}

WorkItem LayerWalk::exchange(Collective collective, Group group, double bytes) {
  return {.kind = WorkKind::Collective, .bytes = bytes, .collective = collective, .group = group};
}

void LayerWalk::save(TensorId id, double bytes_per_element) {
  const double bytes = elements(id) * bytes_per_element;
  if (!is_differentiated_) return;
  if (!saved_.emplace(id, bytes).second) return;
  work_.saved_bytes += bytes;
}

void LayerWalk::trace_gradients(const Op& op) {
  const auto trained = [&](TensorId id) { return !frozen_[at(id)]; };
  needs_input_gradient_ =
      !op.attributes.detached &&
      std::ranges::any_of(op.inputs, [&](TensorId id) { return has_gradient_[at(id)]; });
  trains_weight_ = !op.parameters.empty() && trained(op.parameters.front());
  is_differentiated_ = needs_input_gradient_ || std::ranges::any_of(op.parameters, trained);
  for (const TensorId out : op.outputs) has_gradient_[at(out)] = is_differentiated_;
}

void LayerWalk::walk(const Op& op) {
  begin();
  trace_gradients(op);
  const Place in = op.inputs.empty() ? Place::Residual : places_[at(op.inputs.front())];
  for (const TensorId out : op.outputs) places_[at(out)] = in;
  count_parameters(op);
  switch (op.kind) {
    case OpKind::Embedding:
      return embedding(op);
    case OpKind::Linear:
      return linear(op, in);
    case OpKind::GroupedLinear:
      return grouped_linear(op);
    case OpKind::RmsNorm:
    case OpKind::LayerNorm:
    case OpKind::HeadRmsNorm:
      streams(profile_.norm, elements(op.outputs.front()));
      return save(op.inputs.front(), kHalfBytes);
    case OpKind::Attention:
    case OpKind::LatentAttention:
      return attention(op);
    case OpKind::Router:
      return router(op);
    case OpKind::Dispatch:
      return dispatch(op);
    case OpKind::Combine:
      return combine(op);
    case OpKind::CrossEntropy:
      return cross_entropy(op);
    case OpKind::GatedActivation:
      if (!is_on(run_.settings.fused_experts) || in != Place::ExpertSharded) {
        streams(profile_.gated_activation, elements(op.outputs.front()));
        if (op.attributes.activation == models::ActivationKind::ClampedSilu)
          streams(profile_.clamped_activation, elements(op.outputs.front()));
      }
      return save(op.inputs.front(), kHalfBytes);
    case OpKind::Activation:
      // What an epilogue reads or writes more moves under its product's arithmetic.
      if (!profile_.gelu_in_products ||
          op.attributes.activation != models::ActivationKind::GeluTanh)
        streams(profile_.activation, elements(op.outputs.front()));
      return save(op.inputs.front(), kHalfBytes);
    case OpKind::Rope:
      if (profile_.fused_rotations && follows_head_norm(op)) return;
      return streams(profile_.rope, elements(op.outputs.front()));
    case OpKind::Add:
      residual_add(op);
      if (dropout() > 0 && profile_.separate_dropout_masks)
        keep(elements(op.outputs.front()) * kMaskBytes);
      return;
    case OpKind::Slice:
      return;
    case OpKind::SelectKeys:
      return select_keys(op);
    case OpKind::GroupedOutput:
      return grouped_output(op);
    case OpKind::ShortConvolution:
      return short_convolution(op);
    case OpKind::LinearAttention:
    case OpKind::StateSpace:
      return recurrence(op);
    case OpKind::GatedNorm:
    case OpKind::Multiply:
    case OpKind::SigmoidGate:
      return gated(op);
    case OpKind::StreamMix:
      return stream_mix(op);
    default:
      return streams(profile_.residual_add, elements(op.outputs.front()));
  }
}

/// Where it is part of a product, what that reads more moves under its arithmetic. A norm reads the
/// sum that it makes no second time.
void LayerWalk::residual_add(const Op& op) {
  OperationHabit habit = profile_.residual_add;
  const Op* before = &op != layer_.ops.data() ? &op - 1 : nullptr;
  const Op* after = &op + 1 != layer_.ops.data() + layer_.ops.size() ? &op + 1 : nullptr;
  const bool norm = after != nullptr &&
                    (after->kind == OpKind::RmsNorm || after->kind == OpKind::LayerNorm) &&
                    after->inputs.front() == op.outputs.front();
  if (profile_.fused_residuals && before != nullptr && ends_product(*before)) {
    habit.forward_bytes = 0;
    habit.forward_kernels = 0;
  } else if (profile_.fused_residuals && norm) {
    habit.forward_bytes -= kHalfBytes;
    habit.forward_kernels = 0;
  }
  streams(habit, elements(op.outputs.front()));
}

bool LayerWalk::follows_head_norm(const Op& op) const {
  return &op != layer_.ops.data() && (&op - 1)->kind == OpKind::HeadRmsNorm;
}

/// Is what it makes whole, so that the product can add to it? An FP8 product adds nothing.
bool LayerWalk::ends_product(const Op& op) const {
  const bool partial = run_.parallel.tp > 1 && op.split == Split::Row;
  return op.kind == OpKind::Linear && !partial && !is_low_precision();
}

void LayerWalk::count_parameters(const Op& op) {
  const auto& parallel = run_.parallel;
  for (const TensorId id : op.parameters) {
    const double n = parameter_elements(id);
    const bool matrix = layer_.tensors[at(id)].shape.size() > 1;
    ParameterCount count;
    if (op.kind == OpKind::GroupedLinear)
      count.expert = n / (parallel.ep * parallel.etp);
    else if (op.split == Split::None || (op.split == Split::Row && !matrix))
      count.dense = n;
    else
      count.dense = n / parallel.tp;
    work_.parameters.add(count, 1);
    if (frozen_[at(id)]) continue;
    work_.trained.add(count, 1);
    if (run_.orthogonal_steps > 0) count_matrices(op, id);
  }
}

/// Heads' queries, keys and values lie in one weight and are matrices of their own (Megatron-LM,
/// core/optimizer/emerging_optimizers.py, qkv_split_shapes); gate and up are one.
void LayerWalk::count_matrices(const Op& op, TensorId id) {
  const models::Tensor& tensor = layer_.tensors[at(id)];
  const bool expert = op.kind == OpKind::GroupedLinear;
  const std::size_t leading = expert ? 1 : 0;
  if (op.kind == OpKind::Embedding || op.kind == OpKind::PositionEmbedding || is_head(op) ||
      !tensor.trained || tensor.shape.size() != leading + 2)
    return;
  const auto& parallel = run_.parallel;
  const auto size = [&](std::size_t i) { return static_cast<double>(tensor.shape[i].count); };
  TrainedMatrix matrix{.rows = size(leading),
                       .columns = size(leading + 1),
                       .count = expert ? size(0) / parallel.ep : 1,
                       .expert = expert,
                       .split = op.split,
                       .divided = op.split == Split::None ? 1
                                  : expert                ? parallel.etp
                                                          : parallel.tp};
  if (tensor.head_size == 0 || tensor.sections.empty()) return work_.matrices.push_back(matrix);
  for (const std::int64_t section : tensor.sections) {
    matrix.rows = static_cast<double>(section);
    work_.matrices.push_back(matrix);
  }
}

void LayerWalk::embedding(const Op& op) {
  const double full = tokens_ * width(op.outputs.front(), Place::Residual);
  streams(profile_.embedding, full);
  if (run_.parallel.pp > 1)  // with one stage it loads once, see cross_entropy
    forward({.kind = WorkKind::Stream, .kernels = profile_.load_kernels});
  if (run_.parallel.tp > 1) {
    if (run_.parallel.sp) {
      forward(sequence(Collective::ReduceScatter, full * kHalfBytes, false));
      backward(sequence(Collective::AllGather, full * kHalfBytes, false));
    } else {
      forward(tp(Collective::AllReduce, full * kHalfBytes, false));
    }
  }
}

void LayerWalk::cross_entropy(const Op& op) {
  const double logits = work_.logits > 0 ? work_.logits : elements(op.inputs.front());
  streams(profile_.cross_entropy, logits);
  forward({.kind = WorkKind::Stream, .kernels = profile_.load_kernels});
  if (run_.parallel.tp > 1)
    for (int i = 0; i < 3; ++i)  // maximum, target's logit, sum of exponentials
      forward(tp(Collective::AllReduce, tokens_ * kStatistic, false));
}

LayerWork layer_work(const models::LayerGraph& layer, const TrainingRun& run,
                     const ExecutionProfile& profile, bool recomputed, const FrozenLayer& frozen) {
  return LayerWalk(layer, run, profile, frozen).run(recomputed);
}

}  // namespace meshplan::sim
