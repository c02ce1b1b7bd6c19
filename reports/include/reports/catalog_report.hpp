// What `meshplan models` and `meshplan clusters` show: lists, and one entry in detail.
#pragma once

#include <string>
#include <vector>

#include "models/model_spec.hpp"
#include "sim/cluster.hpp"

namespace meshplan::reports {

std::string models_text(const std::vector<models::ModelSpec>& models);
std::string models_json(const std::vector<models::ModelSpec>& models);

/// The layer graph of each kind with parameters and forward FLOPs per token.
/// @param assumptions  what the file did not say
std::string model_text(const models::ModelSpec& model, const std::vector<std::string>& assumptions);
std::string model_json(const models::ModelSpec& model, const std::vector<std::string>& assumptions);

std::string clusters_text(const std::vector<sim::Cluster>& clusters);
std::string clusters_json(const std::vector<sim::Cluster>& clusters);
std::string cluster_text(const sim::Cluster& cluster);

/// Why this version cannot plan a model; empty if it can.
std::string not_lowered_because(const models::ModelSpec& model);

}  // namespace meshplan::reports
