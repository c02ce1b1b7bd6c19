#include "attention/attention_parts.hpp"

#include <algorithm>
#include <cstddef>
#include <type_traits>

namespace meshplan::kernels::cuda {

AttentionPart whole(const AttentionBackward& op) {
  return {.sequences = op.shape.num_sequences, .kv_heads = op.shape.kv_heads};
}

AttentionPart halved(AttentionPart part) {
  if (part.sequences > 1)
    part.sequences = (part.sequences + 1) / 2;
  else
    part.kv_heads = (part.kv_heads + 1) / 2;
  return part;
}

AttentionBackward part_of(const AttentionBackward& op, const AttentionPart& part) {
  const AttentionShape& s = op.shape;
  const int group = s.heads / s.kv_heads;
  const std::int64_t element = size_of(op.dtype);
  const auto at = [&](auto* data, std::int64_t rows, std::int64_t stride, std::int64_t head) {
    const std::int64_t offset =
        (part.first_sequence * rows * stride + head * s.head_size) * element;
    using Byte = std::conditional_t<std::is_const_v<std::remove_pointer_t<decltype(data)>>,
                                    const std::byte, std::byte>;
    return static_cast<decltype(data)>(reinterpret_cast<Byte*>(data) + offset);
  };
  const int head = part.first_kv_head * group;
  AttentionBackward result = op;
  result.shape.num_sequences = part.sequences;
  result.shape.kv_heads = part.kv_heads;
  result.shape.heads = part.kv_heads * group;
  result.q = at(op.q, s.query_len, op.q_stride, head);
  result.dq = at(op.dq, s.query_len, op.dq_stride, head);
  result.o = at(op.o, s.query_len, op.o_stride, head);
  result.output_grad = at(op.output_grad, s.query_len, op.o_stride, head);
  result.k = at(op.k, s.key_len, op.kv_stride, part.first_kv_head);
  result.v = at(op.v, s.key_len, op.kv_stride, part.first_kv_head);
  result.dk = at(op.dk, s.key_len, op.dkv_stride, part.first_kv_head);
  result.dv = at(op.dv, s.key_len, op.dkv_stride, part.first_kv_head);
  result.lse = op.lse + statistic_index(s, op.lse_stride, part.first_sequence, head, 0);
  return result;
}

std::vector<AttentionBackward> parts_of(const AttentionBackward& op, const AttentionPart& first) {
  std::vector<AttentionBackward> parts;
  const AttentionShape& s = op.shape;
  for (std::int64_t sequence = 0; sequence < s.num_sequences; sequence += first.sequences)
    for (int head = 0; head < s.kv_heads; head += first.kv_heads)
      parts.push_back(part_of(op, {sequence, std::min(first.sequences, s.num_sequences - sequence),
                                   head, std::min(first.kv_heads, s.kv_heads - head)}));
  return parts;
}

}  // namespace meshplan::kernels::cuda
