// Which values of the forward pass the backward pass keeps, and which it computes again.
#pragma once

#include <map>
#include <vector>

#include "core/index.hpp"
#include "layer/sharded_layer.hpp"
#include "program/plan/lowering_profile.hpp"

namespace meshplan::program {

/// A layer's values as its backward pass reads them. Recomputation and gathering again are decided
/// here, as the values are asked for.
class ForwardValues {
 public:
  /// @param layer  after sharding, without backward operations; must outlive this, as `context`
  ForwardValues(ShardedLayer& layer, const ShardContext& context, const RecomputedPart& recompute,
                const LoweringProfile& profile);

  /// The value as the backward pass reads it: saved by the forward pass (it is marked so), or
  /// computed again by operations that are appended now.
  ValueId need(ValueId id);

  /// The forward operation that makes a value; null for what a layer is given.
  const Operation* producer(ValueId id) const;
  /// Reads of a value in the forward pass.
  int num_consumers(ValueId id) const { return num_consumers_[at(id)]; }

 private:
  bool is_recomputed(const Operation& op) const;
  const Operation& maker_of_buffer(const Operation& op) const;
  bool expands_latents(const Operation& op) const;
  bool counts_tokens(ValueId id) const;
  bool is_head_output(const Operation& op) const;
  ValueId recompute(const Operation& op, ValueId id);

  ShardedLayer& layer_;
  const ShardContext& context_;
  RecomputedPart recompute_;
  bool regather_sequence_;
  std::vector<int> producer_;  // of forward values: index of the operation, -1 = none
  std::vector<int> num_consumers_;
  std::map<ValueId, ValueId> recomputed_;
};

}  // namespace meshplan::program
