// What `meshplan mesh` shows: rank <-> coordinates, and who is in a group with whom.
#pragma once

#include <optional>
#include <string>

#include "program/plan/mesh.hpp"

namespace meshplan::reports {

/// Above this many ranks the text shows the first and last of them.
constexpr int kMostRanksShown = 64;

/// All ranks and groups, or one rank with the groups that it is in.
/// @throws ConfigError if `rank` is not in the mesh
std::string to_text(const program::Mesh& mesh, std::optional<int> rank = std::nullopt);
std::string to_json(const program::Mesh& mesh, std::optional<int> rank = std::nullopt);

}  // namespace meshplan::reports
