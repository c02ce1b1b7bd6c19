// What `meshplan simulate --memory-timeline` and `--memory-svg` show.
#pragma once

#include <string>
#include <vector>

#include "sim/engine/memory_timeline.hpp"

namespace meshplan::reports {

/// The peak of each stage, what ran then, and a line of characters over the step. The first rank of
/// a stage stands for the others, which plan alike.
std::string to_text(const std::vector<sim::MemoryTimeline>& timelines);

/// One panel per stage: areas by class over the step, stacked, with the peak and the capacity.
/// @param capacity_bytes  of a rank, by stage
/// @param title  shown on top
std::string to_svg(const std::vector<sim::MemoryTimeline>& timelines,
                   const std::vector<double>& capacity_bytes, const std::string& title);

}  // namespace meshplan::reports
