// Names of communication operations and their algorithms, in files and messages.
#pragma once

#include "core/json_fields.hpp"
#include "program/calibration/collective_table.hpp"

namespace meshplan {

template <>
struct EnumNames<program::CommOp> {
  static constexpr std::array<std::pair<program::CommOp, std::string_view>, 8> value = {
      {{program::CommOp::AllReduce, "all_reduce"},
       {program::CommOp::ReduceScatter, "reduce_scatter"},
       {program::CommOp::AllGather, "all_gather"},
       {program::CommOp::AllToAll, "all_to_all"},
       {program::CommOp::AllToAllV, "all_to_all_v"},
       {program::CommOp::Broadcast, "broadcast"},
       {program::CommOp::Barrier, "barrier"},
       {program::CommOp::PointToPoint, "point_to_point"}}};
};
template <>
struct EnumNames<program::CommAlgorithm> {
  static constexpr std::array<std::pair<program::CommAlgorithm, std::string_view>, 7> value = {
      {{program::CommAlgorithm::OneShot, "one_shot"},
       {program::CommAlgorithm::Direct, "direct"},
       {program::CommAlgorithm::Doubling, "doubling"},
       {program::CommAlgorithm::Tree, "tree"},
       {program::CommAlgorithm::Ring, "ring"},
       {program::CommAlgorithm::Pairwise, "pairwise"},
       {program::CommAlgorithm::Library, "library"}}};
};

}  // namespace meshplan
