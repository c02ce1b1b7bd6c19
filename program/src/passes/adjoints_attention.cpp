// Adjoints of attention, of its latent form, and of its steps over the cp group.
#include <algorithm>

#include "context/ring_gradient.hpp"
#include "core/index.hpp"
#include "passes/adjoints.hpp"
#include "program/attention_inputs.hpp"

namespace meshplan::program {
namespace {

/// What attention made over all keys, and its gradient: the sinks' gradient reads them.
struct Attended {
  Gradient dy;
  ValueId o = 0;
  ValueId lse = 0;
};

void sinks_adjoint(BackwardPass& pass, const Operation& op, const Attended& attended,
                   std::optional<ValueId> sinks) {
  if (!sinks) return;
  ComputeOp work = std::get<ComputeOp>(op.work);
  work.ring_step.reset();
  work.documents = false;
  pass.emit_weight_gradient(op, work, attended.dy,
                            {attended.dy.buffer, attended.o, attended.lse, *sinks}, {*sinks});
}

}  // namespace

void attention_adjoint(BackwardPass& pass, const Operation& op, const ComputeOp& work) {
  const Gradient dy = pass.output_gradient(op);
  const ValueId qkv = op.inputs[0];
  std::vector<ValueId> inputs = {dy.buffer, pass.need(qkv), pass.need(op.outputs[0]),
                                 pass.need(op.outputs[1])};
  std::vector<ValueId> outputs = {pass.fresh_gradient(qkv, dy.where)};
  const AttentionInputs more = attention_inputs(pass.layer().block.values, op);
  const bool gathered = more.keys_values.has_value();
  if (gathered) {  // gathered keys: theirs, and what the first chunk adds to it
    const ValueId kv = *more.keys_values;
    inputs.push_back(pass.need(kv));
    outputs.push_back(pass.fresh_gradient(kv, dy.where));
  }
  if (gathered && !work.documents) {
    outputs.push_back(pass.fresh_gradient(*more.keys_values, dy.where));
    pass.value(outputs.back()).name += ".first_chunk";
    pass.value(outputs.back()).shape.front().divisor *= 2;
  }
  if (more.key_ranges) inputs.push_back(*more.key_ranges);
  const Attended attended{.dy = dy, .o = inputs[2], .lse = inputs[3]};
  pass.emit_input_gradient(op, work, std::move(inputs), outputs);
  if (gathered) pass.contribute(*more.keys_values, {outputs[1], dy.where});
  pass.contribute(qkv, {outputs[0], dy.where});
  sinks_adjoint(pass, op, attended, more.sinks);
}

void sparse_attention_adjoint(BackwardPass& pass, const Operation& op, const ComputeOp& work) {
  const Gradient dy = pass.output_gradient(op);
  const ValueId qkv = op.inputs[0];
  const ValueId dqkv = pass.fresh_gradient(qkv, dy.where);
  pass.emit_input_gradient(op, work,
                           {dy.buffer, pass.need(qkv), pass.need(op.outputs[0]),
                            pass.need(op.outputs[1]), pass.need(op.inputs[1])},
                           {dqkv});
  pass.contribute(qkv, {dqkv, dy.where});
}

void indexer_adjoint(BackwardPass& pass, const Operation& op, const ComputeOp& work) {
  std::vector<ValueId> inputs;
  for (const ValueId input : op.inputs) inputs.push_back(pass.need(input));
  std::vector<ValueId> outputs;  // of queries, keys, weights of heads
  constexpr std::size_t kLearned = 3;
  for (std::size_t i = 0; i < kLearned; ++i)
    outputs.push_back(pass.fresh_gradient(op.inputs[i], Placement::Replicated));
  pass.emit_input_gradient(op, work, std::move(inputs), outputs);
  for (std::size_t i = 0; i < kLearned; ++i)
    pass.contribute(op.inputs[i], {outputs[i], Placement::Replicated});
}

void ring_adjoint(BackwardPass& pass, const Operation& op) {
  const Gradient dy = pass.output_gradient(op);
  const auto step = [&](ComputeKind kind, int number) -> const Operation& {
    return *std::ranges::find_if(pass.layer().block.forward, [&](const Operation& other) {
      const auto* compute = std::get_if<ComputeOp>(&other.work);
      return compute != nullptr && compute->kind == kind && compute->ring_step == number;
    });
  };
  const Operation& attention = step(ComputeKind::Attention, 0);
  const ValueId lse = step(ComputeKind::MergeAttention, pass.context().cp - 1).outputs[1];
  const AttentionInputs more = attention_inputs(pass.layer().block.values, attention);
  const ValueId kv = more.keys_values.value();
  const std::string name = attention.name.substr(0, attention.name.rfind('.'));
  RingOperands operands{.dy = dy.buffer,
                        .qkv = pass.need(attention.inputs[0]),
                        .o = pass.need(op.outputs[0]),
                        .lse = pass.need(lse),
                        .kv = pass.need(kv)};
  if (std::get<ComputeOp>(attention.work).documents)
    for (int number = 0; number < pass.context().cp; ++number)
      operands.key_ranges.push_back(step(ComputeKind::Attention, number).inputs.back());
  const RingGradients made = append_ring_gradient(pass.layer(), pass.context().cp, name, operands,
                                                  std::get<ComputeOp>(attention.work));
  pass.set_ring_queries(made.queries);
  pass.contribute(kv, {made.keys_values, dy.where});
  sinks_adjoint(pass, attention, {.dy = dy, .o = operands.o, .lse = operands.lse}, more.sinks);
}

void key_values_adjoint(BackwardPass& pass, const Operation& op, const ComputeOp& work) {
  const Gradient dkv = pass.output_gradient(op);
  const ValueId qkv = op.inputs[0];
  if (const std::optional<ValueId> queries = pass.ring_queries()) {
    const ValueId dqkv = pass.fresh_gradient(qkv, dkv.where);
    pass.emit_input_gradient(op, work, {dkv.buffer, *queries}, {dqkv});
    return pass.contribute(qkv, {dqkv, dkv.where});
  }
  const Gradient dq = pass.gradient(qkv);
  const ValueId dqkv = pass.same_buffer(dq.buffer, dkv.where);
  pass.emit_input_gradient(op, work, {dkv.buffer, dq.buffer}, {dqkv});
  pass.set_gradient(qkv, {dqkv, dq.where});
}

void latent_heads_adjoint(BackwardPass& pass, const Operation& op, const ComputeOp& work) {
  const Gradient dy = pass.output_gradient(op);
  const Placement of_shared =
      dy.where == Placement::FeaturesSharded ? Placement::Partial : dy.where;
  std::vector<ValueId> gradients;  // of the queries, if they are beside; keys and values; shared
  for (const ValueId input : op.inputs)
    gradients.push_back(
        pass.fresh_gradient(input, input == op.inputs.back() ? of_shared : dy.where));
  pass.emit_input_gradient(op, work, {dy.buffer}, gradients);
  for (std::size_t i = 0; i < gradients.size(); ++i)
    pass.contribute(op.inputs[i], {gradients[i], pass.layer().placement[at(gradients[i])]});
}

}  // namespace meshplan::program
