#pragma once

#include <vector>

#include "core/json_fields.hpp"
#include "sim/engine/memory_timeline.hpp"

namespace meshplan::reports {

/// An array of objects, one per rank; what never changes once, what does by time.
Json memory_timeline_json(const std::vector<sim::MemoryTimeline>& timelines);

}  // namespace meshplan::reports
