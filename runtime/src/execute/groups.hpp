#pragma once

#include <map>
#include <memory>
#include <span>

#include "program/plan/mesh.hpp"
#include "program/program.hpp"
#include "runtime/comm/communicator.hpp"

namespace meshplan::runtime {

/// The communicators of a rank: one per process group that the programs of any rank use, and one
/// per direction of pipeline traffic, so that activations and gradients never wait for each other's
/// order.
class Groups {
 public:
  /// Collective over `world` and over `host_world`, which has the same ranks and moves host memory;
  /// the two may be one. Ranks beyond the mesh must not call it.
  Groups(Communicator& world, Communicator& host_world,
         std::span<const program::Program* const> programs);

  /// @throws InvariantError for a group without a communicator
  Communicator& of(program::Group group) const;
  /// Is this the first rank of its group?
  bool leads(program::Group group) const;
  /// The pipeline's communicator for this lane; its ranks are the stages.
  Communicator& pipeline(program::Lane lane) const;
  const program::Mesh& mesh() const { return mesh_; }
  const program::Coordinates& coordinates() const { return coordinates_; }
  Communicator& world() const { return world_; }

 private:
  Communicator& world_;
  program::Mesh mesh_;
  program::Coordinates coordinates_;
  std::map<program::Group, std::unique_ptr<Communicator>> groups_;
  std::unique_ptr<Communicator> forward_;
  std::unique_ptr<Communicator> backward_;
};

}  // namespace meshplan::runtime
