#include "bind/bound_operands.hpp"

namespace meshplan::runtime {

std::function<void()> OperatorBinder::Body::bind_embedding(const Operands& o) {
  const bool forward = o.forward();
  const std::int64_t rows = forward ? o.in_shape(1)[0] : o.out_shape(0)[0];
  const std::int64_t begin = place_.tp_rank * rows;
  if (forward)
    return ready(kernels::EmbeddingForward{.tokens = o.in_shape(0)[0],
                                           .size = o.in_shape(1)[1],
                                           .vocab_begin = begin,
                                           .vocab_end = begin + rows,
                                           .dtype = o.dtype(),
                                           .ids = o.in<const std::int32_t>(0),
                                           .weight = o.in(1),
                                           .out = o.out(0),
                                           .out_stride = o.in_shape(1)[1]});
  return ready(kernels::EmbeddingBackward{.tokens = o.in_shape(0)[0],
                                          .size = o.in_shape(0)[1],
                                          .vocab_begin = begin,
                                          .vocab_end = begin + rows,
                                          .dtype = o.dtype(),
                                          .ids = o.in<const std::int32_t>(1),
                                          .dout = o.in(0),
                                          .dout_stride = o.in_shape(0)[1],
                                          .dweight = o.out<float>(0),
                                          .accumulate = o.instance.accumulate});
}

std::function<void()> OperatorBinder::Body::bind_position_embedding(const Operands& o) {
  const std::int64_t tokens = o.in_shape(0)[0];
  const std::int64_t size = o.in_shape(0)[1];
  const kernels::RowPositions positions =
      row_positions(o, o.work.tokens_sharded ? place_.tp_rank * tokens : 0);
  if (o.forward())
    return ready(kernels::PositionEmbeddingForward{.tokens = tokens,
                                                   .size = size,
                                                   .positions = positions,
                                                   .dtype = o.dtype(),
                                                   .x = o.in(0),
                                                   .x_stride = size,
                                                   .weight = o.in(1),
                                                   .out = o.out(0),
                                                   .out_stride = size});
  return ready(kernels::PositionEmbeddingBackward{.tokens = tokens,
                                                  .size = size,
                                                  .num_positions = o.out_shape(0)[0],
                                                  .positions = positions,
                                                  .dtype = o.dtype(),
                                                  .dout = o.in(0),
                                                  .dout_stride = size,
                                                  .dweight = o.out<float>(0),
                                                  .accumulate = o.instance.accumulate});
}

}  // namespace meshplan::runtime
