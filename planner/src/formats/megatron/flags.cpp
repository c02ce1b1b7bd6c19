#include "formats/megatron/flag.hpp"

namespace meshplan::planner::megatron {

const std::vector<Flag>& flags() {
  static const std::vector<Flag> all = [] {
    std::vector<Flag> joined;
    for (const auto& part :
         {model_flags(), attention_flags(), position_flags(), expert_flags(), parallel_flags(),
          memory_flags(), precision_flags(), training_flags(), overlap_flags()})
      joined.insert(joined.end(), part.begin(), part.end());
    return joined;
  }();
  return all;
}

}  // namespace meshplan::planner::megatron
