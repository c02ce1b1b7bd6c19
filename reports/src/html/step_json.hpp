// What JSON shows of a step's parts and of what its ranks send.
#pragma once

#include <vector>

#include "html/page_fields.hpp"
#include "sim/engine/link_traffic.hpp"
#include "sim/engine/step_parts.hpp"

namespace meshplan::reports {

/// All parts, in order.
std::vector<PartJson> parts_json(const sim::StepParts& parts);
std::vector<TrafficJson> traffic_json(const std::vector<sim::LinkTraffic>& traffic);
std::vector<LevelJson> levels_json(const sim::Cluster& cluster);

}  // namespace meshplan::reports
