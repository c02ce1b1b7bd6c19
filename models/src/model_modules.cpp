#include "models/model_modules.hpp"

namespace meshplan::models {

bool has_module(const ModelSpec& model, Module module) {
  switch (module) {
    case Module::MlaUpProj:
      return model.mla.has_value();
    case Module::Moe:
    case Module::MoeAct:
      return model.moe.has_value();
    case Module::SharedExperts:
      return model.moe && model.moe->shared_expert_ffn_size > 0;
    default:
      return true;
  }
}

std::string_view needed_for(Module module) {
  switch (module) {
    case Module::MlaUpProj:
      return "latent attention";
    case Module::Moe:
    case Module::MoeAct:
      return "experts";
    case Module::SharedExperts:
      return "shared experts";
    default:
      return "";
  }
}

}  // namespace meshplan::models
