#pragma once

#include "device/context.hpp"
#include "kernels/mixers/ssd.hpp"

namespace meshplan::kernels::cuda {

void enqueue(const Context& context, const SsdForward& op);
void enqueue(const Context& context, const SsdBackward& op);

std::int64_t scratch_bytes(const SsdForward& op);
std::int64_t scratch_bytes(const SsdBackward& op);

}  // namespace meshplan::kernels::cuda
