// Our own attention kernels: any head size up to 256, fp32 and bf16, every mask of AttentionShape.
#pragma once

#include "device/context.hpp"
#include "kernels/attention/attention.hpp"

namespace meshplan::kernels::cuda {

constexpr int kFlashMostHeadSize = 256;

/// Bytes of `delta`, the row sums of do * o.
std::int64_t flash_scratch_bytes(const AttentionBackward& op);

/// Deterministic: dq is one kernel, dk and dv another, and each output has one owner that sums in a
/// fixed order. Without atomics 7 instead of 5 products are computed in the backward.
void enqueue_flash(const Context& context, const AttentionForward& op);
void enqueue_flash(const Context& context, const AttentionBackward& op);

/// @throws ConfigError naming head size and bytes if a block cannot have that much
void require_shared_memory(const Context& context, std::int64_t bytes, int head_size);

}  // namespace meshplan::kernels::cuda
