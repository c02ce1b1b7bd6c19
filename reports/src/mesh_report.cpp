#include "reports/mesh_report.hpp"

#include <array>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/json_fields.hpp"
#include "core/limits.hpp"
#include "reports/table.hpp"

namespace meshplan::reports {
namespace {

using program::Coordinates;
using program::Group;
using program::Mesh;

constexpr std::array kGroups = {Group::Tp,        Group::Cp,       Group::Dp,       Group::Pp,
                                Group::TpPp,      Group::DpCp,     Group::Ep,       Group::Etp,
                                Group::ExpertDp,  Group::EpWithin, Group::EpAcross, Group::KvCopies,
                                Group::Embedding, Group::World};
constexpr std::size_t kMostGroupsShown = 8;
constexpr std::size_t kMostMembersShown = 16;

struct AxisColumn {
  const char* name;
  int Coordinates::*coordinate;
};
constexpr auto kAxes = std::to_array<AxisColumn>({{"tp", &Coordinates::tp},
                                                  {"cp", &Coordinates::cp},
                                                  {"dp", &Coordinates::dp},
                                                  {"pp", &Coordinates::pp},
                                                  {"etp", &Coordinates::etp},
                                                  {"ep", &Coordinates::ep},
                                                  {"edp", &Coordinates::edp}});

bool has_experts(const Mesh& mesh) {
  return mesh.config().ep > 1 || mesh.config().etp > 1;
}

// Groups of one rank say nothing, and expert groups repeat the dense ones without experts.
bool is_shown(Group group, const Mesh& mesh) {
  const bool by_node = group == Group::EpWithin || group == Group::EpAcross;
  if (by_node && mesh.expert_node_ranks() == 0) return false;
  const bool expert = group == Group::Ep || group == Group::Etp || group == Group::ExpertDp;
  return (!expert || has_experts(mesh)) && mesh.group_size(group) > 1;
}

std::string members_text(const std::vector<int>& members) {
  if (members.size() <= kMostMembersShown) return fmt::format("{}", fmt::join(members, " "));
  return fmt::format("{} ... {} ({} ranks)",
                     fmt::join(members.begin(), members.begin() + kMostMembersShown / 2, " "),
                     members.back(), members.size());
}

void require_rank(const Mesh& mesh, std::optional<int> rank) {
  if (rank && (*rank < 0 || *rank >= mesh.world_size()))
    throw ConfigError(fmt::format("rank {} is not in the mesh; it has ranks 0 to {}", *rank,
                                  mesh.world_size() - 1));
}

std::vector<int> shown_ranks(const Mesh& mesh, std::optional<int> rank) {
  if (rank) return {*rank};
  std::vector<int> ranks;
  for (int i = 0; i < mesh.world_size(); ++i)
    if (mesh.world_size() <= kMostRanksShown || i < kMostRanksShown / 2 ||
        i >= mesh.world_size() - kMostRanksShown / 2)
      ranks.push_back(i);
  return ranks;
}

std::string coordinates_text(const Mesh& mesh, std::optional<int> rank) {
  const std::size_t num_axes = has_experts(mesh) ? kAxes.size() : 4;
  Table table{.columns = {{"rank"}}};
  for (std::size_t i = 0; i < num_axes; ++i) table.columns.push_back({kAxes[i].name});
  int previous = -1;
  for (const int shown : shown_ranks(mesh, rank)) {
    if (!rank && shown != previous + 1) table.rows.push_back({"..."});
    previous = shown;
    const Coordinates coordinates = mesh.coordinates(shown);
    std::vector<std::string> row{std::to_string(shown)};
    for (std::size_t i = 0; i < num_axes; ++i)
      row.push_back(std::to_string(coordinates.*kAxes[i].coordinate));
    table.rows.push_back(std::move(row));
  }
  return to_text(table, 1);
}

std::string groups_text(const Mesh& mesh) {
  std::string text;
  for (const Group group : kGroups) {
    if (!is_shown(group, mesh)) continue;
    const auto groups = mesh.groups(group);
    text += fmt::format("\n{}: {} {} of {}\n", name_of(group), groups.size(),
                        groups.size() == 1 ? "group" : "groups", groups.front().size());
    for (std::size_t i = 0; i < groups.size() && i < kMostGroupsShown; ++i)
      text += fmt::format("  {}\n", members_text(groups[i]));
    if (groups.size() > kMostGroupsShown)
      text += fmt::format("  ... {} more\n", groups.size() - kMostGroupsShown);
  }
  return text;
}

std::string own_groups_text(const Mesh& mesh, int rank) {
  Table table{.columns = {{"group", Align::Left}, {"size"}, {"ranks", Align::Left}}};
  for (const Group group : kGroups) {
    if (!is_shown(group, mesh)) continue;
    const std::vector<int> members = mesh.group(group, rank);
    table.rows.push_back(
        {std::string(name_of(group)), std::to_string(members.size()), members_text(members)});
  }
  return table.rows.empty() ? "" : fmt::format("\n{}", to_text(table, 1));
}

}  // namespace

std::string to_text(const Mesh& mesh, std::optional<int> rank) {
  require_rank(mesh, rank);
  std::string text =
      fmt::format("{}: {} ranks\n\n", program::to_string(mesh.config()), mesh.world_size());
  text += coordinates_text(mesh, rank);
  return text + (rank ? own_groups_text(mesh, *rank) : groups_text(mesh));
}

std::string to_json(const Mesh& mesh, std::optional<int> rank) {
  require_rank(mesh, rank);
  if (!rank && mesh.world_size() > limits::kListedRanks)
    throw ConfigError(fmt::format("{} ranks; JSON lists at most {}: name one with --rank",
                                  mesh.world_size(), limits::kListedRanks));
  Json ranks = Json::array();
  const int first = rank.value_or(0);
  const int last = rank.value_or(mesh.world_size() - 1);
  for (int i = first; i <= last; ++i) {
    Json entry{{"rank", i}};
    for (const AxisColumn& axis : kAxes) entry[axis.name] = mesh.coordinates(i).*axis.coordinate;
    ranks.push_back(std::move(entry));
  }
  Json groups = Json::object();
  for (const Group group : kGroups) {
    const std::string name(name_of(group));
    if (rank)
      groups[name] = mesh.group(group, *rank);
    else
      groups[name] = mesh.groups(group);
  }
  return Json{{"schema_version", 1},
              {"world_size", mesh.world_size()},
              {"ranks", std::move(ranks)},
              {"groups", std::move(groups)}}
             .dump(2) +
         "\n";
}

}  // namespace meshplan::reports
