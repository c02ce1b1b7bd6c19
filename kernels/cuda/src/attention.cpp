#include "attention.hpp"

#include <fmt/format.h>

#include "core/error.hpp"
#include "flash_attention.hpp"

namespace meshplan::kernels::cuda {

namespace {

void require_shape(const AttentionShape& shape) {
  require_invariant(shape.heads > 0 && shape.kv_heads > 0 && shape.head_size > 0,
                    "attention has heads");
  require_invariant(shape.heads % shape.kv_heads == 0, "query heads are a multiple of key heads");
}

}  // namespace

void require_shared_memory(const Context& context, std::int64_t bytes, int head_size) {
  if (bytes > context.max_shared_bytes)
    throw ConfigError(fmt::format(
        "attention with a head size of {} needs {} bytes of shared memory in a block, this GPU "
        "has {}",
        head_size, bytes, context.max_shared_bytes));
}

std::int64_t AttentionKernels::scratch_bytes(const Context& /*context*/,
                                             const AttentionForward& /*op*/) {
  return 0;
}
std::int64_t AttentionKernels::scratch_bytes(const Context& /*context*/,
                                             const AttentionBackward& op) {
  return flash_scratch_bytes(op);
}
void AttentionKernels::run(const Context& context, const AttentionForward& op) {
  require_shape(op.shape);
  enqueue_flash(context, op);
}
void AttentionKernels::run(const Context& context, const AttentionBackward& op) {
  require_shape(op.shape);
  enqueue_flash(context, op);
}

}  // namespace meshplan::kernels::cuda
