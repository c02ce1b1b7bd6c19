// Attention itself is that of AttentionKernels (attention/attention.hpp).
#pragma once

#include "device/context.hpp"
#include "kernels/attention/attention_merge.hpp"
#include "kernels/attention/attention_sinks.hpp"
#include "kernels/attention/latent_heads.hpp"

namespace meshplan::kernels::cuda {

void enqueue(const Context& context, const AttentionMerge& op);
void enqueue(const Context& context, const AttentionSinksGrad& op);
void enqueue(const Context& context, const LatentHeadsForward& op);
void enqueue(const Context& context, const LatentHeadsBackward& op);

std::int64_t scratch_bytes(const AttentionSinksGrad& op);

}  // namespace meshplan::kernels::cuda
