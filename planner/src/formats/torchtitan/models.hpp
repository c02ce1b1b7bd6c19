// The models that torchtitan has, and meshplan's presets of the same shape.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/model_spec.hpp"

namespace meshplan::planner::torchtitan {

/// model_registry(flavor) of torchtitan.models.FAMILY; `config` is a function of its
/// config_registry that trains it or its nearest relative.
struct Flavor {
  std::string_view family;
  std::string_view name;
  std::string_view config;
  std::string_view preset;  // of meshplan
};
const std::vector<Flavor>& flavors();

/// What a function of torchtitan's config_registry sets, as far as a plan has a word for it; all
/// else has torchtitan's defaults.
struct BaseConfiguration {
  std::string_view function;
  std::string_view family;
  std::string_view flavor;
  int micro_batch = 1;  // sequences of a data-parallel rank
  std::int64_t seq_len = 2048;
  int tp = 1;
  int ep = 1;
  bool full_checkpoint = false;  // else selective
  std::string_view schedule = "1F1B";
  bool compiled = false;
  bool float8 = false;
};
const BaseConfiguration* base_configuration(std::string_view function);

/// The preset of a flavor; none where meshplan has none.
std::optional<models::ModelSpec> model_of(std::string_view family, std::string_view flavor);

/// Are all weights of the same shapes, in as many layers of the same kinds?
bool same_shape(const models::ModelSpec& model, const models::ModelSpec& preset);

/// The flavor whose layers, embedding and head are those of the model, which may have fewer layers:
/// its first ones.
const Flavor* flavor_of(const models::ModelSpec& model);

/// For a model that has none: the nearest flavor and in what it differs.
std::string nearest_flavor(const models::ModelSpec& model);

}  // namespace meshplan::planner::torchtitan
