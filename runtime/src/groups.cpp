#include "runtime/groups.hpp"

#include <fmt/format.h>

#include "core/error.hpp"

namespace meshplan::runtime {

using program::Group;

Groups::Groups(Communicator& world, std::span<const program::Program* const> programs)
    : world_(world),
      mesh_(program::mesh_of(programs.front()->plan)),
      coordinates_(mesh_.coordinates(world.rank())) {
  const auto create = [&](Group group, std::string_view name) {
    return world.create_group(mesh_.group(group, world.rank()), name);
  };
  std::set<Group> used;
  for (const program::Program* program : programs) used.merge(program::groups_used(*program));
  used.erase(Group::World);
  // In one order on all ranks: who makes a group waits for its other members.
  for (const Group group : used) groups_[group] = create(group, program::name_of(group));
  if (mesh_.group_size(Group::Pp) == 1) return;
  forward_ = create(Group::Pp, "pp forward");
  backward_ = create(Group::Pp, "pp backward");
}

Communicator& Groups::of(Group group) const {
  if (group == Group::World) return world_;
  const auto found = groups_.find(group);
  if (found == groups_.end())
    throw InvariantError(fmt::format("no communicator for group {}", program::name_of(group)));
  return *found->second;
}

bool Groups::leads(Group group) const {
  return mesh_.group(group, world_.rank()).front() == world_.rank();
}

Communicator& Groups::pipeline(program::Lane lane) const {
  return program::carries_activations(lane) ? *forward_ : *backward_;
}

}  // namespace meshplan::runtime
