// Least-significant-digit radix sort of items by small integer keys: stable, and integer only, so
// the result is the same every time. Source: Satish, Harris & Garland 2009 (section 3), with
// counting by warp matches.
#pragma once

#include "device/context.hpp"

namespace meshplan::kernels::cuda {

/// Items in ascending order of their keys, equal keys in ascending order of items. Both (count).
struct SortedItems {
  const std::int32_t* keys = nullptr;
  const std::int32_t* items = nullptr;
};

/// A multiple of 64 bytes. Holds the input keys too: `sort_keys` says where the caller writes them.
std::int64_t sort_scratch_bytes(std::int64_t count);
std::int32_t* sort_keys(std::byte* scratch);

/// Sorts items 0 to count - 1 by the keys at sort_keys(scratch), each in [0, num_keys). The result
/// lies in `scratch`, too. @throws InvariantError for 2^31 items or more
SortedItems enqueue_stable_sort(const Context& context, std::int64_t count, std::int64_t num_keys,
                                std::byte* scratch);

}  // namespace meshplan::kernels::cuda
