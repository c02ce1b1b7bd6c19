#pragma once

#include "device/context.hpp"
#include "kernels/attention/attention.hpp"
#include "kernels/attention/attention_merge.hpp"
#include "kernels/attention/attention_sinks.hpp"
#include "kernels/attention/indexer.hpp"
#include "kernels/attention/latent_heads.hpp"
#include "kernels/attention/sparse_attention.hpp"

namespace meshplan::kernels::cpu {

void run(const Context& context, const AttentionForward& op);
void run(const Context& context, const AttentionBackward& op);
void run(const Context& context, const AttentionMerge& op);
void run(const Context& context, const AttentionSinksGrad& op);
void run(const Context& context, const LatentHeadsForward& op);
void run(const Context& context, const LatentHeadsBackward& op);
void run(const Context& context, const SelectKeysForward& op);
void run(const Context& context, const SparseAttentionForward& op);
void run(const Context& context, const SparseAttentionBackward& op);
void run(const Context& context, const IndexerLossForward& op);
void run(const Context& context, const IndexerLossBackward& op);

std::int64_t scratch_bytes(const Context& context, const AttentionForward& op);
std::int64_t scratch_bytes(const Context& context, const AttentionBackward& op);
std::int64_t scratch_bytes(const Context& context, const SelectKeysForward& op);
std::int64_t scratch_bytes(const Context& context, const SparseAttentionForward& op);
std::int64_t scratch_bytes(const Context& context, const SparseAttentionBackward& op);
std::int64_t scratch_bytes(const Context& context, const IndexerLossForward& op);
std::int64_t scratch_bytes(const Context& context, const IndexerLossBackward& op);

}  // namespace meshplan::kernels::cpu
