#include "runtime/groups.hpp"

#include <fmt/format.h>

#include "core/error.hpp"

namespace meshplan::runtime {

using program::Group;

Groups::Groups(Communicator& world, const program::Mesh& mesh)
    : world_(world), mesh_(mesh), coordinates_(mesh.coordinates(world.rank())) {
  const auto create = [&](Group group, std::string_view name) {
    return world.create_group(mesh_.group(group, world.rank()), name);
  };
  for (const Group group : {Group::Tp, Group::Cp, Group::DpCp, Group::TpPp, Group::Embedding,
                            Group::Ep, Group::Etp, Group::ExpertDp})
    groups_[group] = create(group, program::name_of(group));
  if (mesh_.kv_copies() > 1)
    groups_[Group::KvCopies] = create(Group::KvCopies, program::name_of(Group::KvCopies));
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

Communicator& Groups::pipeline(program::Lane lane) const {
  return program::carries_activations(lane) ? *forward_ : *backward_;
}

}  // namespace meshplan::runtime
