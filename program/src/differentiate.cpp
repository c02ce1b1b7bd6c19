// Derives the backward operations of a sharded layer. Which gradients are partial sums, and which
// collective completes them, follows from the placements: a gradient must be laid out as the dual
// of its value (the dual of a partial sum is replicated, all others are their own), and
// move_value() appends whatever turns the one it has into the one it must be.
#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <set>

#include "core/error.hpp"
#include "layout_moves.hpp"
#include "shard_context.hpp"
#include "sharded_layer.hpp"

namespace meshplan::program {
namespace {

using models::OpKind;
using models::Split;

std::size_t at(int id) {
  return static_cast<std::size_t>(id);
}

Placement dual(Placement where) {
  return where == Placement::Partial ? Placement::Replicated : where;
}

bool cheap_to_recompute(OpKind kind) {
  return kind == OpKind::RmsNorm || kind == OpKind::LayerNorm || kind == OpKind::Activation ||
         kind == OpKind::GatedActivation;
}

// The gradient of a value: which buffer holds it, and how it is laid out.
struct Gradient {
  ValueId buffer = 0;
  Placement where = Placement::Replicated;
};

class Differentiator {
 public:
  Differentiator(ShardedLayer& layer, const ShardContext& context, RecomputeKind recompute,
                 const ExecutionProfile& profile)
      : layer_(layer), context_(context), recompute_(recompute), profile_(profile) {
    producer_.resize(layer.block.values.size(), -1);
    consumers_.resize(layer.block.values.size(), 0);
    const auto& forward = layer.block.forward;
    for (std::size_t i = 0; i < forward.size(); ++i) {
      for (const ValueId output : forward[i].outputs) producer_[at(output)] = static_cast<int>(i);
      for (const ValueId input : forward[i].inputs) ++consumers_[at(input)];
    }
  }

  void run() {
    if (layer_.has_backward) append_backward();
    if (layer_.has_backward && layer_.needs_input_gradient && !has_frozen()) return;
    std::optional<ValueId> needed;
    if (layer_.input && layer_.needs_input_gradient) needed = take(*layer_.input).buffer;
    drop_unneeded(layer_, needed);
  }

 private:
  void append_backward() {
    if (layer_.output) {
      Value carry = value(*layer_.output);
      carry.name = "output.grad";
      carry.storage = Storage::LayerOutputGrad;
      carry.alias.reset();
      const Placement where = layer_.placement[at(*layer_.output)];
      gradients_[*layer_.output] = {layer_.add_value(std::move(carry), where), where};
    }
    // A copy: emitting recomputation appends values and backward operations, never forward ones.
    const std::vector<Operation> forward = layer_.block.forward;
    for (std::size_t i = forward.size(); i-- > 0;) {
      for (const ValueId output : forward[i].outputs) finalize(output);
      adjoint(forward[i]);
    }
    if (layer_.input && layer_.needs_input_gradient) finish_input();
  }

  Value& value(ValueId id) { return layer_.block.values[at(id)]; }

  ValueId fresh_gradient(ValueId of, Placement where) {
    Value gradient = value(of);
    gradient.name += ".grad";
    gradient.storage = Storage::Transient;
    gradient.alias.reset();
    return layer_.add_value(std::move(gradient), where);
  }

  void emit(std::string name, Phase phase, Lane lane, decltype(Operation::work) work,
            std::vector<ValueId> inputs, std::vector<ValueId> outputs) {
    layer_.block.backward.push_back({.name = std::move(name),
                                     .phase = phase,
                                     .lane = lane,
                                     .work = std::move(work),
                                     .inputs = std::move(inputs),
                                     .outputs = std::move(outputs)});
  }

  // ------------------------------------------------------------ values of the forward pass

  bool is_recomputed(const Operation& op) const {
    if (const auto* collective = std::get_if<CollectiveOp>(&op.work))
      return recompute_ == RecomputeKind::Full ||
             (profile_.regather_sequence && collective->group == Group::Tp &&
              collective->collective == Collective::AllGather) ||
             (collective->group == Group::Cp && collective->collective != Collective::AllToAll &&
              !counts_tokens(op.inputs.front()));
    const auto& compute = std::get<ComputeOp>(op.work);
    // The keys of other ranks are fetched again rather than kept.
    if (compute.kind == OpKind::KeyValues || expands_latents(op)) return true;
    if (compute.kind == OpKind::OrderChunks && !compute.reverse)
      return is_recomputed(layer_.block.forward[at(producer_[at(op.inputs.front())])]);
    return recompute_ == RecomputeKind::Full ||
           (recompute_ == RecomputeKind::Selective && cheap_to_recompute(compute.kind));
  }

