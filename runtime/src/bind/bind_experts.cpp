// Mixture of experts. How many rows an operation has is decided by the router: it is read from the
// operation's offsets when the operation runs.
#include <algorithm>
#include <numeric>

#include "bind/bound_operands.hpp"
#include "core/error.hpp"

namespace meshplan::runtime {

using program::ComputeKind;
using program::Phase;

/// A call that works on a rank's tokens, or on those that it forwards: then on as many as have
/// come.
template <class Call>
std::function<void()> OperatorBinder::Body::of_tokens(const Operands& o, const Call& call) {
  if (o.work.over != program::Group::EpWithin) return ready(call);
  ready(call);  // scratch for the most that there can be
  return [this, visit = visit_of(o.instance), operation = kernels::Operation(call)]() mutable {
    std::get<Call>(operation).tokens = forwarded_tokens_[visit];
    backend_.run(operation);
  };
}

std::function<void()> OperatorBinder::Body::bind_dispatch_plan(const Operands& o) {
  const std::vector<std::int64_t> choices = o.in_shape(0);
  const int experts = o.work.attributes.num_experts;
  auto* offsets = o.out<std::int32_t>(2);
  return both(of_tokens(o, kernels::DispatchPlan{.tokens = choices[0],
                                                 .experts = experts,
                                                 .top_k = static_cast<int>(choices[1]),
                                                 .choices = o.in<std::int32_t>(0),
                                                 .offsets = offsets,
                                                 .choice_of_row = o.out<std::int32_t>(1),
                                                 .row_of_choice = o.out<std::int32_t>(0)}),
              ready(kernels::ExpertCounts{
                  .experts = experts, .offsets = offsets, .counts = o.out<std::int32_t>(3)}));
}

std::size_t OperatorBinder::Body::visit_of(const program::OperationInstance& instance) const {
  return static_cast<std::size_t>(*instance.layer) *
             static_cast<std::size_t>(program_.plan.num_microbatches()) +
         static_cast<std::size_t>(*instance.microbatch);
}

/// A rank that forwards tokens holds a row for each of their experts in its node, so that its own
/// rows may be more than those of its experts.
void OperatorBinder::Body::note_rows(const program::OperationInstance& instance,
                                     program::Group group) {
  const std::vector<std::int32_t>& rows = exchanged_rows(instance, group);
  const auto half = rows.begin() + std::ssize(rows) / 2;
  const std::int64_t leaving = std::accumulate(rows.begin(), half, std::int64_t{0});
  const std::int64_t arriving = std::accumulate(half, rows.end(), std::int64_t{0});
  if (group == program::Group::EpAcross) {
    forwarded_tokens_[visit_of(instance)] = arriving;
    return;
  }
  routed_rows_[visit_of(instance)] = arriving;
  if (!rows_arrive_) return;
  const bool forwards = group == program::Group::EpWithin;
  rows_arrive_(instance, forwards ? std::max(leaving, arriving) : arriving);
}

std::function<void()> OperatorBinder::Body::bind_exchange_sizes(const Operands& o) {
  const std::vector<std::int64_t> received = o.in_shape(1);
  const auto local = static_cast<int>(received[1]);
  auto* offsets = o.out<std::int32_t>(1);
  // The only time that the host waits for what the router has decided.
  const auto tell_rows = [this, ranks = received[0], from = o.out<std::int32_t>(0),
                          instance = &o.instance, group = o.work.over] {
    std::vector<std::int32_t>& rows = exchanged_rows_[exchange_of(*instance, group)];
    rows.resize(static_cast<std::size_t>(2 * ranks));
    backend_.copy_to_host(rows.data(), from, std::ssize(rows) * size_of(DType::I32));
    note_rows(*instance, group);
  };
  return both(ready(kernels::ExchangeSizes{.ranks = static_cast<int>(received[0]),
                                           .local_experts = local,
                                           .sent = o.in<std::int32_t>(0),
                                           .received = o.in<std::int32_t>(1),
                                           .rows = o.out<std::int32_t>(0),
                                           .offsets = offsets}),
              tell_rows);
}

std::function<void()> OperatorBinder::Body::bind_dispatch(const Operands& o) {
  const bool forward = o.forward();
  const std::vector<std::int64_t> tokens = forward ? o.in_shape(0) : o.out_shape(0);
  const std::int64_t size = tokens[1];
  const auto top_k = static_cast<int>(o.in_shape(1)[1]);
  if (forward)
    return of_tokens(o, kernels::DispatchForward{.tokens = tokens[0],
                                                 .top_k = top_k,
                                                 .size = size,
                                                 .dtype = o.value(o.operation.inputs[0]).dtype,
                                                 .choice_of_row = o.in<std::int32_t>(1),
                                                 .x = o.in(0),
                                                 .x_stride = size,
                                                 .rows = o.out(0),
                                                 .rows_stride = size});
  return of_tokens(o, kernels::DispatchBackward{.tokens = tokens[0],
                                                .top_k = top_k,
                                                .size = size,
                                                .dtype = o.dtype(),
                                                .row_of_choice = o.in<std::int32_t>(1),
                                                .drows = o.in(0),
                                                .drows_stride = size,
                                                .dx = o.out(0),
                                                .dx_stride = size});
}

std::function<void()> OperatorBinder::Body::bind_regroup(const Operands& o) {
  const std::vector<std::int64_t> received = o.in_shape(1);
  return ready(kernels::RegroupRows{.ranks = static_cast<int>(received[0]),
                                    .local_experts = static_cast<int>(received[1]),
                                    .max_rows = o.in_shape(0)[0],
                                    .size = o.in_shape(0)[1],
                                    .dtype = o.value(o.operation.inputs[0]).dtype,
                                    .to_experts = !o.work.reverse,
                                    .received = o.in<std::int32_t>(1),
                                    .from = o.in(0),
                                    .to = o.out(0)});
}

/// `call` with the offsets of its groups, which its backend may want on the host. Its scratch
/// serves any number of rows, for a step may have more than the plan has buffers for.
template <class Call>
std::function<void()> OperatorBinder::Body::grouped(Call call, const std::int32_t* offsets) {
  Call largest = call;
  largest.shape.max_rows = std::max(call.shape.max_rows, program::most_routed_rows(program_.plan));
  scratch_bytes_ = std::max(scratch_bytes_, backend_.scratch_bytes(largest));
  call.offsets.device = offsets;
  if (backend_.reads_group_offsets())
    return [this, operation = kernels::Operation(call)] { backend_.run(operation); };
  const auto groups = static_cast<std::size_t>(call.shape.num_groups);
  return [this, operation = kernels::Operation(call),
          host = std::vector<std::int32_t>(groups + 1)]() mutable {
    kernels::GroupOffsets& groups_begin = std::get<Call>(operation).offsets;
    backend_.copy_to_host(host.data(), groups_begin.device, std::ssize(host) * size_of(DType::I32));
    groups_begin.host = host.data();
    backend_.run(operation);
  };
}

std::function<void()> OperatorBinder::Body::bind_grouped_linear(const Operands& o) {
  const bool weight_grad = o.operation.phase == Phase::WeightGrad;
  const std::vector<std::int64_t> weight = weight_grad ? o.out_shape(0) : o.in_shape(1);
  const std::int64_t out = weight[1];
  const std::int64_t in = weight[2];
  const kernels::GroupedLinearShape shape{.num_groups = weight[0],
                                          .max_rows = o.in_shape(0)[0],
                                          .in_features = in,
                                          .out_features = out};
  const auto* offsets = o.in<std::int32_t>(2);
  if (o.forward()) {
    // What the etp ranks make of a row-parallel one is summed: the first adds the bias.
    const bool adds_bias = o.work.split != models::Split::Row || place_.coordinates.etp == 0;
    return grouped(kernels::GroupedLinearForward{.shape = shape,
                                                 .dtype = o.dtype(),
                                                 .x = o.in(0),
                                                 .x_stride = in,
                                                 .weight = o.in(1),
                                                 .bias = adds_bias ? o.optional_in(3) : nullptr,
                                                 .y = o.out(0),
                                                 .y_stride = out},
                   offsets);
  }
  if (!weight_grad)
    return grouped(kernels::GroupedLinearInputGrad{.shape = shape,
                                                   .dtype = o.dtype(),
                                                   .dy = o.in(0),
                                                   .dy_stride = out,
                                                   .weight = o.in(1),
                                                   .dx = o.out(0),
                                                   .dx_stride = in},
                   offsets);
  return grouped(kernels::GroupedLinearWeightGrad{.shape = shape,
                                                  .dtype = o.dtype(),
                                                  .dy = o.in(0),
                                                  .dy_stride = out,
                                                  .x = o.in(1),
                                                  .x_stride = in,
                                                  .dweight = o.out<float>(0),
                                                  .dbias = static_cast<float*>(o.optional_out(1)),
                                                  .accumulate = o.instance.accumulate},
                 offsets);
}

/// Gradient of biases alone, of experts whose weights are frozen.
std::function<void()> OperatorBinder::Body::bind_grouped_bias(const Operands& o) {
  const std::vector<std::int64_t> bias = o.out_shape(0);
  return grouped(
      kernels::GroupedLinearWeightGrad{
          .shape = {.num_groups = bias[0], .max_rows = o.in_shape(0)[0], .out_features = bias[1]},
          .dtype = o.dtype(),
          .dy = o.in(0),
          .dy_stride = bias[1],
          .dbias = o.out<float>(0),
          .accumulate = o.instance.accumulate},
      o.in<std::int32_t>(1));
}

std::function<void()> OperatorBinder::Body::bind_combine(const Operands& o) {
  if (o.forward()) {
    const std::vector<std::int64_t> tokens = o.out_shape(0);
    return of_tokens(o, kernels::CombineForward{.tokens = tokens[0],
                                                .top_k = static_cast<int>(o.in_shape(2)[1]),
                                                .size = tokens[1],
                                                .dtype = o.dtype(),
                                                .row_of_choice = o.in<std::int32_t>(2),
                                                .probabilities = o.in<float>(1),
                                                .rows = o.in(0),
                                                .rows_stride = tokens[1],
                                                .y = o.out(0),
                                                .y_stride = tokens[1]});
  }
  const std::vector<std::int64_t> tokens = o.in_shape(0);
  return of_tokens(o, kernels::CombineBackward{.tokens = tokens[0],
                                               .top_k = static_cast<int>(o.in_shape(3)[1]),
                                               .size = tokens[1],
                                               .dtype = o.dtype(),
                                               .row_of_choice = o.in<std::int32_t>(3),
                                               .probabilities = o.in<float>(2),
                                               .rows = o.in(1),
                                               .dy = o.in(0),
                                               .dy_stride = tokens[1],
                                               .drows = o.out(0),
                                               .rows_stride = tokens[1],
                                               .dprobabilities = o.out<float>(1)});
}

std::function<void()> OperatorBinder::Body::bind_experts(const Operands& o) {
  switch (o.work.kind) {
    case ComputeKind::Router:
      return bind_router(o);
    case ComputeKind::RouterLoad:
    case ComputeKind::SequenceLoad:
      return bind_router_load(o);
    case ComputeKind::RouterLosses:
      return bind_router_losses(o);
    case ComputeKind::LimitChoices:
      return bind_limit_choices(o);
    case ComputeKind::DispatchPlan:
      return bind_dispatch_plan(o);
    case ComputeKind::ExchangeSizes:
      return bind_exchange_sizes(o);
    case ComputeKind::Dispatch:
      return bind_dispatch(o);
    case ComputeKind::RegroupRows:
      return bind_regroup(o);
    case ComputeKind::GroupedLinear:
      return bind_grouped_linear(o);
    case ComputeKind::Combine:
      return bind_combine(o);
    case ComputeKind::NodeChoices:
      return bind_node_choices(o);
    case ComputeKind::NodeRouting:
      return bind_node_routing(o);
    case ComputeKind::SumNodes:
      return bind_sum_nodes(o);
    case ComputeKind::PackRows:
      return bind_pack_rows(o);
    case ComputeKind::UnpackRows:
      return bind_unpack_rows(o);
    default:
      throw InvariantError(o.operation.name + " is no operation of experts");
  }
}

}  // namespace meshplan::runtime
