// Memory timelines cut into columns, for drawing them.
#pragma once

#include <vector>

#include "sim/engine/memory_timeline.hpp"

namespace meshplan::reports {

/// What is held when most is, in each of `columns` equal parts of [0, end_s].
std::vector<sim::MemoryUse> fullest_in_columns(const sim::MemoryTimeline& timeline, double end_s,
                                               int columns);

/// By stage.
std::vector<const sim::MemoryTimeline*> first_of_each_stage(
    const std::vector<sim::MemoryTimeline>& timelines);

}  // namespace meshplan::reports
