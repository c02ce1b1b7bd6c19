// How options and reports spell what a job does when a device fails.
#pragma once

#include "core/enum_names.hpp"
#include "planner/failures/failure_model.hpp"

namespace meshplan {

template <>
struct EnumNames<planner::CheckpointPlace> {
  static constexpr std::array<std::pair<planner::CheckpointPlace, std::string_view>, 2> value = {
      {{planner::CheckpointPlace::Storage, "storage"},
       {planner::CheckpointPlace::Partner, "partner"}}};
};

template <>
struct EnumNames<planner::SmallerWorld> {
  static constexpr std::array<std::pair<planner::SmallerWorld, std::string_view>, 3> value = {
      {{planner::SmallerWorld::KeepBatch, "keep-batch"},
       {planner::SmallerWorld::ShrinkBatch, "shrink-batch"},
       {planner::SmallerWorld::Wait, "wait"}}};
};

}  // namespace meshplan