  /// Makes keys and values of what was gathered from all ranks: as large as theirs.
  bool expands_latents(const Operation& op) const {
    const OpKind kind = std::get<ComputeOp>(op.work).kind;
    if (context_.cp == 1 || (kind != OpKind::Linear && kind != OpKind::LatentHeads)) return false;
    return std::ranges::any_of(op.inputs, [&](ValueId id) {
      const int index = producer_[at(id)];
      if (index < 0) return false;
      const auto* made = std::get_if<ComputeOp>(&layer_.block.forward[at(index)].work);
      return made != nullptr && made->kind == OpKind::OrderChunks && !made->reverse;
    });
  }

  /// Numbers of a router, of which there are few: cheaper kept than fetched again.
  bool counts_tokens(ValueId id) const {
    const int index = producer_[at(id)];
    if (index < 0) return false;
    const Operation& op = layer_.block.forward[at(index)];
    if (std::holds_alternative<CollectiveOp>(op.work)) return counts_tokens(op.inputs.front());
    return std::get<ComputeOp>(op.work).kind == OpKind::SequenceLoad;
  }

  /// The value as the backward pass reads it: saved by the forward pass, or computed again here.
  ValueId need(ValueId id) {
    if (const auto found = recomputed_.find(id); found != recomputed_.end()) return found->second;
    const ValueId root = layer_.root(id);
    if (value(root).storage != Storage::Transient) return id;
    const int index = producer_[at(id)];
    require_invariant(index >= 0, "a transient value without a producer");
    const Operation op = layer_.block.forward[at(index)];
    // The head's logits become their own gradient, so they are kept rather than made twice.
    if (!is_recomputed(op) || is_head_output(op)) {
      value(root).storage = Storage::Saved;
      return id;
    }
    Operation again = op;
    again.phase = Phase::Recompute;
    for (ValueId& input : again.inputs) input = need(input);
    for (ValueId& output : again.outputs) {
      Value copy = value(output);
      if (copy.alias) copy.alias = recomputed_.at(*copy.alias);
      copy.storage = Storage::Transient;
      copy.name += ".again";
      const ValueId made = layer_.add_value(std::move(copy), layer_.placement[at(output)]);
      recomputed_[output] = made;
      output = made;
    }
    layer_.block.backward.push_back(std::move(again));
    return recomputed_.at(id);
  }

  bool is_head_output(const Operation& op) const {
    if (!layer_.logits) return false;
    const auto* compute = std::get_if<ComputeOp>(&op.work);
    return op.outputs.front() == *layer_.logits ||
           (compute != nullptr && compute->kind == OpKind::CrossEntropyCombine);
  }

  // ------------------------------------------------------------ gradients

  Gradient take(ValueId id) {
    const auto found = gradients_.find(id);
    require_invariant(found != gradients_.end(), value(id).name + " has no gradient");
    return found->second;
  }

  /// Two values may share one gradient buffer (both addends of a residual); it may only be added to
  /// in place when no other value still has to read it.
  bool shared(ValueId owner, ValueId buffer) const {
    return std::ranges::any_of(gradients_, [&](const auto& entry) {
      return entry.first != owner && !done_.contains(entry.first) &&
             layer_.root(entry.second.buffer) == layer_.root(buffer);
    });
  }

  void contribute(ValueId id, Gradient gradient) {
    const auto found = gradients_.find(id);
    if (found == gradients_.end()) {
      gradients_[id] = gradient;
      return;
    }
    // Two partial sums are summed over the group once, as one.
    if (gradient.where != found->second.where) {
      found->second = convert(id, found->second);
      gradient = convert(id, gradient);
    }
    const ComputeOp add{.kind = OpKind::Accumulate,
                        .tokens_sharded = found->second.where == Placement::TokensSharded};
    ValueId target = found->second.buffer;
    ValueId other = gradient.buffer;
    if (shared(id, target)) std::swap(target, other);
    require_invariant(!shared(id, target), "both gradients of " + value(id).name + " are shared");
    emit(value(id).name + ".grad.add", Phase::InputGrad, Lane::Compute, add, {target, other},
         {target});
    found->second.buffer = target;
  }

