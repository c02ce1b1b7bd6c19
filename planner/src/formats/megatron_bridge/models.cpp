#include "formats/megatron_bridge/models.hpp"

#include "formats/text/hugging_face_models.hpp"

namespace meshplan::planner::bridge {

HubModel hub_model(const std::string& name) {
  const auto known = model_of_checkpoint(name);
  // Of a model that reads images, too, a recipe trains all.
  if (known && !known->is_part) return {.spec = known->spec, .other = {}};
  return {.spec = {}, .other = kind_of_checkpoint(name)};
}

std::string nearest_hub_model(const std::string& name) {
  return nearest_checkpoint(name.substr(name.find_last_of('/') + 1));
}

}  // namespace meshplan::planner::bridge
