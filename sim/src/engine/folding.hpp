// Which ranks do the same at the same times, so that one of them can be played for all.
#pragma once

#include <vector>

#include "program/plan/mesh.hpp"
#include "sim/clusters/cluster.hpp"

namespace meshplan::sim {

/// The coarsest partition of the ranks in which ranks of one class are of one stage and one node
/// type, and see the same of all others: groups placed alike with as many members of each class,
/// neighbours in the pipeline of the same class at the same distance, and links and hosts shared
/// with as many of each class. (Colour refinement; the partition is equitable, so a simulation that
/// plays a rank of each class plays every rank. Paige and Tarjan 1987, "Three Partition Refinement
/// Algorithms".)
class Folding {
 public:
  /// @param groups  in which the ranks meet. @param fold  false: every rank is a class
  Folding(const program::Mesh& mesh, const Cluster& cluster,
          const std::vector<program::Group>& groups, bool fold);

  int num_classes() const { return static_cast<int>(members_.size()); }
  int class_of(int rank) const { return class_of_[static_cast<std::size_t>(rank)]; }
  /// The first rank of a class; classes are numbered in the order of these.
  int representative(int of_class) const { return members_[static_cast<std::size_t>(of_class)][0]; }
  int size(int of_class) const {
    return static_cast<int>(members_[static_cast<std::size_t>(of_class)].size());
  }
  /// Classes of a group's members, each once, ascending.
  std::vector<int> classes_of(const std::vector<int>& ranks) const;
  /// Classes in the representative's domain of `span` neighbouring ranks, one entry per rank,
  /// ascending: domains that hold the same are one and the same.
  std::vector<int> company(int of_class, int span) const;
  /// Ranks of the class inside its representative's domain of `span` ranks.
  int multiplicity(int of_class, int span) const;

 private:
  std::vector<int> class_of_;
  std::vector<std::vector<int>> members_;  // ranks of each class, ascending
};

}  // namespace meshplan::sim