  /// Laid out as the dual of the value that it is the gradient of.
  Gradient convert(ValueId id, Gradient have) {
    const Placement want = dual(layer_.placement[at(id)]);
    const MoveTarget target{.backward = true,
                            .phase = Phase::InputGrad,
                            .tp = context_.tp,
                            .name = value(id).name + ".grad"};
    return {move_value(layer_, target, have.buffer, have.where, want, layer_.columns[at(id)]),
            want};
  }

  /// Called when every consumer of `id` has contributed: lays the gradient out as the value's dual.
  void finalize(ValueId id) {
    const auto found = gradients_.find(id);
    if (found == gradients_.end() || !finalized_.insert(id).second) return;
    const int made_by = producer_[at(id)];
    // A move changes no number, so the gradient moves on to what the value was made from.
    if (made_by >= 0 && only_moves(layer_.block.forward[at(made_by)])) {
      done_.insert(id);
      const ValueId from = layer_.block.forward[at(made_by)].inputs.front();
      contribute(from, found->second);
      if (consumers_[at(from)] == 1) finalize(from);
      return;
    }
    // Sums over tp and moves over cp change places: the smaller part is summed, after the move.
    if (found->second.where == Placement::Partial && made_by >= 0 &&
        moves_over_context(layer_.block.forward[at(made_by)]))
      return;
    found->second = convert(id, found->second);
  }

  static bool moves_over_context(const Operation& op) {
    if (const auto* collective = std::get_if<CollectiveOp>(&op.work))
      return collective->group == Group::Cp;
    return std::get<ComputeOp>(op.work).kind == OpKind::OrderChunks;
  }

  /// The gradient of what this operation made.
  Gradient output_gradient(const Operation& op) { return take(op.outputs.front()); }

  void adjoint(const Operation& op) {
    if (only_moves(op)) return;  // done in finalize
    if (std::holds_alternative<CollectiveOp>(op.work)) return exchange_adjoint(op);
    const auto& work = std::get<ComputeOp>(op.work);
    switch (work.kind) {
      case OpKind::SumLoss:
      case OpKind::CrossEntropyCombine:
        break;
      case OpKind::CrossEntropyLocal:
        loss_adjoint(op);
        break;
      case OpKind::Add:
        add_adjoint(op);
        break;
      case OpKind::BiasAdd:
        bias_adjoint(op);
        break;
      case OpKind::Linear:
        linear_adjoint(op, work);
        break;
      case OpKind::Embedding:
      case OpKind::PositionEmbedding:
        embedding_adjoint(op, work);
        break;
      case OpKind::Rope:
      case OpKind::Scale:
        in_place_adjoint(op, work);
        break;
      case OpKind::RmsNorm:
      case OpKind::LayerNorm:
        norm_adjoint(op, work);
        break;
      case OpKind::HeadRmsNorm:
        head_norm_adjoint(op, work);
        break;
      case OpKind::Attention:
        if (!work.ring_step) attention_adjoint(op, work);
        break;  // a ring's is appended as a whole, where its result is made
      case OpKind::MergeAttention:
      case OpKind::Convert:
        if (gradients_.contains(op.outputs.front())) ring_adjoint(op);
        break;
      case OpKind::Activation:
      case OpKind::GatedActivation:
        activation_adjoint(op, work);
        break;
      case OpKind::KeyValues:
        key_values_adjoint(op, work);
        break;
      case OpKind::OrderChunks:
      case OpKind::PackColumns:
      case OpKind::UnpackColumns:
        exchange_copy_adjoint(op, work);
        break;
      case OpKind::Router:
        router_adjoint(op, work);
        break;
      case OpKind::Slice:
        slice_adjoint(op, work);
        break;
      case OpKind::LatentHeads:
        latent_heads_adjoint(op, work);
        break;
      case OpKind::SigmoidGate:
        gate_adjoint(op, work);
        break;
      case OpKind::RouterLosses:
        break;  // part of the router's
      case OpKind::RouterLoad:
      case OpKind::SequenceLoad:
      case OpKind::LimitChoices:
      case OpKind::DispatchPlan:
      case OpKind::ExchangeSizes:
        break;  // integers
      case OpKind::Dispatch:
        dispatch_adjoint(op, work);
        break;
      case OpKind::RegroupRows:
        regroup_adjoint(op, work);
        break;
      case OpKind::GroupedLinear:
        grouped_linear_adjoint(op, work);
        break;
      case OpKind::Combine:
        combine_adjoint(op, work);
        break;
      default:
        throw InvariantError(op.name + ": no adjoint");
    }
    for (const ValueId output : op.outputs) done_.insert(output);
  }

