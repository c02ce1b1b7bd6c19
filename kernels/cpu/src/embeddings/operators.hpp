#pragma once

#include "device/context.hpp"
#include "kernels/embeddings/embedding.hpp"
#include "kernels/embeddings/position_embedding.hpp"
#include "kernels/embeddings/rope.hpp"

namespace meshplan::kernels::cpu {

void run(const Context& context, const EmbeddingForward& op);
void run(const Context& context, const EmbeddingBackward& op);
void run(const Context& context, const PositionEmbeddingForward& op);
void run(const Context& context, const PositionEmbeddingBackward& op);
void run(const Context& context, const Rope& op);

}  // namespace meshplan::kernels::cpu
