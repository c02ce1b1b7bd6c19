// Mixture of experts whose tokens travel by node, or in FP8: what is theirs alone.
#include "bind/bound_operands.hpp"

namespace meshplan::runtime {

std::function<void()> OperatorBinder::Body::bind_node_choices(const Operands& o) {
  const std::vector<std::int64_t> choices = o.in_shape(0);
  return ready(kernels::NodeChoices{.tokens = choices[0],
                                    .experts = o.work.attributes.num_experts,
                                    .nodes = program::expert_nodes(program_.plan),
                                    .top_k = static_cast<int>(choices[1]),
                                    .choices = o.in<std::int32_t>(0),
                                    .node_choices = o.out<std::int32_t>(0)});
}

std::function<void()> OperatorBinder::Body::bind_node_routing(const Operands& o) {
  const int experts = o.work.attributes.num_experts;
  const int nodes = program::expert_nodes(program_.plan);
  if (o.forward()) {
    const std::vector<std::int64_t> choices = o.in_shape(0);
    return ready(kernels::NodeRoutingForward{.tokens = choices[0],
                                             .experts = experts,
                                             .nodes = nodes,
                                             .top_k = static_cast<int>(choices[1]),
                                             .choices = o.in<std::int32_t>(0),
                                             .probabilities = o.in<float>(1),
                                             .node_choices = o.in<std::int32_t>(2),
                                             .choice_of_row = o.in<std::int32_t>(3),
                                             .row_choices = o.out<std::int32_t>(1),
                                             .row_probabilities = o.out<float>(0)});
  }
  const std::vector<std::int64_t> choices = o.in_shape(1);
  return ready(kernels::NodeRoutingBackward{.tokens = choices[0],
                                            .experts = experts,
                                            .nodes = nodes,
                                            .top_k = static_cast<int>(choices[1]),
                                            .choices = o.in<std::int32_t>(1),
                                            .node_choices = o.in<std::int32_t>(2),
                                            .row_of_choice = o.in<std::int32_t>(3),
                                            .drow_probabilities = o.in<float>(0),
                                            .dprobabilities = o.out<float>(0)});
}

/// A sum without weights is a dispatch's gradient, and its gradient is a dispatch.
std::function<void()> OperatorBinder::Body::bind_sum_nodes(const Operands& o) {
  const std::vector<std::int64_t> tokens = o.forward() ? o.out_shape(0) : o.in_shape(0);
  const auto top_k = static_cast<int>(o.in_shape(1)[1]);
  if (o.forward())
    return ready(kernels::DispatchBackward{.tokens = tokens[0],
                                           .top_k = top_k,
                                           .size = tokens[1],
                                           .dtype = o.dtype(),
                                           .row_of_choice = o.in<std::int32_t>(1),
                                           .drows = o.in(0),
                                           .drows_stride = tokens[1],
                                           .dx = o.out(0),
                                           .dx_stride = tokens[1]});
  return ready(kernels::DispatchForward{.tokens = tokens[0],
                                        .top_k = top_k,
                                        .size = tokens[1],
                                        .dtype = o.dtype(),
                                        .choice_of_row = o.in<std::int32_t>(1),
                                        .x = o.in(0),
                                        .x_stride = tokens[1],
                                        .rows = o.out(0),
                                        .rows_stride = tokens[1]});
}

std::function<void()> OperatorBinder::Body::bind_pack_rows(const Operands& o) {
  const std::vector<std::int64_t> tokens = o.in_shape(0);
  return ready(kernels::PackFloat8Rows{.rows = tokens[0],
                                       .size = tokens[1],
                                       .dtype = o.dtype(),
                                       .x = o.in(0),
                                       .packed = o.out<float>(0)});
}

/// As many rows as have come.
std::function<void()> OperatorBinder::Body::bind_unpack_rows(const Operands& o) {
  const std::vector<std::int64_t> rows = o.out_shape(0);
  const kernels::UnpackFloat8Rows call{.rows = rows[0],
                                       .size = rows[1],
                                       .dtype = o.dtype(),
                                       .packed = o.in<float>(0),
                                       .x = o.out(0)};
  ready(call);
  return [this, visit = visit_of(o.instance), operation = kernels::Operation(call)]() mutable {
    std::get<kernels::UnpackFloat8Rows>(operation).rows = routed_rows_[visit];
    backend_.run(operation);
  };
}

}  // namespace meshplan::runtime