  void loss_adjoint(const Operation& op) {
    const ValueId logits = op.inputs[0];
    const ValueId targets = op.inputs[1];
    const auto combine = std::ranges::find_if(layer_.block.forward, [](const Operation& other) {
      const auto* compute = std::get_if<ComputeOp>(&other.work);
      return compute != nullptr && compute->kind == OpKind::CrossEntropyCombine;
    });
    const ValueId lse = need(combine->outputs[1]);
    Value gradient = value(logits);
    gradient.name += ".grad";
    gradient.alias = need(logits);  // in place: logits are never stored twice
    const Placement where = layer_.placement[at(logits)];
    const ValueId made = layer_.add_value(std::move(gradient), where);
    ComputeOp work = std::get<ComputeOp>(op.work);
    work.kind = OpKind::CrossEntropy;
    emit("loss.input_grad", Phase::InputGrad, Lane::Compute, work, {need(logits), targets, lse},
         {made});
    gradients_[logits] = {made, where};
  }

  void add_adjoint(const Operation& op) {
    const Gradient dy = output_gradient(op);
    done_.insert(op.outputs.front());
    for (const ValueId input : op.inputs) contribute(input, dy);
  }

  void bias_adjoint(const Operation& op) {
    const Gradient dy = output_gradient(op);
    weight_gradient(op, std::get<ComputeOp>(op.work), dy, {dy.buffer}, {op.inputs[1]});
    done_.insert(op.outputs.front());
    contribute(op.inputs[0], dy);
  }

  bool is_trained(ValueId weight) { return !layer_.parameters[at(value(weight).index)].frozen(); }
  bool has_frozen() const {
    return std::ranges::any_of(layer_.parameters, &LayerParameter::frozen);
  }

  /// Emits the gradient of those of the parameters `weights` that are trained, from `dy` and
  /// whatever else `inputs` names: a weight, and maybe its bias.
  void weight_gradient(const Operation& op, const ComputeOp& work, const Gradient& dy,
                       std::vector<ValueId> inputs, const std::vector<ValueId>& weights) {
    std::vector<ValueId> outputs;
    for (const ValueId weight : weights)
      if (is_trained(weight)) outputs.push_back(gradient_of_parameter(weight, dy));
    if (outputs.empty()) return;
    const std::string name = op.name + ".weight_grad";
    if (is_trained(weights.front()))
      return emit(name, Phase::WeightGrad, Lane::Compute, work, std::move(inputs), outputs);
    // A bias alone: the sum of dy.
    const ComputeOp sum{.kind = OpKind::BiasAdd,
                        .tokens_sharded = layer_.tokens_sharded(inputs.front())};
    emit(name, Phase::WeightGrad, Lane::Compute, sum, {inputs.front()}, outputs);
  }

  /// A layer's input as the gradient of `weight` reads it, if there is one.
  ValueId need_for(ValueId weight, ValueId id) { return is_trained(weight) ? need(id) : id; }

  /// A replicated parameter's gradient is a partial sum over the tp group if each rank saw only its
  /// part of dy: its tokens, or its heads.
  ValueId gradient_of_parameter(ValueId weight, const Gradient& dy) {
    LayerParameter& parameter = layer_.parameters[at(value(weight).index)];
    if (!parameter.parameter.expert && parameter.parameter.shard_dim < 0 &&
        dy.where != Placement::Replicated)
      parameter.parameter.tp_partial = true;
    return parameter.gradient;
  }

  void linear_adjoint(const Operation& op, const ComputeOp& work) {
    const Gradient dy = output_gradient(op);
    const ValueId x = op.inputs[0];
    // First: an all-gather of x can run under the input gradient.
    const ValueId x_again = need_for(op.inputs[1], x);
    const bool contracts_sharded =
        context_.tp > 1 && (work.split == Split::Column || work.split == Split::Vocab);
    const Placement where = contracts_sharded ? Placement::Partial : layer_.placement[at(x)];
    const ValueId dx = fresh_gradient(x, where);
    emit(op.name + ".input_grad", Phase::InputGrad, Lane::Compute, work, {dy.buffer, op.inputs[1]},
         {dx});
    contribute(x, {dx, where});
    if (consumers_[at(x)] == 1) finalize(x);  // its reduction runs under the weight gradient
    const std::vector<ValueId> weights(op.inputs.begin() + 1, op.inputs.end());
    weight_gradient(op, work, dy, {dy.buffer, x_again}, weights);
  }

