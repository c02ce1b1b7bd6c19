// Experts of a layer: router, exchange of tokens, grouped products.
#include <cmath>

#include "stacks/layer/layer_walk.hpp"
#include "stacks/run_habits.hpp"

namespace meshplan::sim {
namespace {

using models::Split;

constexpr double kFp8Rows = 16;  // TMA and scaling want rows in multiples of 16

}  // namespace

void LayerWalk::router(const Op& op) {
  const double experts = op.attributes.num_experts;
  const double n = tokens_per_rank_ * experts;
  const double d = width(op.inputs.front(), Place::Residual);
  const std::size_t first = work_.forward.size();
  product(1, tokens_per_rank_, experts, d, false, {0, 0, 1, 2});
  streams(profile_.router, n);
  for (std::size_t i = first; i < work_.forward.size(); ++i) work_.forward[i].static_router = true;
  for (WorkItem& item : backward_ops_.back()) item.static_router = true;
  save(op.inputs.front(), kHalfBytes);
  keep(2 * n * kStatistic);
}

void LayerWalk::grouped_linear(const Op& op) {
  const auto& parallel = run_.parallel;
  const TensorId input = op.inputs.front(), output = op.outputs.front();
  const bool column = op.split == Split::Column;
  places_[at(output)] = column ? Place::ExpertSharded : Place::Expert;
  const double experts = static_cast<double>(op.attributes.num_experts) / parallel.ep;
  const double n = width(output, places_[at(output)]);
  const double k = width(input, column ? Place::Expert : Place::ExpertSharded);
  double m = routed_ / experts;
  if (is_low_precision()) m = std::ceil(m / kFp8Rows) * kFp8Rows;
  // Grouped products are issued at once (torch._grouped_mm, XLA's ragged dot), expert by expert
  // (Transformer Engine's multi-stream cuBLAS) or, without them, module by module.
  OperationHabit habit = profile_.linear;
  if (!is_on(run_.settings.fused_experts) &&
      (!profile_.experts_in_one_kernel || run_.settings.grouped_experts == false)) {
    habit.forward_kernels *= experts;
    habit.backward_kernels *= experts;
  }
  product(experts, m, n, k, is_low_precision(), habit, true);
  if (is_low_precision() && is_on(run_.settings.fused_experts))
    // What lies between the two products is cast where it is made, in their epilogues, which move
    // it under their arithmetic (Transformer Engine 2.14, pull request 2769); the rest by a kernel
    // for all experts that writes rows and columns at once (2.13, pull request 2586).
    casts(column ? routed_ * k : 0, column ? 0 : routed_ * n, 1, true);
  else if (is_low_precision())
    casts(routed_ * k, routed_ * n, experts, true);
  pad_rows(column ? k : n);
  const bool bias = op.parameters.size() > 1;
  if (bias && !column && !is_on(run_.settings.fused_experts)) {
    OperationHabit added = profile_.expert_bias;
    added.forward_kernels *= experts;
    added.backward_kernels *= experts;
    streams(added, routed_ * n);
  }
  save_product_input(input, is_low_precision());
}

/// Rows that are copied to places in multiples of what FP8 products want, before the first product
/// and after the last one: Transformer Engine's Fp8Padding and Fp8Unpadding (Megatron-LM,
/// core/transformer/moe/experts.py, TEGroupedMLP.forward). Experts of fixed capacity have such
/// multiples, and recipes that fuse experts let the router pad
/// (moe_router_padding_for_quantization).
void LayerWalk::pad_rows(double width) {
  if (!is_low_precision() || is_on(run_.settings.token_drop) || is_on(run_.settings.fused_experts))
    return;
  streams(profile_.expert_padding, routed_ * width);
}

WorkItem LayerWalk::to_experts(double d, bool combines) const {
  const double k = run_.model.moe->top_k;
  const double token_bytes = tokens_per_rank_ * d * kHalfBytes;
  WorkItem item = exchange(Collective::AllToAll, Group::Ep, token_bytes * k);
  item.routed = true;
  if (fused_dispatch(run_)) {
    item.kind = WorkKind::Dispatch;
    item.bytes = token_bytes;
    item.m = tokens_per_rank_;
    item.count = k;
    item.combines = combines;
  }
  return item;
}

/// Every rank gets all tokens of its group, or their sums back: Megatron-LM's allgather dispatcher
/// (core/transformer/moe/token_dispatcher.py, MoEAllGatherTokenDispatcher).
WorkItem LayerWalk::gathered_by_experts(double d, bool gathers) const {
  const double token_bytes = tokens_per_rank_ * d * kHalfBytes;
  return gathers ? exchange(Collective::AllGather, Group::Ep, token_bytes)
                 : exchange(Collective::ReduceScatter, Group::Ep, token_bytes * run_.parallel.ep);
}

void LayerWalk::exchange_tokens(double d, bool dispatches) {
  if (run_.settings.expert_dispatch == program::ExpertDispatch::AllGather) {
    forward(gathered_by_experts(d, dispatches));
    backward(gathered_by_experts(d, !dispatches));
  } else {
    forward(to_experts(d, !dispatches));
    backward(to_experts(d, dispatches));
  }
}

void LayerWalk::dispatch(const Op& op) {
  const auto& parallel = run_.parallel;
  places_[at(op.outputs.front())] = Place::Expert;
  const double d = width(op.inputs.front(), Place::Residual);
  const double bytes = routed_ / parallel.etp * d * kHalfBytes;
  const std::size_t first = work_.forward.size();
  // A fused dispatcher takes tokens as they are and hands on their sums.
  if (parallel.ep == 1 || !fused_dispatch(run_))
    streams(profile_.permutation, routed_ / parallel.etp * d);
  if (parallel.ep > 1) {
    exchange_tokens(d, true);
    streams(profile_.permutation, routed_ * d);  // by expert, after arrival
  }
  // The host reads how many rows each expert gets before it launches what works on them (Megatron-
  // LM, core/transformer/moe/token_dispatcher.py, cuda_sync_point; torchtitan, input_splits), but
  // for fixed capacities and for products that read it on the device.
  if (!is_on(run_.settings.token_drop) && !is_on(run_.settings.fused_experts))
    work_.forward[first].awaited = true;
  if (parallel.etp > 1) {
    forward(exchange(Collective::AllGather, Group::Etp, bytes));
    backward(exchange(Collective::ReduceScatter, Group::Etp, bytes * parallel.etp));
  }
}

void LayerWalk::combine(const Op& op) {
  const auto& parallel = run_.parallel;
  places_[at(op.outputs.front())] = Place::Residual;
  const double d = width(op.outputs.front(), Place::Residual);
  const double bytes = routed_ / parallel.etp * d * kHalfBytes;
  if (parallel.etp > 1) {
    forward(exchange(Collective::ReduceScatter, Group::Etp, bytes * parallel.etp));
    backward(exchange(Collective::AllGather, Group::Etp, bytes));
  }
  if (parallel.ep > 1) {
    exchange_tokens(d, false);
    streams(profile_.permutation, routed_ * d);
  }
  if (parallel.ep == 1 || !fused_dispatch(run_))
    streams(profile_.permutation, routed_ / parallel.etp * d);
  if (profile_.weighs_expert_outputs) save(op.inputs.front(), kHalfBytes);
}

}  // namespace meshplan::sim
