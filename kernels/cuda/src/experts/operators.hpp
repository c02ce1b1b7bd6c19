#pragma once

#include "device/context.hpp"
#include "kernels/experts/expert_dispatch.hpp"
#include "kernels/experts/expert_exchange.hpp"
#include "kernels/experts/router.hpp"

namespace meshplan::kernels::cuda {

void enqueue(const Context& context, const RouterForward& op);
void enqueue(const Context& context, const RouterBackward& op);
void enqueue(const Context& context, const ExpertLoad& op);
void enqueue(const Context& context, const RouterLosses& op);
void enqueue(const Context& context, const LimitChoices& op);
void enqueue(const Context& context, const BalanceExperts& op);
void enqueue(const Context& context, const DispatchPlan& op);
void enqueue(const Context& context, const DispatchForward& op);
void enqueue(const Context& context, const DispatchBackward& op);
void enqueue(const Context& context, const CombineForward& op);
void enqueue(const Context& context, const CombineBackward& op);
void enqueue(const Context& context, const ExpertCounts& op);
void enqueue(const Context& context, const ExchangeSizes& op);
void enqueue(const Context& context, const RegroupRows& op);
void enqueue(const Context& context, const NodeChoices& op);
void enqueue(const Context& context, const NodeRoutingForward& op);
void enqueue(const Context& context, const NodeRoutingBackward& op);
void enqueue(const Context& context, const PackFloat8Rows& op);
void enqueue(const Context& context, const UnpackFloat8Rows& op);

std::int64_t scratch_bytes(const DispatchPlan& op);

}  // namespace meshplan::kernels::cuda
