#include "zero/weight_fetch.hpp"

#include <fmt/format.h>

namespace meshplan::program {

Operation fetch_weights(const Bucket& bucket, int index, Phase phase) {
  return {.name = fmt::format("weights[{}:{}].fetch", bucket.range.begin, bucket.range.end),
          .phase = phase,
          .lane = Lane::FromHost,
          .work = StepOp{.work = StepWork::FetchWeights,
                         .range = bucket.range,
                         .bucket = index,
                         .expert = bucket.expert()}};
}

}  // namespace meshplan::program
