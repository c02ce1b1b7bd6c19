#pragma once

#include "device/context.hpp"
#include "kernels/embeddings/embedding.hpp"
#include "kernels/embeddings/position_embedding.hpp"
#include "kernels/embeddings/rope.hpp"

namespace meshplan::kernels::cuda {

void enqueue(const Context& context, const EmbeddingForward& op);
void enqueue(const Context& context, const EmbeddingBackward& op);
void enqueue(const Context& context, const PositionEmbeddingForward& op);
void enqueue(const Context& context, const PositionEmbeddingBackward& op);
void enqueue(const Context& context, const Rope& op);

std::int64_t scratch_bytes(const EmbeddingBackward& op);

}  // namespace meshplan::kernels::cuda
