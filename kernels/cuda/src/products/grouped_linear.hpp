// Grouped products on our own kernels: the offsets are read on the device, so that the host need
// not wait for the router, and no plan depends on how many rows a group has.
#pragma once

#include "device/context.hpp"
#include "kernels/products/grouped_linear.hpp"

namespace meshplan::kernels::cuda {

void enqueue(const Context& context, const GroupedLinearForward& op);
void enqueue(const Context& context, const GroupedLinearInputGrad& op);
void enqueue(const Context& context, const GroupedLinearWeightGrad& op);

}  // namespace meshplan::kernels::cuda
