#include "runtime/groups.hpp"

#include <fmt/format.h>

#include "core/error.hpp"

namespace meshplan::runtime {

using program::Group;

namespace {

/// ZeRO reduces the gradients of experts that have no replica all the same: they are copied.
bool reduced_alone(Group group) {
  return group == Group::ExpertDp || group == Group::ExpertZeroShards ||
         group == Group::ExpertZeroReplicas;
}

}  // namespace

Groups::Groups(Communicator& world, const program::Mesh& mesh)
    : world_(world), mesh_(mesh), coordinates_(mesh.coordinates(world.rank())) {
  if (world.size() == 1) return;
  const auto create = [&](Group group, std::string_view name) -> std::unique_ptr<Communicator> {
    if (mesh_.group_size(group) == 1 && !reduced_alone(group)) return nullptr;
    return world.create_group(mesh_.group(group, world.rank()), name);
  };
  for (const Group group : {Group::Tp, Group::Cp, Group::DpCp, Group::TpPp, Group::Embedding,
                            Group::Ep, Group::Etp, Group::ExpertDp, Group::KvCopies})
    groups_[group] = create(group, program::name_of(group));
  if (mesh_.zero_shard_group() > 0)
    for (const Group group : {Group::ZeroShards, Group::ZeroReplicas, Group::ExpertZeroShards,
                              Group::ExpertZeroReplicas})
      groups_[group] = create(group, program::name_of(group));
  forward_ = create(Group::Pp, "pp forward");
  backward_ = create(Group::Pp, "pp backward");
}

Communicator& Groups::of(Group group) const {
  if (group == Group::World) return world_;
  const auto found = groups_.find(group);
  if (found == groups_.end() || found->second == nullptr)
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
