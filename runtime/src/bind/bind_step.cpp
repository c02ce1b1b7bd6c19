#include "bind/bound_operands.hpp"
#include "bind/gradient_scale.hpp"
#include "core/error.hpp"

namespace meshplan::runtime {

std::function<void()> OperatorBinder::Body::bind_step(const program::StepOp& step,
                                                      const FlatMemory& memory) {
  if (step.work == program::StepWork::SquaredNorm)
    return ready(kernels::SquaredNorm{.count = step.range.size(),
                                      .x = memory.gradients,
                                      .sum = memory.squared_norm,
                                      .accumulate = true});
  if (step.work == program::StepWork::ClipCoefficient) {
    constexpr float kNoClipping = 3.0e38F;  // near the largest fp32: the coefficient is 1
    const program::Workload& workload = program_.plan.workload;
    const double clip = workload.optimizer.clip_norm;
    return ready(
        kernels::ClipCoefficient{.sum_of_squares = memory.squared_norm,
                                 .max_norm = clip > 0 ? static_cast<float>(clip) : kNoClipping,
                                 .coefficient = memory.clip_coefficient,
                                 .norm = memory.gradient_norm,
                                 .applied_scale = gradient_scale_,
                                 .wanted_scale = memory.mean_scale});
  }
  if (step.work == program::StepWork::BalanceExperts)
    return ready(kernels::BalanceExperts{
        .experts = static_cast<int>(step.range.size()),
        .rate = static_cast<float>(program_.plan.model.moe->router.correction_bias_rate),
        .load = memory.expert_load,
        // A step that fp16 skips moves no weight, and this is one.
        .gradient_scale = scales_loss(program_.plan.workload) ? memory.clip_coefficient : nullptr,
        .bias = memory.master,
        .copy_dtype = program_.plan.workload.precision,
        .copy = memory.weights});
  require_invariant(step.work == program::StepWork::OptimizerUpdate, "step work without a kernel");
  return bind_update(step, memory);
}

std::function<void()> OperatorBinder::Body::bind_update(const program::StepOp& step,
                                                        const FlatMemory& memory) {
  const program::OptimizerConfig& config = program_.plan.workload.optimizer;
  const auto decay = static_cast<float>(step.weight_decay ? config.weight_decay : 0.0);
  if (config.kind == program::OptimizerKind::Sgd) {
    return ready(kernels::SgdStep{.count = step.range.size(),
                                  .learning_rate_at = memory.learning_rate,
                                  .momentum = static_cast<float>(config.momentum),
                                  .weight_decay = decay,
                                  .master = memory.master,
                                  .velocity = memory.moment1,
                                  .gradient = memory.gradients,
                                  .gradient_scale = memory.clip_coefficient,
                                  .weight = memory.weights,
                                  .weight_dtype = program_.plan.workload.precision,
                                  .skips_nan_scale = scales_loss(program_.plan.workload)});
  }
  return ready(kernels::AdamStep{.count = step.range.size(),
                                 .step_at = memory.optimizer_step,
                                 .learning_rate_at = memory.learning_rate,
                                 .beta1 = static_cast<float>(config.beta1),
                                 .beta2 = static_cast<float>(config.beta2),
                                 .epsilon = static_cast<float>(config.epsilon),
                                 .weight_decay = decay,
                                 .decoupled = config.kind == program::OptimizerKind::AdamW,
                                 .master = memory.master,
                                 .m = memory.moment1,
                                 .v = memory.moment2,
                                 .gradient = memory.gradients,
                                 .gradient_scale = memory.clip_coefficient,
                                 .weight = memory.weights,
                                 .weight_dtype = program_.plan.workload.precision,
                                 .skips_nan_scale = scales_loss(program_.plan.workload)});
}

}  // namespace meshplan::runtime
