#pragma once

#include "device/context.hpp"
#include "kernels/elementwise/accumulate.hpp"
#include "kernels/elementwise/activation.hpp"
#include "kernels/elementwise/add.hpp"
#include "kernels/elementwise/convert.hpp"
#include "kernels/elementwise/copy_rows.hpp"
#include "kernels/elementwise/fill.hpp"
#include "kernels/elementwise/gated_activation.hpp"
#include "kernels/elementwise/scale.hpp"
#include "kernels/elementwise/sigmoid_gate.hpp"

namespace meshplan::kernels::cuda {

void enqueue(const Context& context, const ActivationForward& op);
void enqueue(const Context& context, const ActivationBackward& op);
void enqueue(const Context& context, const GatedActivationForward& op);
void enqueue(const Context& context, const GatedActivationBackward& op);
void enqueue(const Context& context, const SigmoidGateForward& op);
void enqueue(const Context& context, const SigmoidGateBackward& op);
void enqueue(const Context& context, const Add& op);
void enqueue(const Context& context, const Accumulate& op);
void enqueue(const Context& context, const Scale& op);
void enqueue(const Context& context, const Fill& op);
void enqueue(const Context& context, const Convert& op);
void enqueue(const Context& context, const CopyRows& op);

}  // namespace meshplan::kernels::cuda
