// Attention itself is that of AttentionKernels (attention/attention.hpp).
#pragma once

#include "device/context.hpp"
#include "kernels/attention/attention_merge.hpp"
#include "kernels/attention/attention_sinks.hpp"
#include "kernels/attention/indexer.hpp"
#include "kernels/attention/latent_heads.hpp"
#include "kernels/attention/sparse_attention.hpp"

namespace meshplan::kernels::cuda {

void enqueue(const Context& context, const AttentionMerge& op);
void enqueue(const Context& context, const AttentionSinksGrad& op);
void enqueue(const Context& context, const LatentHeadsForward& op);
void enqueue(const Context& context, const LatentHeadsBackward& op);
void enqueue(const Context& context, const SelectKeysForward& op);
void enqueue(const Context& context, const SparseAttentionForward& op);
void enqueue(const Context& context, const SparseAttentionBackward& op);
void enqueue(const Context& context, const IndexerLossForward& op);
void enqueue(const Context& context, const IndexerLossBackward& op);

std::int64_t scratch_bytes(const AttentionSinksGrad& op);
std::int64_t scratch_bytes(const SelectKeysForward& op);
std::int64_t scratch_bytes(const SparseAttentionBackward& op);
std::int64_t scratch_bytes(const IndexerLossBackward& op);

}  // namespace meshplan::kernels::cuda
