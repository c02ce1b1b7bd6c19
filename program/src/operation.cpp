#include "program/operation.hpp"

namespace meshplan::program {

bool carries_activations(Lane lane) {
  return lane == Lane::PpSendForward || lane == Lane::PpRecvForward ||
         lane == Lane::PpReturnSendForward || lane == Lane::PpReturnRecvForward;
}

bool exchanges_within_stage(Lane lane) {
  return lane == Lane::Tp || lane == Lane::Cp || exchanges_with_experts(lane);
}

bool exchanges_with_experts(Lane lane) {
  return lane == Lane::Ep || lane == Lane::EpWithin;
}

const CollectiveOp* collective_of(const Operation& operation) {
  if (const auto* flat = std::get_if<FlatCollectiveOp>(&operation.work)) return &flat->collective;
  return std::get_if<CollectiveOp>(&operation.work);
}

}  // namespace meshplan::program
