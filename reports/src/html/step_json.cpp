#include "html/step_json.hpp"

#include "explain/step_part_names.hpp"

namespace meshplan::reports {

std::vector<PartJson> parts_json(const sim::StepParts& parts) {
  std::vector<PartJson> list;
  for (const sim::StepPart part : sim::all_step_parts())
    list.push_back({std::string(sim::name_of(part)), std::string(words_for(part)), parts[part]});
  return list;
}

std::vector<TrafficJson> traffic_json(const std::vector<sim::LinkTraffic>& traffic) {
  std::vector<TrafficJson> list;
  for (const sim::LinkTraffic& row : traffic)
    list.push_back({std::string(sim::name_of(row.category)), row.group, row.level.value_or(-1),
                    row.operation, row.messages, row.bytes, row.sent_bytes, row.alone_s,
                    row.exposed_s});
  return list;
}

std::vector<LevelJson> levels_json(const sim::Cluster& cluster) {
  std::vector<LevelJson> list;
  for (const sim::FabricLevel& level : cluster.fabric)
    list.push_back({level.name, level.ranks_per_group, level.latency_us, level.link_gb_per_s});
  return list;
}

}  // namespace meshplan::reports
