#include <set>

#include "formats/megatron_flags/flag.hpp"

namespace meshplan::planner::megatron {

const std::vector<Flag>& flags() {
  static const std::vector<Flag> kAll = [] {
    std::vector<Flag> joined;
    for (const auto& part : {model_flags(), attention_flags(), mixer_flags(), position_flags(),
                             expert_flags(), parallel_flags(), memory_flags(), precision_flags(),
                             training_flags(), muon_flags(), stack_flags()})
      joined.insert(joined.end(), part.begin(), part.end());
    return joined;
  }();
  return kAll;
}

bool describes_model(std::string_view flag) {
  static const std::set<std::string_view> kNames = [] {
    std::set<std::string_view> all;
    for (const auto& part :
         {model_flags(), attention_flags(), mixer_flags(), position_flags(), expert_flags()})
      for (const Flag& each : part) all.insert(each.name);
    return all;
  }();
  return kNames.contains(flag);
}

}  // namespace meshplan::planner::megatron
