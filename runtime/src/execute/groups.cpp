#include "execute/groups.hpp"

#include <array>
#include <fmt/format.h>

#include "core/error.hpp"

namespace meshplan::runtime {

using program::Group;

namespace {

/// Making a group is collective over the world, and stages use different groups: only the last one
/// reduces a loss, for instance. So all ranks agree on what any of them uses.
std::set<Group> used_by_any(Communicator& host_world,
                            std::span<const program::Program* const> programs) {
  std::array<std::int32_t, 1 + static_cast<std::size_t>(Group::ExpertZeroReplicas)> users = {};
  for (const program::Program* program : programs)
    for (const Group group : program::groups_used(*program))
      users[static_cast<std::size_t>(group)] = 1;
  const MutableBuffer buffer{users.data(), std::ssize(users), DType::I32};
  host_world.all_reduce(buffer, buffer, ReduceOp::Max).wait();
  std::set<Group> used;
  for (std::size_t i = 0; i < users.size(); ++i)
    if (users[i] > 0) used.insert(static_cast<Group>(i));
  return used;
}

}  // namespace

Groups::Groups(Communicator& world, Communicator& host_world,
               std::span<const program::Program* const> programs)
    : world_(world),
      mesh_(program::mesh_of(programs.front()->plan)),
      coordinates_(mesh_.coordinates(world.rank())) {
  const auto create = [&](Group group, std::string_view name) {
    return world.create_group(mesh_.group(group, world.rank()), name);
  };
  for (const Group group : used_by_any(host_world, programs))
    if (group != Group::World) groups_[group] = create(group, program::name_of(group));
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