  void embedding_adjoint(const Operation& op, const ComputeOp& work) {
    const Gradient dy = output_gradient(op);
    const bool positions = work.kind == OpKind::PositionEmbedding;
    const ValueId source = op.inputs[0];
    std::vector<ValueId> inputs = {dy.buffer};
    if (!positions) inputs.push_back(source);
    if (work.documents && positions) inputs.push_back(op.inputs.back());
    weight_gradient(op, work, dy, std::move(inputs), {op.inputs[1]});
    done_.insert(op.outputs.front());
    if (positions) contribute(source, dy);
  }

  /// Rotations and scales: the gradient is transformed where it lies.
  void in_place_adjoint(const Operation& op, const ComputeOp& work) {
    const Gradient dy = output_gradient(op);
    done_.insert(op.outputs.front());
    require_invariant(!shared(op.outputs.front(), dy.buffer), op.name + ": gradient is shared");
    Value turned = value(dy.buffer);
    turned.alias = dy.buffer;
    const ValueId dx = layer_.add_value(std::move(turned), dy.where);
    std::vector<ValueId> inputs = {dy.buffer};
    inputs.insert(inputs.end(), op.inputs.begin() + 1, op.inputs.end());  // positions
    emit(op.name + ".input_grad", Phase::InputGrad, Lane::Compute, work, std::move(inputs), {dx});
    contribute(op.inputs[0], {dx, dy.where});
  }

  void norm_adjoint(const Operation& op, const ComputeOp& work) {
    const Gradient dy = output_gradient(op);
    const ValueId x = op.inputs[0];
    const bool layer_norm = work.kind == OpKind::LayerNorm;
    std::vector<ValueId> inputs = {dy.buffer, need(x), op.inputs[1]};
    for (std::size_t i = 1; i < op.outputs.size(); ++i) inputs.push_back(need(op.outputs[i]));
    const std::optional<ValueId> residual = own_gradient(x, dy.where);
    if (residual) inputs.push_back(*residual);
    const ValueId dx = residual ? *residual : fresh_gradient(x, dy.where);
    std::vector<ValueId> outputs = {dx};
    for (std::size_t i = 1; i <= (layer_norm ? 2U : 1U); ++i)
      if (is_trained(op.inputs[i])) outputs.push_back(gradient_of_parameter(op.inputs[i], dy));
    emit(op.name + ".grad", Phase::InputGrad, Lane::Compute, work, std::move(inputs),
         std::move(outputs));
    if (!residual) contribute(x, {dx, dy.where});
  }

  /// Norms of heads: the gradient is transformed where it lies; of the values it stays as it is.
  void head_norm_adjoint(const Operation& op, const ComputeOp& work) {
    const Gradient dy = output_gradient(op);
    done_.insert(op.outputs.front());
    require_invariant(!shared(op.outputs.front(), dy.buffer), op.name + ": gradient is shared");
    const std::vector<ValueId> inputs = {dy.buffer, need(op.inputs[0]), op.inputs[1], op.inputs[2],
                                         need(op.outputs[1])};
    Value normed = value(dy.buffer);
    normed.alias = dy.buffer;
    const ValueId dx = layer_.add_value(std::move(normed), dy.where);
    std::vector<ValueId> outputs = {dx};
    for (const ValueId weight : {op.inputs[1], op.inputs[2]})
      if (is_trained(weight)) outputs.push_back(gradient_of_parameter(weight, dy));
    emit(op.name + ".grad", Phase::InputGrad, Lane::Compute, work, inputs, std::move(outputs));
    contribute(op.inputs[0], {dx, dy.where});
  }

  /// The buffer that already holds a part of this value's gradient, if a kernel may add to it in
  /// place: the residual stream, under a norm.
  std::optional<ValueId> own_gradient(ValueId id, Placement where) const {
    const auto found = gradients_.find(id);
    const bool usable = found != gradients_.end() && found->second.where == where &&
                        !shared(id, found->second.buffer);
    return usable ? std::optional(found->second.buffer) : std::nullopt;
  }

