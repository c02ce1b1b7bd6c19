// The backward pass of a layer while it is made: the gradients that its values have so far, and how
// operations are added.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/index.hpp"
#include "layer/forward_values.hpp"
#include "layer/sharded_layer.hpp"

namespace meshplan::program {

/// The gradient of a value: which buffer holds it, and how it is laid out.
struct Gradient {
  ValueId buffer = 0;
  Placement where = Placement::Replicated;
};

/// What adjoints (adjoints.hpp) read and write. A gradient must be laid out as the dual of its
/// value (the dual of a partial sum is replicated, all others are their own); finalize() sees to
/// it, so that an adjoint finds it so.
class BackwardPass {
 public:
  /// All references must outlive it.
  BackwardPass(ShardedLayer& layer, const ShardContext& context, ForwardValues& forward)
      : layer_(layer), context_(context), forward_(forward) {}

  ShardedLayer& layer() { return layer_; }
  const ShardContext& context() const { return context_; }
  const ForwardValues& forward() const { return forward_; }
  Value& value(ValueId id) { return layer_.block.values[at(id)]; }
  ValueId need(ValueId id) { return forward_.need(id); }

  /// Emits what computes the gradients of an operation's inputs.
  void emit_input_gradient(const Operation& op, const ComputeOp& work, std::vector<ValueId> inputs,
                           std::vector<ValueId> outputs);
  /// Emits the gradient of those of the parameters `weights` that are trained, from `dy` and
  /// whatever else `inputs` names: a weight, and maybe its bias.
  void emit_weight_gradient(const Operation& op, const ComputeOp& work, const Gradient& dy,
                            std::vector<ValueId> inputs, const std::vector<ValueId>& weights);

  /// A new buffer for the gradient of `of`.
  ValueId fresh_gradient(ValueId of, Placement where);
  /// A new value in the memory of another: what transforms it in place.
  ValueId same_buffer(ValueId buffer, Placement where);

  bool has_gradient(ValueId id) const { return gradients_.contains(id); }
  /// @throws InvariantError if it has none
  Gradient gradient(ValueId id) const;
  /// The gradient of what an operation made first.
  Gradient output_gradient(const Operation& op) const { return gradient(op.outputs.front()); }
  /// The buffer that already holds a part of this value's gradient, if a kernel may add to it in
  /// place: the residual stream, under a norm.
  std::optional<ValueId> own_gradient(ValueId id, Placement where) const;
  /// Two values may share one gradient buffer (both addends of a residual); it may only be added to
  /// in place when no other value still has to read it.
  bool shared(ValueId owner, ValueId buffer) const;

  /// The gradient of a value, whatever it had before.
  void set_gradient(ValueId id, Gradient gradient) { gradients_[id] = gradient; }
  /// Adds to the gradient of a value.
  void contribute(ValueId id, Gradient gradient);
  /// To be called when every consumer of `id` has contributed: lays its gradient out as the value's
  /// dual.
  void finalize(ValueId id);
  /// Nothing reads the gradient of this value any more.
  void retire(ValueId id) { retired_.insert(id); }

  bool is_trained(ValueId weight) const;
  /// A layer's input as the gradient of `weight` reads it, if there is one.
  ValueId need_for(ValueId weight, ValueId id) { return is_trained(weight) ? need(id) : id; }
  /// Where the gradient of a trained parameter, made of `dy`, goes. A replicated parameter's is a
  /// partial sum over the tp group if each rank saw only its part of dy: its tokens, or its heads.
  ValueId gradient_of_parameter(ValueId weight, const Gradient& dy);

  /// The gradient of ring attention's queries, until KeyValues puts that of the keys beside it.
  void set_ring_queries(ValueId gradient) { ring_queries_ = gradient; }
  std::optional<ValueId> ring_queries() const { return ring_queries_; }

 private:
  Gradient as_dual(ValueId id, Gradient have);

  ShardedLayer& layer_;
  const ShardContext& context_;
  ForwardValues& forward_;
  std::map<ValueId, Gradient> gradients_;
  std::set<ValueId> finalized_;
  std::set<ValueId> retired_;
  std::optional<ValueId> ring_queries_;
};

}  // namespace meshplan::program
