// Lowering of attention that is more than an operation on the heads of a rank: over the ranks of
// the cp group, latent attention, and attention to chosen keys.
#pragma once

#include "context/shard_context.hpp"
#include "layer/layer_builder.hpp"

namespace meshplan::program {

/// What Sharder (shard.cpp) does for them. Of latent attention the heads are sharded; the latent
/// projections and the rotated part of the keys, which all heads share, are not.
class AttentionSharder {
 public:
  /// All references must outlive it.
  AttentionSharder(const models::LayerGraph& graph, const ShardContext& context,
                   LayerBuilder& build)
      : graph_(graph),
        context_(context),
        build_(build),
        layer_(build.layer()),
        context_sharder_(context, build.layer()) {}

  /// Where cp > 1.
  void over_ranks(const models::Op& op);

  /// Rotates the queries' part of each head, and the keys' that all heads share.
  void latent_rope(const models::Op& op);
  /// An attention like any other after queries, keys and values lie side by side.
  void latent(const models::Op& op);

  /// Of an indexer's queries or keys, all of them on every rank.
  void index_rope(const models::Op& op);
  /// Which keys each query attends to, found by every rank for all tokens.
  void select_keys(const models::Op& op);
  /// Attention to the keys that select_keys() chose last, and what its indexer learns from it.
  void sparse(const models::Op& op);

  /// Does this linear make keys and values of latent values, of which those of all cp ranks are
  /// gathered? They are narrower than what each rank makes of them for its heads.
  bool expands_latents(const models::Op& op) const;
  /// @param x  its input, of this rank    @returns of all ranks
  ValueId gather_latents(const models::Op& op, ValueId x);

 private:
  /// What select_keys() worked on and made.
  struct Selection {
    ComputeOp work;
    std::vector<ValueId> indexer;  // queries, keys, weights of its heads
    ValueId choices = 0;
  };

  bool gathers_latents() const;
  void attend_to_chosen(const models::Op& op, ComputeOp work, ValueId qkv);
  void learn_choices(const models::Op& op, ValueId probabilities);
  void attend_over_ranks(const models::Op& op, const ComputeOp& attention, ValueId qkv,
                         std::optional<ValueId> sinks = std::nullopt);
  void set_results(const models::Op& op, const ContextSharder::Attended& made);
  void rotate(const std::string& name, ComputeOp work, ValueId x, models::TensorId out);
  ValueId latent_heads(const models::Op& op, const std::string& name,
                       const std::vector<ValueId>& parts);

  const models::LayerGraph& graph_;
  const ShardContext& context_;
  LayerBuilder& build_;
  ShardedLayer& layer_;
  ContextSharder context_sharder_;
  Selection selection_;
};

}  // namespace meshplan::program
