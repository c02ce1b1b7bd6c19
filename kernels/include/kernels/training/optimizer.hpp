// Optimizer steps on flat ranges: fp32 master weights, state and gradients; optionally the copy in
// the compute dtype is written in the same pass.
//
// What changes from step to step can be given by value, or as device memory that is read when the
// operation runs (`..._at`): then the same launch, captured once, serves every step.
#pragma once

#include <cstdint>

#include "core/dtype.hpp"

namespace meshplan::kernels {

/// Adam (Kingma & Ba 2015) with weight decay decoupled (AdamW, Loshchilov & Hutter 2019) or added
/// to the gradient (L2). With g = gradient * gradient_scale and bias corrections of `step`:
///   m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2
///   master -= lr (m_hat / (sqrt(v_hat) + epsilon) + weight_decay master)
/// Traffic: 28 bytes an element (read master, m, v, gradient; write master, m, v) + the copy.
struct AdamStep {
  std::int64_t count = 0;
  std::int64_t step = 1;  // 1 at the first update
  float learning_rate = 0.0F;
  const std::int64_t* step_at = nullptr;    // one number; null = `step`
  const float* learning_rate_at = nullptr;  // one number; null = `learning_rate`
  float beta1 = 0.9F;
  float beta2 = 0.999F;
  float epsilon = 1e-8F;
  float weight_decay = 0.0F;
  bool decoupled = true;
  float* master = nullptr;
  float* m = nullptr;
  float* v = nullptr;
  const float* gradient = nullptr;
  const float* gradient_scale = nullptr;  // one number, read when the operation runs; null = 1
  void* weight = nullptr;                 // copy in weight_dtype, or null; never the master itself
  DType weight_dtype = DType::F32;
  bool skips_nan_scale = false;  // a gradient_scale that is NaN leaves everything as it is
};

/// g = gradient * gradient_scale + weight_decay master; velocity = momentum velocity + g;
/// master -= lr velocity, or lr (g + momentum velocity) with `nesterov`. A null velocity means
/// momentum 0. Traffic: 20 bytes an element (12 without velocity) + the copy.
struct SgdStep {
  std::int64_t count = 0;
  float learning_rate = 0.0F;
  const float* learning_rate_at = nullptr;  // one number; null = `learning_rate`
  float momentum = 0.0F;
  float weight_decay = 0.0F;
  bool nesterov = false;
  float* master = nullptr;
  float* velocity = nullptr;
  const float* gradient = nullptr;
  const float* gradient_scale = nullptr;
  void* weight = nullptr;
  DType weight_dtype = DType::F32;
  bool skips_nan_scale = false;
};

/// sum (+)= sum of x^2 in fp64, over fixed blocks of 16,384 elements that are then added in a fixed
/// order: the same bits for any number of threads.
struct SquaredNorm {
  std::int64_t count = 0;
  const float* x = nullptr;
  double* sum = nullptr;  // one number
  bool accumulate = false;
};

/// norm = sqrt(sum_of_squares); coefficient = min(1, max_norm / (norm + 1e-6)), as PyTorch's
/// clip_grad_norm_. A norm that is not finite gives coefficient NaN, so that the step shows it.
/// With a loss scale (Micikevicius et al. 2018, section 3.2) the gradients are applied_scale /
/// wanted_scale times too large: the norm is given without it, and the coefficient undoes it.
struct ClipCoefficient {
  const double* sum_of_squares = nullptr;  // one number
  float max_norm = 1.0F;
  float* coefficient = nullptr;          // one number
  float* norm = nullptr;                 // one number, or null
  const float* applied_scale = nullptr;  // one number; null = the wanted one
  const float* wanted_scale = nullptr;   // one number; null = 1
};

}  // namespace meshplan::kernels
