// Lowering of attention where a sequence lies on several ranks: what AttentionSharder does for
// Attention when cp > 1.
#pragma once

#include "layer/sharded_layer.hpp"

namespace meshplan::program {

/// Columns of queries, keys and values, whose heads may have another size (latent attention).
struct AttentionWidths {
  std::int64_t q = 0;
  std::int64_t k = 0;
  std::int64_t v = 0;
  std::int64_t o = 0;
};
AttentionWidths widths_of(const ComputeOp& attention);

/// Emits attention over the cp group, whose ranks hold the tokens of each sequence in zig-zag
/// (context.hpp), or, of packed documents, as document_context.hpp divides them. Everything else in
/// a layer works on tokens one by one, and knows no cp. All moves are operations on Lane::Cp; their
/// adjoints are the moves back (adjoints_exchanges.cpp).
class ContextSharder {
 public:
  /// All references must outlive it.
  ContextSharder(const ShardContext& context, ShardedLayer& layer)
      : context_(context), layer_(layer) {}

  struct Attending {
    ValueId qkv = 0;               // (T, (H + 2K) E) of the rank's tokens, rotated
    std::optional<ValueId> sinks;  // (H): they join each softmax once, whatever its keys lie on
  };
  /// @param attention  with the heads of this tp rank
  /// @param o  (T, H Ev), to be written
  /// @returns o as it is in the end, and lse of the queries that this rank has attended for
  struct Attended {
    ValueId o = 0;
    ValueId lse = 0;
  };
  Attended attend(const std::string& name, ComputeOp attention, const Attending& from, ValueId o);

  /// The rows of whole sequences, in their order, out of those of all ranks: (T, n) -> (cp T, n).
  ValueId gather(const std::string& name, ValueId rows);
  /// Own queries, alone or at the head of own keys and values, against `keys_values` of whole
  /// sequences.
  Attended attend_to_all(const std::string& name, ComputeOp attention, const Attending& queries,
                         ValueId keys_values, ValueId o);

 private:
  Attended attend_gathered(const std::string& name, const ComputeOp& attention,
                           const Attending& from, ValueId o);
  Attended attend_in_ring(const std::string& name, ComputeOp attention, const Attending& from,
                          ValueId o);
  Attended attend_by_heads(const std::string& name, ComputeOp attention, const Attending& from,
                           ValueId o);

  ValueId add(std::string name, ValueId like, std::vector<models::Dim> shape);
  ValueId add_lse(const std::string& name, ValueId like, models::Dim tokens, int heads);
  void emit(std::string name, Lane lane, decltype(Operation::work) work,
            std::vector<ValueId> inputs, std::vector<ValueId> outputs);
  Attended merge(const std::string& name, const ComputeOp& attention, Attended part, Attended sum);
  ValueId converted(const std::string& name, ValueId from, DType dtype);
  ValueId alias_of(ValueId id);
  ValueId keys_values(const std::string& name, const ComputeOp& attention, ValueId qkv);
  ValueId communicated(const std::string& name, Collective collective, ValueId from,
                       std::vector<models::Dim> shape);
  ValueId to_heads(const std::string& name, ValueId qkv, const std::vector<ShardSection>& columns);
  void to_tokens(const std::string& name, ValueId o_heads, ValueId o);
  void order(std::string name, ValueId from, ValueId to, bool reverse = false);
  ValueId key_ranges(models::Dim queries, int step = 0);
  models::Dim tokens(ValueId id) const;
  /// Tokens of the whole sequences.
  models::Dim all_tokens(ValueId id) const;

  const ShardContext& context_;
  ShardedLayer& layer_;
};

}  // namespace meshplan::program
