#pragma once

#include <algorithm>
#include <cstdint>
#include <omp.h>

#include "device/kernel_table.hpp"

namespace meshplan::kernels {

/// Tokens below which a second thread costs more than it brings, where a token is one row.
inline constexpr std::int64_t kRowGrain = 16;

/// Cuts [0, total) into one range per thread, at multiples of `grain`, and calls
/// body(range, thread). Total work below one grain a thread uses fewer threads.
template <class Body>
void parallel_for(int num_threads, std::int64_t total, std::int64_t grain, const Body& body) {
  const std::int64_t grains = (total + grain - 1) / grain;
  const int threads = static_cast<int>(std::min<std::int64_t>(num_threads, grains));
  if (threads <= 1) {
    if (total > 0) body(Range{0, total}, 0);
    return;
  }
#pragma omp parallel num_threads(threads)
  {
    const int thread = omp_get_thread_num();
    const int team = omp_get_num_threads();  // the runtime may give fewer
    const Range range{std::min(total, grains * thread / team * grain),
                      std::min(total, grains * (thread + 1) / team * grain)};
    if (range.begin < range.end) body(range, thread);
  }
}

}  // namespace meshplan::kernels
