#include "attention/chosen_keys.hpp"
#include "device/flat.cuh"

namespace meshplan::kernels::cuda {

namespace {

std::int64_t count_of(const AttentionShape& shape, int top_k) {
  return shape.num_sequences * shape.query_len * top_k;
}

/// rows[i] = the row of the key at place i, or one beyond the last.
__global__ void rows_kernel(const std::int32_t* choices, std::int64_t count,
                            std::int64_t of_sequence, std::int64_t key_len, std::int64_t num_keys,
                            std::int32_t* rows) {
  for_each_pack<1>(count, [&](std::int64_t i, auto /*one*/) {
    const std::int64_t first = i / of_sequence * key_len;
    rows[i] = static_cast<std::int32_t>(choices[i] >= 0 ? first + choices[i] : num_keys);
  });
}

}  // namespace

std::int64_t chosen_keys_scratch_bytes(const AttentionShape& shape, int top_k) {
  return sort_scratch_bytes(count_of(shape, top_k));
}

ChosenKeys enqueue_chosen_keys(const Context& context, const AttentionShape& shape, int top_k,
                               const std::int32_t* choices, std::byte* scratch) {
  const std::int64_t count = count_of(shape, top_k);
  const std::int64_t num_keys = shape.num_sequences * shape.key_len;
  launch(context, flat_shape(context, count, 1), rows_kernel, choices, count,
         shape.query_len * top_k, shape.key_len, num_keys, sort_keys(scratch));
  return {enqueue_stable_sort(context, count, num_keys + 1, scratch), count};
}

}  // namespace meshplan::kernels::cuda
