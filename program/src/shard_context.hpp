// Lowering of attention where a sequence lies on several ranks: what Sharder (shard.cpp) does for
// Attention when cp > 1.
#pragma once

#include "sharded_layer.hpp"

namespace meshplan::program {

/// Emits attention over the cp group, whose ranks hold the tokens of each sequence in zig-zag
/// (context.hpp). Everything else in a layer works on tokens one by one, and knows no cp. All moves
/// are operations on Lane::Cp; their adjoints are the moves back (differentiate.cpp).
class ContextSharder {
 public:
  /// All references must outlive it.
  ContextSharder(const ShardContext& context, ShardedLayer& layer)
      : context_(context), layer_(layer) {}

  /// @param attention  with the heads of this tp rank
  /// @param qkv  (T, (H + 2K) E) of the rank's tokens, rotated
  /// @param o    (T, H E), to be written
  /// @returns lse of the queries that this rank has attended for
  ValueId attend(const std::string& name, const ComputeOp& attention, ValueId qkv, ValueId o);

 private:
  ValueId attend_gathered(const std::string& name, const ComputeOp& attention, ValueId qkv,
                          ValueId o);
  ValueId attend_by_heads(const std::string& name, ComputeOp attention, ValueId qkv, ValueId o);

  ValueId add(std::string name, ValueId like, std::vector<models::Dim> shape);
  ValueId add_lse(const std::string& name, ValueId like, models::Dim tokens, int heads);
  void emit(std::string name, Lane lane, decltype(Operation::work) work,
            std::vector<ValueId> inputs, std::vector<ValueId> outputs);
  ValueId keys_values(const std::string& name, const ComputeOp& attention, ValueId qkv);
  ValueId communicated(const std::string& name, Collective collective, ValueId from,
                       std::vector<models::Dim> shape);
  ValueId to_heads(const std::string& name, ValueId qkv, const std::vector<ShardSection>& columns);
  void to_tokens(const std::string& name, ValueId o_heads, ValueId o);
  models::Dim tokens(ValueId id) const;
  /// Of the whole sequences.
  models::Dim all_tokens(ValueId id) const;

  const ShardContext& context_;
  ShardedLayer& layer_;
};

}  // namespace meshplan::program
