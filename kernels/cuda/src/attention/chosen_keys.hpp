// Which queries chose each key of DeepSeek sparse attention: what the gradients of keys sum over.
#pragma once

#include "device/stable_sort.hpp"
#include "kernels/attention/attention.hpp"

namespace meshplan::kernels::cuda {

/// The places (token * C + c) of all choices, sorted by the row of their key, ascending within it.
/// What is no choice comes last.
struct ChosenKeys {
  SortedItems places;
  std::int64_t count = 0;  // B Q C
};

std::int64_t chosen_keys_scratch_bytes(const AttentionShape& shape, int top_k);

/// The result lies in `scratch`. @throws InvariantError for 2^31 choices or more
ChosenKeys enqueue_chosen_keys(const Context& context, const AttentionShape& shape, int top_k,
                               const std::int32_t* choices, std::byte* scratch);

}  // namespace meshplan::kernels::cuda