  void attention_adjoint(const Operation& op, const ComputeOp& work) {
    const Gradient dy = output_gradient(op);
    const ValueId qkv = op.inputs[0];
    std::vector<ValueId> inputs = {dy.buffer, need(qkv), need(op.outputs[0]), need(op.outputs[1])};
    std::vector<ValueId> outputs = {fresh_gradient(qkv, dy.where)};
    const bool gathered = op.inputs.size() > (work.documents ? 2 : 1);
    if (gathered) {  // gathered keys: theirs, and what the first chunk adds to it
      const ValueId kv = op.inputs[1];
      inputs.push_back(need(kv));
      outputs.push_back(fresh_gradient(kv, dy.where));
    }
    if (gathered && !work.documents) {
      outputs.push_back(fresh_gradient(op.inputs[1], dy.where));
      value(outputs.back()).name += ".first_chunk";
      value(outputs.back()).shape.front().divisor *= 2;
    }
    if (work.documents) inputs.push_back(op.inputs.back());
    emit(op.name + ".input_grad", Phase::InputGrad, Lane::Compute, work, std::move(inputs),
         outputs);
    if (gathered) contribute(op.inputs[1], {outputs[1], dy.where});
    contribute(qkv, {outputs[0], dy.where});
  }

  // ------------------------------------------------------------ context parallelism

  /// @param op  the last one of a ring, which makes its o
  void ring_adjoint(const Operation& op) {
    const Gradient dy = output_gradient(op);
    const auto step = [&](OpKind kind, int number) -> const Operation& {
      return *std::ranges::find_if(layer_.block.forward, [&](const Operation& other) {
        const auto* compute = std::get_if<ComputeOp>(&other.work);
        return compute != nullptr && compute->kind == kind && compute->ring_step == number;
      });
    };
    const Operation attention = step(OpKind::Attention, 0);
    const ValueId lse = step(OpKind::MergeAttention, context_.cp - 1).outputs[1];
    const ValueId kv = attention.inputs[1];
    const std::string name = attention.name.substr(0, attention.name.rfind('.'));
    RingOperands operands{.dy = dy.buffer,
                          .qkv = need(attention.inputs[0]),
                          .o = need(op.outputs[0]),
                          .lse = need(lse),
                          .kv = need(kv)};
    if (std::get<ComputeOp>(attention.work).documents)
      for (int number = 0; number < context_.cp; ++number)
        operands.key_ranges.push_back(step(OpKind::Attention, number).inputs.back());
    const RingGradients made = append_ring_gradient(layer_, context_.cp, name, operands,
                                                    std::get<ComputeOp>(attention.work));
    ring_queries_ = made.queries;
    contribute(kv, {made.keys_values, dy.where});
  }

  /// Writes the gradient of keys and values beside that of the queries, which Attention has made;
  /// that of a ring's queries is still apart.
  void key_values_adjoint(const Operation& op, const ComputeOp& work) {
    const Gradient dkv = output_gradient(op);
    const ValueId qkv = op.inputs[0];
    if (ring_queries_) {
      const ValueId dqkv = fresh_gradient(qkv, dkv.where);
      emit(op.name + ".input_grad", Phase::InputGrad, Lane::Compute, work,
           {dkv.buffer, *ring_queries_}, {dqkv});
      return contribute(qkv, {dqkv, dkv.where});
    }
    const auto found = gradients_.find(qkv);
    require_invariant(found != gradients_.end(), op.name + ": the queries have no gradient");
    Value whole = value(found->second.buffer);
    whole.alias = found->second.buffer;
    const ValueId dqkv = layer_.add_value(std::move(whole), dkv.where);
    emit(op.name + ".input_grad", Phase::InputGrad, Lane::Compute, work,
         {dkv.buffer, found->second.buffer}, {dqkv});
    found->second.buffer = dqkv;
  }

  /// Copies beside an exchange over cp: the adjoint of a permutation is its inverse.
  void exchange_copy_adjoint(const Operation& op, ComputeOp work) {
    const Gradient dy = output_gradient(op);
    const ValueId dx = fresh_gradient(op.inputs[0], dy.where);
    work.reverse = work.kind == OpKind::OrderChunks && !work.reverse;
    if (work.kind == OpKind::PackColumns)
      work.kind = OpKind::UnpackColumns;
    else if (work.kind == OpKind::UnpackColumns)
      work.kind = OpKind::PackColumns;
    std::vector<ValueId> inputs = {dy.buffer};
    inputs.insert(inputs.end(), op.inputs.begin() + 1, op.inputs.end());  // order of documents
    emit(op.name + ".input_grad", Phase::InputGrad, Lane::Compute, work, std::move(inputs), {dx});
    contribute(op.inputs[0], {dx, dy.where});
  }

