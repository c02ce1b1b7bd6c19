#include "simd/column_sums.hpp"
#include "simd/kernels.hpp"
#include "simd/residual.hpp"

namespace meshplan::kernels::MESHPLAN_ISA {

namespace {

template <class T>
void forward(const LayerNormForward& op, Range rows) {
  const T* weight = static_cast<const T*>(op.weight);
  const T* bias = static_cast<const T*>(op.bias);
  const float inv_size = 1.0F / static_cast<float>(op.size);
  for (int64_t t = rows.begin; t < rows.end; ++t) {
    const T* x = static_cast<const T*>(op.x) + t * op.x_stride;
    if (op.residual != nullptr) x = add_residual(x, op, t);
    T* y = static_cast<T*>(op.y) + t * op.y_stride;
    Vec total{};
    for_each_vec(0, op.size, [&](int64_t i, auto part) { total += load(x + i, part); });
    const float mean = sum(total) * inv_size;
    Vec squares{};
    for_each_vec(0, op.size, [&](int64_t i, auto part) {
      const Vec centered = select(load(x + i, part) - mean, Vec{}, part);
      squares += centered * centered;
    });
    const float inv_std = 1.0F / __builtin_sqrtf(sum(squares) * inv_size + op.epsilon);
    op.mean[t] = mean;
    op.inv_std[t] = inv_std;
    for_each_vec(0, op.size, [&](int64_t i, auto part) {
      const Vec scaled = (load(x + i, part) - mean) * inv_std * load(weight + i, part);
      store(y + i, bias != nullptr ? scaled + load(bias + i, part) : scaled, part);
    });
  }
}

template <class T>
void input_grad(const LayerNormBackward& op, Range rows) {
  const T* weight = static_cast<const T*>(op.weight);
  const float inv_size = 1.0F / static_cast<float>(op.size);
  for (int64_t t = rows.begin; t < rows.end; ++t) {
    const T* x = static_cast<const T*>(op.x) + t * op.x_stride;
    const T* dy = static_cast<const T*>(op.dy) + t * op.dy_stride;
    T* dx = static_cast<T*>(op.dx) + t * op.dx_stride;
    const T* residual =
        op.residual == nullptr ? nullptr : static_cast<const T*>(op.residual) + t * op.dx_stride;
    const float mean = op.mean[t];
    const float inv_std = op.inv_std[t];
    Vec g_total{};
    Vec gn_total{};
    for_each_vec(0, op.size, [&](int64_t i, auto part) {
      const Vec g = load(dy + i, part) * load(weight + i, part);
      g_total += g;
      gn_total += g * (load(x + i, part) - mean);
    });
    const float g_mean = sum(g_total) * inv_size;
    const float gn_mean = sum(gn_total) * inv_size * inv_std;
    for_each_vec(0, op.size, [&](int64_t i, auto part) {
      const Vec g = load(dy + i, part) * load(weight + i, part);
      const Vec n = (load(x + i, part) - mean) * inv_std;
      const Vec own = (g - g_mean - n * gn_mean) * inv_std;
      store(dx + i, residual == nullptr ? own : load(residual + i, part) + own, part);
    });
  }
}

template <class T>
void weight_grad(const LayerNormBackward& op, Range columns) {
  const T* x = static_cast<const T*>(op.x);
  const T* dy = static_cast<const T*>(op.dy);
  if (op.dweight != nullptr) {
    column_sums(op.dweight, columns, op.tokens, op.accumulate,
                [&](int64_t t, int64_t i, auto part) {
                  const Vec n = (load(x + t * op.x_stride + i, part) - op.mean[t]) * op.inv_std[t];
                  return load(dy + t * op.dy_stride + i, part) * n;
                });
  }
  if (op.dbias != nullptr) {
    column_sums(op.dbias, columns, op.tokens, op.accumulate, [&](int64_t t, int64_t i, auto part) {
      return load(dy + t * op.dy_stride + i, part);
    });
  }
}

}  // namespace

void layer_norm_forward(const LayerNormForward& op, Range rows) {
  with_type(op.dtype, [&]<class T>(T* /*type*/) { forward<T>(op, rows); });
}
void layer_norm_input_grad(const LayerNormBackward& op, Range rows) {
  with_type(op.dtype, [&]<class T>(T* /*type*/) { input_grad<T>(op, rows); });
}
void layer_norm_weight_grad(const LayerNormBackward& op, Range columns) {
  with_type(op.dtype, [&]<class T>(T* /*type*/) { weight_grad<T>(op, columns); });
}

}  // namespace meshplan::kernels::MESHPLAN_ISA
