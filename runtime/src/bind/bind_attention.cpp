#include <algorithm>
#include <utility>

#include "bind/bound_operands.hpp"
#include "core/error.hpp"
#include "models/rope_scaling.hpp"
#include "program/context/context.hpp"

namespace meshplan::runtime {

kernels::AttentionChoice attention_choice(const program::Program& program) {
  const auto library = [&] {
    switch (program.plan.attention) {
      case program::AttentionKernels::Auto:
        return kernels::AttentionLibrary::Auto;
      case program::AttentionKernels::Own:
        return kernels::AttentionLibrary::Own;
      case program::AttentionKernels::Cudnn:
        return kernels::AttentionLibrary::Cudnn;
    }
    throw InvariantError("unknown attention kernels");
  };
  return {.library = library(),
          .deterministic = program.plan.deterministic,
          .scratch_bytes = program.memory.workspace_bytes};
}

kernels::AttentionShape OperatorBinder::Body::attention_shape(const Operands& o) const {
  const models::OpAttributes& a = o.work.attributes;
  const std::int64_t length = o.in_shape(0)[0] / program_.sizes.sequences;
  return {.num_sequences = program_.sizes.sequences,
          .query_len = length,
          .key_len = length,
          .heads = a.heads,
          .kv_heads = a.kv_heads,
          .head_size = a.head_size,
          .value_head_size = a.value_head_size,
          .causal = a.causal,
          .window = a.window,
          .scale = static_cast<float>(a.scale),
          .softcap = static_cast<float>(a.softcap)};
}

std::function<void()> OperatorBinder::Body::bind_attention(const Operands& o) {
  if (o.operation.phase == program::Phase::WeightGrad) return bind_sinks_gradient(o);
  if (o.work.ring_step) return bind_ring_attention(o);
  if (o.attention_inputs().keys_values) return bind_gathered_attention(o);
  const kernels::AttentionShape shape = attention_shape(o);
  const HeadsSideBySide at(o.work.attributes, size_of(o.dtype()));
  if (o.forward()) {
    auto* qkv = o.in<std::byte>(0);
    return ready(kernels::AttentionForward{.shape = shape,
                                           .dtype = o.dtype(),
                                           .q = qkv,
                                           .q_stride = at.stride,
                                           .k = qkv + at.keys,
                                           .v = qkv + at.values,
                                           .kv_stride = at.stride,
                                           .key_ranges = o.of_documents(),
                                           .sinks = own_sinks(o),
                                           .o = o.out(0),
                                           .o_stride = at.output_stride,
                                           .lse = o.out<float>(1),
                                           .choice = attention_choice(program_)});
  }
  auto* qkv = o.in<std::byte>(1);
  auto* gradient = o.out<std::byte>(0);
  return ready(kernels::AttentionBackward{.shape = shape,
                                          .dtype = o.dtype(),
                                          .q = qkv,
                                          .q_stride = at.stride,
                                          .k = qkv + at.keys,
                                          .v = qkv + at.values,
                                          .kv_stride = at.stride,
                                          .key_ranges = o.of_documents(),
                                          .o = o.in(2),
                                          .o_stride = at.output_stride,
                                          .output_grad = o.in(0),
                                          .lse = o.in<float>(3),
                                          .dq = gradient,
                                          .dq_stride = at.stride,
                                          .dk = gradient + at.keys,
                                          .dv = gradient + at.values,
                                          .dkv_stride = at.stride,
                                          .choice = attention_choice(program_)});
}

namespace {

/// Where the sinks of this rank's heads begin: with Ulysses a cp rank attends with some of those
/// that lie here.
std::int64_t first_sink(const models::OpAttributes& a, std::int64_t sinks, int cp_rank) {
  return sinks > a.heads ? std::int64_t{cp_rank} * a.heads : 0;
}

}  // namespace

const void* OperatorBinder::Body::own_sinks(const Operands& o) const {
  const std::optional<program::ValueId> sinks = o.attention_inputs().sinks;
  if (!sinks) return nullptr;
  const std::int64_t count = program::local_shape(program_, o.value(*sinks)).front();
  return o.at<std::byte>(*sinks) +
         first_sink(o.work.attributes, count, place_.coordinates.cp) * size_of(o.dtype());
}

std::function<void()> OperatorBinder::Body::bind_sinks_gradient(const Operands& o) {
  const models::OpAttributes& a = o.work.attributes;
  const std::int64_t count = o.in_shape(3).front();
  const std::int64_t first = first_sink(a, count, place_.coordinates.cp);
  const bool all = count == a.heads;
  auto* gradient = o.out<float>(0);
  auto sum =
      ready(kernels::AttentionSinksGrad{.tokens = o.in_shape(0)[0],
                                        .queries = o.in_shape(0)[0] / program_.sizes.sequences,
                                        .heads = a.heads,
                                        .head_size = a.value_head_size,
                                        .dtype = o.dtype(),
                                        .sinks = o.in<std::byte>(3) + first * size_of(o.dtype()),
                                        .o = o.in(1),
                                        .o_stride = o.in_shape(1)[1],
                                        .output_grad = o.in(0),
                                        .lse = o.in<float>(2),
                                        .dsinks = gradient + first,
                                        .accumulate = o.instance.accumulate || !all});
  if (all || o.instance.accumulate) return sum;
  return both(ready(kernels::Fill{.count = count, .dtype = DType::F32, .x = gradient}),
              std::move(sum));
}

std::function<void()> OperatorBinder::Body::bind_rope(const Operands& o) {
  const models::OpAttributes& a = o.work.attributes;
  return ready(kernels::Rope{.tokens = o.in_shape(0)[0],
                             .heads = a.heads + a.kv_heads,
                             .head_size = a.head_size,
                             .rope_size = a.rope_size,
                             .positions = row_positions(o),
                             .dtype = o.dtype(),
                             .x = o.out<std::byte>(0) + a.rope_offset * size_of(o.dtype()),
                             .x_stride = o.in_shape(0)[1],
                             .table = rope_table(a),
                             .inverse = !o.forward()});
}

kernels::RowPositions OperatorBinder::Body::row_positions(const Operands& o,
                                                          std::int64_t first_row) const {
  if (o.work.documents)
    return {.seq_len = seq_len(), .first_row = first_row, .rows = o.of_documents()};
  const program::ContextShard own =
      program::context_shard(seq_len(), program_.plan.parallel.cp, place_.coordinates.cp);
  return {.seq_len = own.length,
          .first_row = first_row,
          .first_position = own.first,
          .jump = own.second - own.first - own.length / 2};
}

std::function<void()> OperatorBinder::Body::bind_latent_heads(const Operands& o) {
  const models::OpAttributes& a = o.work.attributes;
  const bool forward = o.forward();
  const std::size_t shared = (forward ? o.operation.inputs : o.operation.outputs).size() - 1;
  const bool queries = shared == 2;
  const std::vector<std::int64_t> k_rope = forward ? o.in_shape(shared) : o.out_shape(shared);
  const auto rope_size = static_cast<int>(k_rope[1]);
  const kernels::LatentShape shape{.tokens = k_rope[0],
                                   .heads = a.heads,
                                   .nope_size = a.head_size - rope_size,
                                   .rope_size = rope_size,
                                   .value_size = a.value_head_size,
                                   .queries = queries};
  if (forward)
    return ready(kernels::LatentHeadsForward{.shape = shape,
                                             .dtype = o.dtype(),
                                             .q = queries ? o.in(0) : nullptr,
                                             .kv = o.in(shared - 1),
                                             .k_rope = o.in(shared),
                                             .qkv = o.out(0)});
  return ready(kernels::LatentHeadsBackward{.shape = shape,
                                            .dtype = o.dtype(),
                                            .dqkv = o.in(0),
                                            .dq = queries ? o.out(0) : nullptr,
                                            .dkv = o.out(shared - 1),
                                            .dk_rope = o.out(shared)});
}

const float* OperatorBinder::Body::rope_table(const models::OpAttributes& a) {
  const auto known = std::ranges::find_if(rope_tables_, [&](const RopeTable& table) {
    return table.base == a.rope_base && table.size == a.rope_size &&
           table.scaling == a.rope_scaling;
  });
  if (known != rope_tables_.end()) return static_cast<const float*>(known->memory);
  std::vector<float> table(static_cast<std::size_t>(seq_len() * a.rope_size));
  kernels::build_rope_table(
      table, seq_len(),
      models::rope_inverse_frequencies(a.rope_base, a.rope_size, a.rope_scaling, seq_len()),
      models::rope_attention_factor(a.rope_scaling));
  const auto bytes = static_cast<std::int64_t>(table.size() * sizeof(float));
  void* memory = backend_.allocate(bytes);
  rope_tables_.push_back({a.rope_base, a.rope_size, a.rope_scaling, memory});
  backend_.copy_to_device(memory, table.data(), bytes);
  return static_cast<const float*>(memory);
}

}  // namespace meshplan::runtime