  void slice_adjoint(const Operation& op, const ComputeOp& work) {
    const Gradient first = take(op.outputs[0]);
    const Gradient second = take(op.outputs[1]);
    require_invariant(first.where == second.where, op.name + ": parts laid out differently");
    const ValueId dx = fresh_gradient(op.inputs[0], first.where);
    emit(op.name + ".input_grad", Phase::InputGrad, Lane::Compute, work,
         {first.buffer, second.buffer}, {dx});
    contribute(op.inputs[0], {dx, first.where});
  }

  /// Every rank adds what its own heads give to the part of the keys that all heads share.
  void latent_heads_adjoint(const Operation& op, const ComputeOp& work) {
    const Gradient dy = output_gradient(op);
    const Placement of_shared =
        dy.where == Placement::FeaturesSharded ? Placement::Partial : dy.where;
    std::vector<ValueId> gradients;  // of the queries, if they are beside; keys and values; shared
    for (const ValueId input : op.inputs)
      gradients.push_back(fresh_gradient(input, input == op.inputs.back() ? of_shared : dy.where));
    emit(op.name + ".input_grad", Phase::InputGrad, Lane::Compute, work, {dy.buffer}, gradients);
    for (std::size_t i = 0; i < gradients.size(); ++i)
      contribute(op.inputs[i], {gradients[i], layer_.placement[at(gradients[i])]});
  }

  void gate_adjoint(const Operation& op, const ComputeOp& work) {
    const Gradient dy = output_gradient(op);
    const ValueId dx = fresh_gradient(op.inputs[0], dy.where);
    const ValueId dgate = fresh_gradient(op.inputs[1], dy.where);
    emit(op.name + ".input_grad", Phase::InputGrad, Lane::Compute, work,
         {dy.buffer, need(op.inputs[0]), need(op.inputs[1])}, {dx, dgate});
    contribute(op.inputs[0], {dx, dy.where});
    contribute(op.inputs[1], {dgate, dy.where});
  }

  void activation_adjoint(const Operation& op, const ComputeOp& work) {
    const Gradient dy = output_gradient(op);
    const ValueId x = op.inputs[0];
    const ValueId dx = fresh_gradient(x, dy.where);
    std::vector<ValueId> inputs = {dy.buffer, need(x)};
    for (std::size_t i = 1; i < op.inputs.size(); ++i) inputs.push_back(need(op.inputs[i]));
    emit(op.name + ".input_grad", Phase::InputGrad, Lane::Compute, work, std::move(inputs), {dx});
    contribute(x, {dx, dy.where});
  }

  // ------------------------------------------------------------ experts

  /// Collectives of the expert grid: rows and gathered tokens go back the way they came.
  void exchange_adjoint(const Operation& op) {
    const ValueId x = op.inputs.front();
    if (!gradients_.contains(op.outputs.front())) return;  // counts and choices have none
    const Gradient dy = output_gradient(op);
    auto work = std::get<CollectiveOp>(op.work);
    if (work.collective == Collective::AllGather)
      work.collective = Collective::ReduceScatter;
    else if (work.collective == Collective::ReduceScatter)
      work.collective = Collective::AllGather;
    work.reverse = !work.reverse;
    work.elements = element_count(value(dy.buffer).shape);
    const Placement where = work.group == Group::Cp ? dy.where : layer_.placement[at(x)];
    const ValueId dx = fresh_gradient(x, where);
    std::vector<ValueId> inputs = {dy.buffer};
    for (std::size_t i = 1; i < op.inputs.size(); ++i) inputs.push_back(need(op.inputs[i]));
    emit(op.name + ".input_grad", Phase::InputGrad, op.lane, work, std::move(inputs), {dx});
    for (const ValueId output : op.outputs) done_.insert(output);
    contribute(x, {dx, where});
  }

