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

namespace meshplan::kernels::cpu {

void run(const Context& context, const ActivationForward& op);
void run(const Context& context, const ActivationBackward& op);
void run(const Context& context, const GatedActivationForward& op);
void run(const Context& context, const GatedActivationBackward& op);
void run(const Context& context, const SigmoidGateForward& op);
void run(const Context& context, const SigmoidGateBackward& op);
void run(const Context& context, const Add& op);
void run(const Context& context, const Accumulate& op);
void run(const Context& context, const Scale& op);
void run(const Context& context, const Fill& op);
void run(const Context& context, const Convert& op);
void run(const Context& context, const CopyRows& op);

}  // namespace meshplan::kernels::cpu
