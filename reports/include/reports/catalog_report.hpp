// What `meshplan models` and `meshplan clusters` show: lists, and one entry in detail.
#pragma once

#include <string>
#include <vector>

#include "models/hugging_face.hpp"
#include "sim/clusters/cluster.hpp"

namespace meshplan::reports {

std::string models_text(const std::vector<models::ModelSpec>& models);
std::string models_json(const std::vector<models::ModelSpec>& models);

/// What became of the keys of an imported file, then the layer graph of each kind with parameters
/// and forward FLOPs per token.
std::string model_text(const models::ImportedModel& imported);
std::string model_json(const models::ImportedModel& imported);
/// Lines "read", "ignored" (one for each reason) and "assumed"; empty for a preset.
std::string import_text(const models::ImportedModel& model);

/// A table for each vendor, in the order in which they come.
std::string clusters_text(const std::vector<sim::Cluster>& clusters);
std::string clusters_json(const std::vector<sim::Cluster>& clusters);
std::string cluster_text(const sim::Cluster& cluster);

/// Why this version cannot plan a model; empty if it can.
std::string not_lowered_because(const models::ModelSpec& model);

}  // namespace meshplan::reports
