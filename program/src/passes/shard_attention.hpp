// Lowering of attention that is more than an operation on the heads of a rank: over the ranks of
// the cp group, and latent attention.
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

  /// Does this linear make keys and values of latent values, of which those of all cp ranks are
  /// gathered? They are narrower than what each rank makes of them for its heads.
  bool expands_latents(const models::Op& op) const;
  /// @param x  its input, of this rank    @returns of all ranks
  ValueId gather_latents(const models::Op& op, ValueId x);

 private:
  bool gathers_latents() const;
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
};

}  // namespace meshplan::program
