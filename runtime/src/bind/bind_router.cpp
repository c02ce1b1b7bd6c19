// The router of a mixture of experts: its linear layer and choice, its losses, its loads.
#include <algorithm>

#include "bind/bound_operands.hpp"
#include "core/error.hpp"

namespace meshplan::runtime {

using program::ComputeKind;
using program::Phase;

namespace {

kernels::RouterScore score_of(const models::RouterSpec& router) {
  return router.score == models::RouterScore::Softmax ? kernels::RouterScore::Softmax
                                                      : kernels::RouterScore::Sigmoid;
}

/// The weight of a token's balance loss: a X / (K S), see kernels::RouterLosses.
float balance_weight(const models::OpAttributes& a, std::int64_t seq_len) {
  return static_cast<float>(a.router.aux_loss_coefficient * a.num_experts /
                            (static_cast<double>(a.top_k) * static_cast<double>(seq_len)));
}

/// Groups of DeepSeek-V3 (with a correction bias) are chosen by their two best experts, those of
/// DeepSeek-V2 by the best one.
int group_experts(const models::OpAttributes& a) {
  return a.router.correction_bias && a.num_experts / a.router.num_groups > 1 ? 2 : 1;
}

/// Tokens of a sequence that are counted together: of a chunk over cp.
std::int64_t counted_seq_len(const program::Program& program) {
  const program::Plan& plan = program.plan;
  return plan.parallel.cp > 1 ? plan.workload.seq_len / plan.parallel.cp / 2
                              : plan.workload.seq_len;
}

}  // namespace

std::int64_t OperatorBinder::Body::real_sequences(const Operands& o) const {
  const program::Plan& plan = program_.plan;
  if (plan.empty_sequences() == 0) return o.sizes.sequences;  // which a measurement may choose
  return program::real_sequences(plan, o.instance.microbatch.value(), place_.coordinates.dp);
}

std::int64_t OperatorBinder::Body::empty_tokens(const Operands& o, std::int64_t tokens) const {
  if (program_.plan.empty_sequences() == 0) return 0;
  const std::int64_t first = o.work.tokens_sharded ? place_.tp_rank * tokens : 0;
  const std::int64_t real = real_sequences(o) * local_seq_len() - first;
  return tokens - std::clamp<std::int64_t>(real, 0, tokens);
}

/// The tokens of this rank in their sequences; `load` is the operand with the sequences' counts.
kernels::SequenceCounts OperatorBinder::Body::sequence_counts(const Operands& o, std::size_t load,
                                                              std::int64_t tokens) const {
  const std::vector<std::int64_t> shape = o.in_shape(load);
  return {.first_token = o.work.tokens_sharded ? place_.tp_rank * tokens : 0,
          .seq_len = counted_seq_len(program_),
          .sequences = shape[1],
          .parts = static_cast<int>(shape[0]),
          .load = o.in<float>(load),
          .cp = program_.plan.parallel.cp};
}

std::function<void()> OperatorBinder::Body::bind_router(const Operands& o) {
  if (o.forward()) return bind_router_forward(o);
  if (o.operation.phase == Phase::InputGrad) return bind_router_input_grad(o);
  const std::int64_t experts = o.work.attributes.num_experts;
  const std::int64_t hidden = program_.plan.model.hidden_size;
  return ready(kernels::LinearWeightGrad{
      .shape = {.tokens = o.in_shape(1)[0], .in_features = hidden, .out_features = experts},
      .dtype = o.dtype(),
      .dy = o.in(0),
      .dy_stride = experts,
      .x = o.in(1),
      .x_stride = hidden,
      .dweight = o.out<float>(0),
      .dweight_stride = hidden,
      .dbias = o.operation.outputs.size() > 1 ? o.out<float>(1) : nullptr,
      .accumulate = o.instance.accumulate});
}

std::function<void()> OperatorBinder::Body::bind_router_forward(const Operands& o) {
  const models::OpAttributes& a = o.work.attributes;
  const std::int64_t tokens = o.in_shape(0)[0];
  const std::int64_t experts = a.num_experts;
  const std::int64_t hidden = program_.plan.model.hidden_size;
  const bool z_loss = a.router.z_loss_coefficient != 0;
  // In fp32 the logits lie where the scores will.
  void* logits = o.dtype() == DType::F32 ? o.out(2) : o.out(z_loss ? 4 : 3);
  const std::size_t correction = a.router.bias ? 3 : 2;
  return both(ready(kernels::LinearForward{
                  .shape = {.tokens = tokens, .in_features = hidden, .out_features = experts},
                  .dtype = o.dtype(),
                  .x = o.in(0),
                  .x_stride = hidden,
                  .weight = o.in(1),
                  .weight_stride = hidden,
                  .bias = a.router.bias ? o.in(2) : nullptr,
                  .y = logits,
                  .y_stride = experts}),
              ready(kernels::RouterForward{
                  .tokens = tokens,
                  .experts = a.num_experts,
                  .top_k = a.top_k,
                  .score = score_of(a.router),
                  .normalize = a.router.normalize_top_k,
                  .scaling_factor = static_cast<float>(a.router.scaling_factor),
                  .dtype = o.dtype(),
                  .logits = logits,
                  .logits_stride = experts,
                  .num_groups = a.router.num_groups,
                  .top_groups = a.router.top_groups,
                  .group_experts = group_experts(a),
                  .bias_dtype = o.dtype(),
                  .correction_bias = a.router.correction_bias ? o.in(correction) : nullptr,
                  .scores = o.out<float>(2),
                  .choices = o.out<std::int32_t>(1),
                  .probabilities = o.out<float>(0),
                  .lse = z_loss ? o.out<float>(3) : nullptr}));
}

std::function<void()> OperatorBinder::Body::bind_router_input_grad(const Operands& o) {
  const models::OpAttributes& a = o.work.attributes;
  const std::int64_t tokens = o.in_shape(0)[0];
  const std::int64_t experts = a.num_experts;
  const std::int64_t hidden = program_.plan.model.hidden_size;
  const bool balanced = a.router.aux_loss_coefficient != 0;
  const bool z_loss = a.router.z_loss_coefficient != 0;
  return both(ready(kernels::RouterBackward{
                  .tokens = tokens,
                  .experts = a.num_experts,
                  .top_k = a.top_k,
                  .score = score_of(a.router),
                  .normalize = a.router.normalize_top_k,
                  .scaling_factor = static_cast<float>(a.router.scaling_factor),
                  .dtype = o.dtype(),
                  .scores = o.in<float>(2),
                  .choices = o.in<std::int32_t>(1),
                  .dprobabilities = o.in<float>(0),
                  .balance_weight = balanced ? balance_weight(a, seq_len()) : 0.0F,
                  .z_weight = static_cast<float>(a.router.z_loss_coefficient),
                  .counts = balanced ? sequence_counts(o, 4, tokens) : kernels::SequenceCounts{},
                  .lse = z_loss ? o.in<float>(balanced ? 5 : 4) : nullptr,
                  .loss_scale = gradient_scale_,
                  .uncounted_tokens = empty_tokens(o, tokens),
                  .dlogits = o.out(0),
                  .dlogits_stride = experts}),
              ready(kernels::LinearInputGrad{
                  .shape = {.tokens = tokens, .in_features = hidden, .out_features = experts},
                  .dtype = o.dtype(),
                  .dy = o.out(0),
                  .dy_stride = experts,
                  .weight = o.in(3),
                  .weight_stride = hidden,
                  .dx = o.out(1),
                  .dx_stride = hidden}));
}

/// The load of each expert over the step, or of each sequence.
std::function<void()> OperatorBinder::Body::bind_router_load(const Operands& o) {
  const std::vector<std::int64_t> choices = o.in_shape(0);
  kernels::ExpertLoad call{.tokens = choices[0] - empty_tokens(o, choices[0]),
                           .experts = o.work.attributes.num_experts,
                           .top_k = static_cast<int>(choices[1]),
                           .choices = o.in<std::int32_t>(0)};
  if (o.work.kind == ComputeKind::RouterLoad) {
    call.total = o.out<float>(0);
    return ready(call);
  }
  call.first_token = o.work.tokens_sharded ? place_.tp_rank * choices[0] : 0;
  call.seq_len = counted_seq_len(program_);
  call.sequences = o.out_shape(0)[1];
  call.load = o.out<float>(0);
  return ready(call);
}

std::function<void()> OperatorBinder::Body::bind_router_losses(const Operands& o) {
  const models::OpAttributes& a = o.work.attributes;
  const std::int64_t tokens = o.in_shape(0)[0];
  const bool balanced = a.router.aux_loss_coefficient != 0;
  const bool z_loss = a.router.z_loss_coefficient != 0;
  auto* sums = o.out<double>(0);
  return ready(kernels::RouterLosses{
      .tokens = tokens - empty_tokens(o, tokens),
      .experts = a.num_experts,
      .balance_weight = balanced ? balance_weight(a, seq_len()) : 0.0F,
      .z_weight = static_cast<float>(a.router.z_loss_coefficient),
      .counts = balanced ? sequence_counts(o, 1, tokens) : kernels::SequenceCounts{},
      .scores = o.in<float>(0),
      .lse = z_loss ? o.in<float>(balanced ? 2 : 1) : nullptr,
      .balance = sums,
      .z = sums + 1});
}

std::function<void()> OperatorBinder::Body::bind_limit_choices(const Operands& o) {
  const std::vector<std::int64_t> choices = o.in_shape(0);
  const int sharing_tp_ranks = static_cast<int>(o.in_shape(1)[0]) / program_.plan.parallel.cp;
  return ready(kernels::LimitChoices{.tokens = choices[0],
                                     .experts = o.work.attributes.num_experts,
                                     .top_k = static_cast<int>(choices[1]),
                                     .capacity = program::expert_capacity(program_.plan),
                                     .counts = sequence_counts(o, 1, choices[0]),
                                     .part = place_.coordinates.cp * sharing_tp_ranks +
                                             (o.work.tokens_sharded ? place_.tp_rank : 0),
                                     .uncounted_tokens = empty_tokens(o, choices[0]),
                                     .choices = o.in<std::int32_t>(0),
                                     .kept = o.out<std::int32_t>(0)});
}

}  // namespace meshplan::runtime
