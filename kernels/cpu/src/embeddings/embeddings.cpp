#include "core/error.hpp"
#include "device/loops.hpp"
#include "embeddings/operators.hpp"

namespace meshplan::kernels::cpu {

void run(const Context& context, const EmbeddingForward& op) {
  require_float(op.dtype);
  for_rows(context, context.table.embedding_forward, op, op.tokens, op.size);
}

void run(const Context& context, const EmbeddingBackward& op) {
  require_float(op.dtype);
  for_columns(context, context.table.embedding_backward, op, op.size);
}

void run(const Context& context, const PositionEmbeddingForward& op) {
  require_float(op.dtype);
  for_rows(context, context.table.position_embedding_forward, op, op.tokens, op.size);
}

void run(const Context& context, const PositionEmbeddingBackward& op) {
  require_float(op.dtype);
  for_columns(context, context.table.position_embedding_backward, op, op.size);
}

void run(const Context& context, const Rope& op) {
  require_float(op.dtype);
  require_invariant(op.rope_size % 2 == 0 && op.rope_size <= op.head_size,
                    "rope_size is even and at most the head size");
  for_rows(context, context.table.rope, op, op.tokens, std::int64_t{op.heads} * op.rope_size);
}

}  // namespace meshplan::kernels::cpu
