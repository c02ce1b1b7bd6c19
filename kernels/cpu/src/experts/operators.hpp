#pragma once

#include "device/context.hpp"
#include "kernels/experts/expert_dispatch.hpp"
#include "kernels/experts/expert_exchange.hpp"
#include "kernels/experts/router.hpp"

namespace meshplan::kernels::cpu {

void run(const Context& context, const RouterForward& op);
void run(const Context& context, const RouterBackward& op);
void run(const Context& context, const ExpertLoad& op);
void run(const Context& context, const RouterLosses& op);
void run(const Context& context, const LimitChoices& op);
void run(const Context& context, const BalanceExperts& op);
void run(const Context& context, const DispatchPlan& op);
void run(const Context& context, const DispatchForward& op);
void run(const Context& context, const DispatchBackward& op);
void run(const Context& context, const CombineForward& op);
void run(const Context& context, const CombineBackward& op);
void run(const Context& context, const ExpertCounts& op);
void run(const Context& context, const ExchangeSizes& op);
void run(const Context& context, const RegroupRows& op);
void run(const Context& context, const NodeChoices& op);
void run(const Context& context, const NodeRoutingForward& op);
void run(const Context& context, const NodeRoutingBackward& op);
void run(const Context& context, const PackFloat8Rows& op);
void run(const Context& context, const UnpackFloat8Rows& op);

std::int64_t scratch_bytes(const Context& context, const RouterForward& op);
std::int64_t scratch_bytes(const Context& context, const RouterBackward& op);
std::int64_t scratch_bytes(const Context& context, const LimitChoices& op);

}  // namespace meshplan::kernels::cpu
