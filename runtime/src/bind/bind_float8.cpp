#include "bind/bound_operands.hpp"
#include "core/error.hpp"

namespace meshplan::runtime {

using kernels::Float8Format;
using program::Phase;

/// Quantize and ScaledLinear. Gradients are E5M2, all else E4M3; of a product's operands the first
/// is the gradient, where one is. Forward products, and the same once more, may accumulate fast;
/// gradients may not (Transformer Engine: use_split_accumulator is false in fprop, true in dgrad
/// and wgrad).
std::function<void()> OperatorBinder::Body::bind_float8(const Operands& o) {
  if (o.work.kind == program::ComputeKind::Quantize) {
    const program::Float8Cast& cast = *o.work.cast;
    const std::vector<std::int64_t> shape = o.in_shape(0);
    std::size_t next = 1;
    auto* rows = cast.rows ? o.out<std::uint8_t>(next++) : nullptr;
    auto* columns = cast.columns ? o.out<std::uint8_t>(next++) : nullptr;
    return ready(
        kernels::QuantizeFloat8{.rows = shape[0],
                                .columns = shape[1],
                                .dtype = o.dtype(),
                                .x = o.in(0),
                                .format = cast.gradient ? Float8Format::E5M2 : Float8Format::E4M3,
                                .quantized = rows,
                                .transposed = columns,
                                .scale = o.out<float>(0),
                                .largest = cast.largest ? o.in<float>(1) : nullptr});
  }
  const bool weight_grad = o.operation.phase == Phase::WeightGrad;
  return ready(
      kernels::ScaledProduct{.m = o.in_shape(0)[0],
                             .n = o.in_shape(2)[0],
                             .k = o.in_shape(0)[1],
                             .a_format = o.forward() ? Float8Format::E4M3 : Float8Format::E5M2,
                             .b_format = Float8Format::E4M3,
                             .a = o.in<const std::uint8_t>(0),
                             .b = o.in<const std::uint8_t>(2),
                             .a_scale = o.in<const float>(1),
                             .b_scale = o.in<const float>(3),
                             .out_dtype = weight_grad ? DType::F32 : o.dtype(),
                             .out = o.out(0),
                             .bias = o.optional_in(4),
                             .accumulate = weight_grad && o.instance.accumulate,
                             .fast_accumulation = o.forward()});
}

}  // namespace meshplan::runtime