  void router_adjoint(const Operation& op, const ComputeOp& work) {
    const Gradient dy = output_gradient(op);
    const ValueId x = op.inputs[0];
    const ValueId dlogits = fresh_gradient(op.outputs[2], dy.where);
    value(dlogits).dtype = context_.compute;
    const ValueId dx = fresh_gradient(x, dy.where);
    std::vector<ValueId> inputs = {dy.buffer, need(op.outputs[1]), need(op.outputs[2]),
                                   op.inputs[1]};
    // What the losses of the router read besides its scores.
    for (const Operation& other : layer_.block.forward) {
      const auto* losses = std::get_if<ComputeOp>(&other.work);
      if (losses == nullptr || losses->kind != OpKind::RouterLosses) continue;
      for (std::size_t i = 1; i < other.inputs.size(); ++i) inputs.push_back(need(other.inputs[i]));
    }
    emit(op.name + ".input_grad", Phase::InputGrad, Lane::Compute, work, std::move(inputs),
         {dlogits, dx});
    contribute(x, {dx, dy.where});
    std::vector<ValueId> weights = {op.inputs[1]};
    if (work.attributes.router.bias) weights.push_back(op.inputs[2]);
    weight_gradient(op, work, dy, {dlogits, need_for(op.inputs[1], x)}, weights);
  }

  void dispatch_adjoint(const Operation& op, const ComputeOp& work) {
    const Gradient dy = output_gradient(op);
    const ValueId x = op.inputs[0];
    const ValueId row_of_choice =
        layer_.block.forward[at(producer_[at(op.inputs[1])])].outputs.front();
    const ValueId dx = fresh_gradient(x, dy.where);
    emit(op.name + ".input_grad", Phase::InputGrad, Lane::Compute, work,
         {dy.buffer, need(row_of_choice)}, {dx});
    contribute(x, {dx, dy.where});
  }

  void regroup_adjoint(const Operation& op, ComputeOp work) {
    const Gradient dy = output_gradient(op);
    const ValueId dx = fresh_gradient(op.inputs[0], dy.where);
    work.reverse = !work.reverse;
    emit(op.name + ".input_grad", Phase::InputGrad, Lane::Compute, work,
         {dy.buffer, need(op.inputs[1])}, {dx});
    contribute(op.inputs[0], {dx, dy.where});
  }

  void grouped_linear_adjoint(const Operation& op, const ComputeOp& work) {
    const Gradient dy = output_gradient(op);
    const ValueId x = op.inputs[0];
    const ValueId x_again = need_for(op.inputs[1], x);
    const ValueId offsets = need(op.inputs[2]);
    const ValueId dx = fresh_gradient(x, dy.where);
    emit(op.name + ".input_grad", Phase::InputGrad, Lane::Compute, work,
         {dy.buffer, op.inputs[1], offsets}, {dx});
    contribute(x, {dx, dy.where});
    weight_gradient(op, work, dy, {dy.buffer, x_again, offsets}, {op.inputs[1]});
  }

  void combine_adjoint(const Operation& op, const ComputeOp& work) {
    const Gradient dy = output_gradient(op);
    const ValueId rows = op.inputs[0];
    const ValueId probabilities = op.inputs[1];
    const ValueId drows = fresh_gradient(rows, dy.where);
    const ValueId dprobabilities = fresh_gradient(probabilities, dy.where);
    emit(op.name + ".input_grad", Phase::InputGrad, Lane::Compute, work,
         {dy.buffer, need(rows), need(probabilities), need(op.inputs[2])}, {drows, dprobabilities});
    contribute(rows, {drows, dy.where});
    contribute(probabilities, {dprobabilities, dy.where});
  }

  /// The input's gradient must end in the stream that the layers of a task pass on. A residual
  /// stream is already there: its gradient was added to in place.
  void finish_input() {
    finalize(*layer_.input);
    const ValueId root = layer_.root(take(*layer_.input).buffer);
    if (value(root).storage == Storage::LayerOutputGrad) return;
    require_invariant(!layer_.output, "a layer without a residual stream has no lowering");
    value(root).storage = Storage::LayerInputGrad;
  }

  ShardedLayer& layer_;
  ShardContext context_;
  RecomputeKind recompute_;
  ExecutionProfile profile_;
  std::vector<int> producer_;  // of forward values: index of the operation, -1 = none
  std::vector<int> consumers_;
  std::map<ValueId, Gradient> gradients_;
  std::map<ValueId, ValueId> recomputed_;
  std::set<ValueId> finalized_;
  std::optional<ValueId> ring_queries_;  // gradient of a ring's queries
  std::set<ValueId> done_;               // values whose gradient nothing reads any more
};

}  // namespace

void differentiate(ShardedLayer& layer, const ShardContext& context, RecomputeKind recompute,
                   const ExecutionProfile& profile) {
  Differentiator(layer, context, recompute, profile).run();
}

}  // namespace meshplan::program
