#include "bind/gradient_scale.hpp"

namespace meshplan::runtime {

float gradient_scale_of(double loss_tokens) {
  return 1.0F / static_cast<float>(loss_tokens);
}

bool scales_loss(const program::Workload& workload) {
  return workload.precision == DType::F16;
}

}  // namespace meshplan::runtime
