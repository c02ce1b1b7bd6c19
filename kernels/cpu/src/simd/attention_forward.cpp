#include "simd/attention_tiles.hpp"
#include "simd/kernels.hpp"
#include "simd/small_gemm.hpp"
#include "simd/soft_cap.hpp"

namespace meshplan::kernels::MESHPLAN_ISA {

namespace {

constexpr float kInfinity = __builtin_inff();

/// One block of queries of one head: its packed operands and running softmax.
struct QueryBlock {
  const AttentionForward& op;
  const AttentionLayout& layout;
  float* scratch;
  const Visibility& visibility;
  int64_t first;  // query
  int64_t count;
};

/// Turns a row of scores into probabilities relative to the row's running maximum; returns the
/// factor by which what was summed before shrinks.
MESHPLAN_INLINE float softmax_row(float* row, int64_t columns, float scale, float& row_max,
                                  float& row_sum) {
  Vec maxima = splat(-kInfinity);
  for (int64_t i = 0; i < columns; i += kLanes) maxima = max(maxima, load(row + i));
  const float block_max = max_lane(maxima) * scale;
  const float new_max = block_max > row_max ? block_max : row_max;
  if (new_max == -kInfinity) {
    memset(row, 0, static_cast<size_t>(columns) * sizeof(float));
    return 1.0F;
  }
  Vec sums{};
  for (int64_t i = 0; i < columns; i += kLanes) {
    const Vec p = exp(load(row + i) * scale - new_max);
    store(row + i, p);
    sums += p;
  }
  const float shrink = exp(splat(row_max - new_max))[0];
  row_max = new_max;
  row_sum = row_sum * shrink + sum(sums);
  return shrink;
}

/// A row of scores scaled and capped.
MESHPLAN_INLINE void cap_row(float* row, int64_t columns, float scale, SoftCap cap) {
  for (int64_t i = 0; i < columns; i += kLanes) store(row + i, cap.value(load(row + i) * scale));
}

/// o = o * shrink + p v over the keys [first_key, end) of one block.
void attend(const QueryBlock& block, int64_t first_key, int64_t end) {
  const AttentionLayout& layout = block.layout;
  float* scores = block.scratch + layout.scores;
  float* output = block.scratch + layout.output;
  float* row_max = block.scratch + layout.row_max;
  float* row_sum = block.scratch + layout.row_sum;
  const AttentionShape& shape = block.op.shape;
  const int64_t columns = block_columns(first_key, end);
  small_gemm({.c = scores,
              .c_stride = kKeyBlock,
              .a = block.scratch + layout.query,
              .a_row_stride = layout.head,
              .a_column_stride = 1,
              .b = block.scratch + layout.keys_transposed + first_key * layout.head,
              .b_stride = kKeyBlock,
              .m = block.count,
              .n = columns,
              .k = shape.head_size,
              .accumulate = false});
  const bool capped = shape.softcap > 0.0F;
  const float scale = capped ? 1.0F : shape.scale;  // that is left to apply
  for (int64_t i = 0; i < block.count; ++i) {
    float* row = scores + i * kKeyBlock;
    if (capped) cap_row(row, columns, shape.scale, soft_cap(shape.softcap));
    mask_row(row, columns, block.visibility.of(block.first + i), first_key, -kInfinity);
    const float shrink = softmax_row(row, columns, scale, row_max[i], row_sum[i]);
    if (shrink != 1.0F) {
      for (int64_t e = 0; e < layout.value; e += kLanes)
        store(output + i * layout.value + e, load(output + i * layout.value + e) * shrink);
    }
  }
  small_gemm({.c = output,
              .c_stride = layout.value,
              .a = scores,
              .a_row_stride = kKeyBlock,
              .a_column_stride = 1,
              .b = block.scratch + layout.values + first_key * layout.value,
              .b_stride = layout.value,
              .m = block.count,
              .n = layout.value,
              .k = columns,
              .accumulate = true});
}

template <class T>
void finish(const QueryBlock& block, int64_t sequence, int64_t head) {
  const AttentionForward& op = block.op;
  const AttentionLayout& layout = block.layout;
  float* output = block.scratch + layout.output;
  const int64_t first_row = sequence * op.shape.query_len + block.first;
  for (int64_t i = 0; i < block.count; ++i) {
    const float total = block.scratch[layout.row_sum + i];
    const float inverse = total > 0.0F ? 1.0F / total : 0.0F;
    for (int64_t e = 0; e < layout.value; e += kLanes)
      store(output + i * layout.value + e, load(output + i * layout.value + e) * inverse);
    op.lse[statistic_index(op.shape, op.lse_stride, sequence, head, block.first + i)] =
        total > 0.0F ? block.scratch[layout.row_max + i] + __builtin_logf(total) : -kInfinity;
  }
  unpack_rows(static_cast<T*>(op.o) + first_row * op.o_stride + head * layout.value_size,
              op.o_stride, output, layout.value, layout.value_size, block.count);
}

template <class T>
void forward_head(const AttentionForward& op, const AttentionLayout& layout, float* scratch,
                  int64_t sequence, int64_t head, const Visibility& visibility) {
  const AttentionShape& shape = op.shape;
  const T* q = static_cast<const T*>(op.q) + sequence * shape.query_len * op.q_stride +
               head * shape.head_size;
  for (int64_t first = 0; first < shape.query_len; first += kQueryBlock) {
    const QueryBlock block{op,         layout, scratch,
                           visibility, first,  least(kQueryBlock, shape.query_len - first)};
    pack_rows(scratch + layout.query, layout.head, q + first * op.q_stride, op.q_stride,
              shape.head_size, block.count, block.count);
    memset(scratch + layout.output, 0,
           static_cast<size_t>(block.count * layout.value) * sizeof(float));
    // A sink is a score of which the softmax knows before the first key; its value is 0.
    const float sink =
        op.sinks != nullptr ? load(static_cast<const T*>(op.sinks) + head, Tail{1})[0] : -kInfinity;
    for (int64_t i = 0; i < block.count; ++i) {
      scratch[layout.row_max + i] = sink;
      scratch[layout.row_sum + i] = op.sinks != nullptr ? 1.0F : 0.0F;
    }
    const KeyRange keys = visibility.of(first, block.count);
    for (int64_t key = keys.begin / kKeyBlock * kKeyBlock; key < keys.end; key += kKeyBlock)
      if (visibility.any(first, block.count, key, least(key + kKeyBlock, keys.end)))
        attend(block, key, keys.end);
    finish<T>(block, sequence, head);
  }
}

template <class T>
void forward(const AttentionForward& op, Range pairs, float* scratch) {
  const AttentionShape& shape = op.shape;
  const AttentionLayout layout = attention_forward_layout(shape);
  const int64_t group = shape.heads / shape.kv_heads;
  for (int64_t pair = pairs.begin; pair < pairs.end; ++pair) {
    const int64_t sequence = pair / shape.kv_heads;
    const int64_t kv_head = pair % shape.kv_heads;
    const Visibility visibility = visibility_of(op, sequence);
    const int64_t num_keys = visibility.num_keys;
    const int64_t first = sequence * shape.key_len * op.kv_stride;
    // The values' place holds the keys until they are transposed.
    pack_rows(scratch + layout.values, layout.head,
              static_cast<const T*>(op.k) + first + kv_head * shape.head_size, op.kv_stride,
              shape.head_size, num_keys, layout.keys);
    transpose_blocks(scratch + layout.keys_transposed, scratch + layout.values, layout.head,
                     layout.keys);
    pack_rows(scratch + layout.values, layout.value,
              static_cast<const T*>(op.v) + first + kv_head * layout.value_size, op.kv_stride,
              layout.value_size, num_keys, layout.keys);
    for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head)
      forward_head<T>(op, layout, scratch, sequence, head, visibility);
  }
}

}  // namespace

void attention_forward(const AttentionForward& op, Range pairs, float* scratch) {
  with_type(op.dtype, [&]<class T>(T* /*type*/) { forward<T>(op, pairs, scratch); });
}

}  // namespace meshplan::kernels::MESHPLAN_ISA
