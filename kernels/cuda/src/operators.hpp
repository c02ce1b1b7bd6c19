// The launchers of the memory-bound operations, one per operation of kernels/include; defined in
// the .cu file of the operation's header. Each checks what it is given and enqueues on
// context.stream.
#pragma once

#include "device/context.hpp"
#include "kernels/backend.hpp"

namespace meshplan::kernels::cuda {

void enqueue(const Context& context, const Add& op);
void enqueue(const Context& context, const Accumulate& op);
void enqueue(const Context& context, const Scale& op);
void enqueue(const Context& context, const Fill& op);
void enqueue(const Context& context, const Convert& op);
void enqueue(const Context& context, const RmsNormForward& op);
void enqueue(const Context& context, const RmsNormBackward& op);
void enqueue(const Context& context, const LayerNormForward& op);
void enqueue(const Context& context, const LayerNormBackward& op);
void enqueue(const Context& context, const Rope& op);
void enqueue(const Context& context, const ActivationForward& op);
void enqueue(const Context& context, const ActivationBackward& op);
void enqueue(const Context& context, const GatedActivationForward& op);
void enqueue(const Context& context, const GatedActivationBackward& op);
void enqueue(const Context& context, const EmbeddingForward& op);
void enqueue(const Context& context, const EmbeddingBackward& op);
void enqueue(const Context& context, const PositionEmbeddingForward& op);
void enqueue(const Context& context, const PositionEmbeddingBackward& op);
void enqueue(const Context& context, const CrossEntropyLocal& op);
void enqueue(const Context& context, const CrossEntropyCombine& op);
void enqueue(const Context& context, const CrossEntropyBackward& op);
void enqueue(const Context& context, const SumLoss& op);
void enqueue(const Context& context, const AdamStep& op);
void enqueue(const Context& context, const SgdStep& op);
void enqueue(const Context& context, const SquaredNorm& op);
void enqueue(const Context& context, const ClipCoefficient& op);
void enqueue(const Context& context, const RandomNormal& op);
void enqueue(const Context& context, const RouterForward& op);
void enqueue(const Context& context, const RouterBackward& op);
void enqueue(const Context& context, const DispatchPlan& op);
void enqueue(const Context& context, const DispatchForward& op);
void enqueue(const Context& context, const DispatchBackward& op);
void enqueue(const Context& context, const CombineForward& op);
void enqueue(const Context& context, const CombineBackward& op);
void enqueue(const Context& context, const ExpertCounts& op);
void enqueue(const Context& context, const ExchangeSizes& op);
void enqueue(const Context& context, const RegroupRows& op);
void enqueue(const Context& context, const ExpertLoad& op);
void enqueue(const Context& context, const RouterLosses& op);
void enqueue(const Context& context, const LimitChoices& op);
void enqueue(const Context& context, const BalanceExperts& op);
void enqueue(const Context& context, const LatentHeadsForward& op);
void enqueue(const Context& context, const LatentHeadsBackward& op);
void enqueue(const Context& context, const SigmoidGateForward& op);
void enqueue(const Context& context, const SigmoidGateBackward& op);
void enqueue(const Context& context, const AttentionMerge& op);
void enqueue(const Context& context, const AttentionSinksGrad& op);
void enqueue(const Context& context, const QuantizeInt8& op);
void enqueue(const Context& context, const DequantizeInt8& op);
void enqueue(const Context& context, const TopKSelect& op);
void enqueue(const Context& context, const TopKScatterAdd& op);
void enqueue(const Context& context, const SettleErrors& op);
void enqueue(const Context& context, const QuantizeFloat8& op);

std::int64_t scratch_bytes(const AttentionSinksGrad& op);
std::int64_t scratch_bytes(const RmsNormBackward& op);
std::int64_t scratch_bytes(const LayerNormBackward& op);
std::int64_t scratch_bytes(const EmbeddingBackward& op);
std::int64_t scratch_bytes(const DispatchPlan& op);
std::int64_t scratch_bytes(const SquaredNorm& op);
std::int64_t scratch_bytes(const QuantizeFloat8& op);

}  // namespace meshplan::kernels::cuda
