#include "program/operation.hpp"

namespace meshplan::program {

bool carries_activations(Lane lane) {
  return lane == Lane::PpSendForward || lane == Lane::PpRecvForward ||
         lane == Lane::PpReturnSendForward || lane == Lane::PpReturnRecvForward;
}

bool exchanges_within_stage(Lane lane) {
  return lane == Lane::Tp || lane == Lane::Cp || lane == Lane::Ep;
}

const CollectiveOp* collective_of(const Operation& operation) {
  if (const auto* flat = std::get_if<FlatCollectiveOp>(&operation.work)) return &flat->collective;
  return std::get_if<CollectiveOp>(&operation.work);
}

}  // namespace meshplan::program
