// An operation's independent parts, cut into one range for each thread. How many go to a thread
// depends on sizes alone.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "device/context.hpp"
#include "device/threads.hpp"

namespace meshplan::kernels::cpu {

inline constexpr std::int64_t kElementGrain = 4096;  // fewer: a second thread costs more
inline constexpr std::int64_t kColumnGrain = 64;     // whole cache lines for each thread

/// Rows below which a second thread costs more.
inline std::int64_t row_grain(std::int64_t row_size) {
  return kElementGrain / std::max<std::int64_t>(row_size, 1) + 1;
}

inline void* offset(void* pointer, std::int64_t bytes) {
  return static_cast<std::byte*>(pointer) + bytes;
}
/// Null stays null.
inline const void* offset(const void* pointer, std::int64_t bytes) {
  return pointer == nullptr ? nullptr : static_cast<const std::byte*>(pointer) + bytes;
}

template <class Op>
void for_rows(const Context& context, void (*kernel)(const Op&, Range), const Op& op,
              std::int64_t rows, std::int64_t row_size) {
  parallel_for(context.num_threads, rows, row_grain(row_size),
               [&](Range range, int /*thread*/) { kernel(op, range); });
}

template <class Body>
void for_each_row(const Context& context, std::int64_t rows, std::int64_t row_size,
                  const Body& body) {
  parallel_for(context.num_threads, rows, row_grain(row_size), [&](Range range, int /*thread*/) {
    for (std::int64_t row = range.begin; row < range.end; ++row) body(row);
  });
}

template <class Op>
void for_columns(const Context& context, void (*kernel)(const Op&, Range), const Op& op,
                 std::int64_t columns) {
  parallel_for(context.num_threads, columns, kColumnGrain,
               [&](Range range, int /*thread*/) { kernel(op, range); });
}

template <class Op>
void for_elements(const Context& context, void (*kernel)(const Op&, Range), const Op& op) {
  parallel_for(context.num_threads, op.count, kElementGrain,
               [&](Range range, int /*thread*/) { kernel(op, range); });
}

}  // namespace meshplan::kernels::cpu
