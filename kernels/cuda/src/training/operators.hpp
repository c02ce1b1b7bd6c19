#pragma once

#include "device/context.hpp"
#include "kernels/training/cross_entropy.hpp"
#include "kernels/training/gradient_compression.hpp"
#include "kernels/training/optimizer.hpp"
#include "kernels/training/random_normal.hpp"

namespace meshplan::kernels::cuda {

void enqueue(const Context& context, const CrossEntropyLocal& op);
void enqueue(const Context& context, const CrossEntropyCombine& op);
void enqueue(const Context& context, const CrossEntropyBackward& op);
void enqueue(const Context& context, const SumLoss& op);
void enqueue(const Context& context, const AdamStep& op);
void enqueue(const Context& context, const SgdStep& op);
void enqueue(const Context& context, const SquaredNorm& op);
void enqueue(const Context& context, const ClipCoefficient& op);
void enqueue(const Context& context, const RandomNormal& op);
void enqueue(const Context& context, const QuantizeInt8& op);
void enqueue(const Context& context, const DequantizeInt8& op);
void enqueue(const Context& context, const TopKSelect& op);
void enqueue(const Context& context, const TopKScatterAdd& op);
void enqueue(const Context& context, const SettleErrors& op);

std::int64_t scratch_bytes(const SquaredNorm& op);

}  // namespace meshplan::kernels::cuda
