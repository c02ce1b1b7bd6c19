// Operations that a backend may lack say so when they are run.
#include "core/error.hpp"
#include "kernels/backend.hpp"

namespace meshplan::kernels {

namespace {

[[noreturn]] void refuse(const Backend& backend, const char* operation) {
  throw InvariantError(backend.name() + " has no kernel for " + operation);
}

}  // namespace

void Backend::run(const RouterForward& /*op*/) {
  refuse(*this, "RouterForward");
}
void Backend::run(const RouterBackward& /*op*/) {
  refuse(*this, "RouterBackward");
}
void Backend::run(const DispatchPlan& /*op*/) {
  refuse(*this, "DispatchPlan");
}
void Backend::run(const DispatchForward& /*op*/) {
  refuse(*this, "DispatchForward");
}
void Backend::run(const DispatchBackward& /*op*/) {
  refuse(*this, "DispatchBackward");
}
void Backend::run(const CombineForward& /*op*/) {
  refuse(*this, "CombineForward");
}
void Backend::run(const CombineBackward& /*op*/) {
  refuse(*this, "CombineBackward");
}
void Backend::run(const ExpertCounts& /*op*/) {
  refuse(*this, "ExpertCounts");
}
void Backend::run(const ExchangeSizes& /*op*/) {
  refuse(*this, "ExchangeSizes");
}
void Backend::run(const RegroupRows& /*op*/) {
  refuse(*this, "RegroupRows");
}
void Backend::run(const ExpertLoad& /*op*/) {
  refuse(*this, "ExpertLoad");
}
void Backend::run(const RouterLosses& /*op*/) {
  refuse(*this, "RouterLosses");
}
void Backend::run(const LimitChoices& /*op*/) {
  refuse(*this, "LimitChoices");
}
void Backend::run(const BalanceExperts& /*op*/) {
  refuse(*this, "BalanceExperts");
}
void Backend::run(const LatentHeadsForward& /*op*/) {
  refuse(*this, "LatentHeadsForward");
}
void Backend::run(const LatentHeadsBackward& /*op*/) {
  refuse(*this, "LatentHeadsBackward");
}
void Backend::run(const SigmoidGateForward& /*op*/) {
  refuse(*this, "SigmoidGateForward");
}
void Backend::run(const SigmoidGateBackward& /*op*/) {
  refuse(*this, "SigmoidGateBackward");
}
void Backend::run(const AttentionSinksGrad& /*op*/) {
  refuse(*this, "AttentionSinksGrad");
}
void Backend::run(const AttentionMerge& /*op*/) {
  refuse(*this, "AttentionMerge");
}
void Backend::run(const QuantizeInt8& /*op*/) {
  refuse(*this, "QuantizeInt8");
}
void Backend::run(const DequantizeInt8& /*op*/) {
  refuse(*this, "DequantizeInt8");
}
void Backend::run(const TopKSelect& /*op*/) {
  refuse(*this, "TopKSelect");
}
void Backend::run(const TopKScatterAdd& /*op*/) {
  refuse(*this, "TopKScatterAdd");
}
void Backend::run(const SettleErrors& /*op*/) {
  refuse(*this, "SettleErrors");
}
void Backend::run(const QuantizeFloat8& /*op*/) {
  refuse(*this, "QuantizeFloat8");
}
void Backend::run(const ScaledProduct& /*op*/) {
  refuse(*this, "ScaledProduct");
}

}  // namespace meshplan::kernels
