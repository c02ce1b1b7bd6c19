#include "runtime/weights/snapshot_size.hpp"

#include <algorithm>

#include "program/compression/compression.hpp"
#include "weights/checkpoint_layout.hpp"

namespace meshplan::runtime {

std::int64_t snapshot_bytes(const program::Program& program) {
  std::int64_t elements = 0;  // of all states
  std::int64_t frozen = 0;    // of weights only
  for (const program::Bucket& bucket : program.buckets) {
    const int replicas = program::group_size(bucket.group, program.plan);
    (bucket.frozen ? frozen : elements) += (bucket.range.size() + replicas - 1) / replicas;
  }
  const auto partial = std::ranges::count(state_regions(program), true, &StateRegion::frozen_only);
  const auto num_buckets = static_cast<int>(program.buckets.size());
  const std::int64_t total = elements * (std::ssize(state_regions(program)) - partial) + frozen +
                             program::errors_begin(program, num_buckets) +
                             program::sum_errors_begin(program, num_buckets);
  return total * size_of(DType::F32);
}

}  // namespace meshplan::runtime
