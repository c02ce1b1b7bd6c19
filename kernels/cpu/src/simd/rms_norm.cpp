#include "simd/column_sums.hpp"
#include "simd/kernels.hpp"
#include "simd/residual.hpp"

namespace meshplan::kernels::MESHPLAN_ISA {

namespace {

template <class T>
void forward(const RmsNormForward& op, Range rows) {
  const T* weight = static_cast<const T*>(op.weight);
  for (int64_t t = rows.begin; t < rows.end; ++t) {
    const T* x = static_cast<const T*>(op.x) + t * op.x_stride;
    if (op.residual != nullptr) x = add_residual(x, op, t);
    T* y = static_cast<T*>(op.y) + t * op.y_stride;
    Vec squares{};
    for_each_vec(0, op.size, [&](int64_t i, auto part) {
      const Vec value = load(x + i, part);
      squares += value * value;
    });
    const float mean_square = sum(squares) / static_cast<float>(op.size);
    const float inv_rms = 1.0F / __builtin_sqrtf(mean_square + op.epsilon);
    op.inv_rms[t] = inv_rms;
    for_each_vec(0, op.size, [&](int64_t i, auto part) {
      store(y + i, load(x + i, part) * inv_rms * load(weight + i, part), part);
    });
  }
}

template <class T>
void input_grad(const RmsNormBackward& op, Range rows) {
  const T* weight = static_cast<const T*>(op.weight);
  for (int64_t t = rows.begin; t < rows.end; ++t) {
    const T* x = static_cast<const T*>(op.x) + t * op.x_stride;
    const T* dy = static_cast<const T*>(op.dy) + t * op.dy_stride;
    T* dx = static_cast<T*>(op.dx) + t * op.dx_stride;
    const T* residual =
        op.residual == nullptr ? nullptr : static_cast<const T*>(op.residual) + t * op.dx_stride;
    const float inv_rms = op.inv_rms[t];
    Vec products{};
    for_each_vec(0, op.size, [&](int64_t i, auto part) {
      products += load(dy + i, part) * load(weight + i, part) * load(x + i, part);
    });
    // mean(g n) * inv_rms^2, so that dx = inv_rms g - x * factor
    const float factor = sum(products) / static_cast<float>(op.size) * inv_rms * inv_rms * inv_rms;
    for_each_vec(0, op.size, [&](int64_t i, auto part) {
      const Vec g = load(dy + i, part) * load(weight + i, part);
      const Vec own = g * inv_rms - load(x + i, part) * factor;
      store(dx + i, residual == nullptr ? own : load(residual + i, part) + own, part);
    });
  }
}

template <class T>
void weight_grad(const RmsNormBackward& op, Range columns) {
  const T* x = static_cast<const T*>(op.x);
  const T* dy = static_cast<const T*>(op.dy);
  column_sums(op.dweight, columns, op.tokens, op.accumulate, [&](int64_t t, int64_t i, auto part) {
    return load(dy + t * op.dy_stride + i, part) * load(x + t * op.x_stride + i, part) *
           op.inv_rms[t];
  });
}

}  // namespace

void rms_norm_forward(const RmsNormForward& op, Range rows) {
  with_type(op.dtype, [&]<class T>(T* /*type*/) { forward<T>(op, rows); });
}
void rms_norm_input_grad(const RmsNormBackward& op, Range rows) {
  with_type(op.dtype, [&]<class T>(T* /*type*/) { input_grad<T>(op, rows); });
}
void rms_norm_weight_grad(const RmsNormBackward& op, Range columns) {
  with_type(op.dtype, [&]<class T>(T* /*type*/) { weight_grad<T>(op, columns); });
}

}  // namespace meshplan::kernels::MESHPLAN_ISA
