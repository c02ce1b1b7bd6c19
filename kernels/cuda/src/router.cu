#include "kernels/router.hpp"
#include "operators.hpp"
#include "reduce.cuh"
#include "rows.cuh"

namespace meshplan::kernels::cuda {

namespace {

constexpr int kWarps = kRowThreads / kWarp;  // a token for each

/// An expert as a candidate of the choice.
struct Candidate {
  float key;
  int expert;
};

__device__ inline Candidate shuffle_xor(const Candidate& value, int distance) {
  return {__shfl_xor_sync(kAllLanes, value.key, distance),
          __shfl_xor_sync(kAllLanes, value.expert, distance)};
}

struct Better {
  __device__ Candidate operator()(const Candidate& a, const Candidate& b) const {
    if (a.key != b.key) return a.key > b.key ? a : b;
    return a.expert < b.expert ? a : b;
  }
};

/// The scores of token t, by its warp.
template <class T>
__device__ void write_scores(const RouterForward& op, std::int64_t t, int lane) {
  const T* logits = static_cast<const T*>(op.logits) + t * op.logits_stride;
  float* scores = op.scores + t * op.experts;
  if (op.score == RouterScore::Sigmoid) {
    for (int x = lane; x < op.experts; x += kWarp)
      scores[x] = 1.0F / (1.0F + expf(-to_float(logits[x])));
    return;
  }
  float max = -INFINITY;
  for (int x = lane; x < op.experts; x += kWarp) max = fmaxf(max, to_float(logits[x]));
  max = warp_reduce(max, Max());
  float sum = 0.0F;
  for (int x = lane; x < op.experts; x += kWarp) {
    scores[x] = expf(to_float(logits[x]) - max);
    sum += scores[x];
  }
  sum = warp_reduce(sum, Sum());
  for (int x = lane; x < op.experts; x += kWarp) scores[x] /= sum;
}

/// A warp for each token. Shared: the keys of the experts that are not chosen yet.
template <class T>
__global__ void forward_kernel(const RouterForward op) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const std::int64_t t = std::int64_t{blockIdx.x} * kWarps + warp;
  if (t >= op.tokens) return;
  write_scores<T>(op, t, lane);
  // A lane reads below only what it wrote itself, so no barrier is needed.
  const float* scores = op.scores + t * op.experts;
  float* keys = dynamic_shared<float>() + warp * op.experts;
  for (int x = lane; x < op.experts; x += kWarp) {
    const float key = op.correction_bias == nullptr ? scores[x] : scores[x] + op.correction_bias[x];
    keys[x] = key == key ? key : INFINITY;  // NaN is chosen, so that it is seen
  }
  float sum = 0.0F;
  float own_score = 0.0F;  // lane k keeps choice k, k + 32, ... until the sum is known
  for (int k = 0; k < op.top_k; ++k) {
    Candidate best{-INFINITY, op.experts};
    for (int x = lane; x < op.experts; x += kWarp) best = Better()(best, Candidate{keys[x], x});
    best = warp_reduce(best, Better());
    if (best.expert % kWarp == lane) {
      own_score = scores[best.expert];
      keys[best.expert] = -INFINITY;
      op.choices[t * op.top_k + k] = best.expert;
      op.probabilities[t * op.top_k + k] = own_score;
    }
    sum += __shfl_sync(kAllLanes, own_score, best.expert % kWarp);
  }
  __syncwarp();  // the probabilities were written by other lanes
  const float factor = op.normalize ? op.scaling_factor / sum : op.scaling_factor;
  for (int k = lane; k < op.top_k; k += kWarp) op.probabilities[t * op.top_k + k] *= factor;
}

/// A warp for each token. Shared: the gradients of its scores.
template <class T>
__global__ void backward_kernel(const RouterBackward op) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const std::int64_t t = std::int64_t{blockIdx.x} * kWarps + warp;
  if (t >= op.tokens) return;
  const float* scores = op.scores + t * op.experts;
  const std::int32_t* choices = op.choices + t * op.top_k;
  const float* dprobabilities = op.dprobabilities + t * op.top_k;
  float* dscores = dynamic_shared<float>() + warp * op.experts;
  for (int x = lane; x < op.experts; x += kWarp)
    dscores[x] = op.dscores != nullptr ? op.dscores[t * op.experts + x] : 0.0F;
  float sum = 0.0F;
  float weighted = 0.0F;  // sum of dprobability * score
  for (int k = lane; k < op.top_k; k += kWarp) {
    sum += scores[choices[k]];
    weighted += dprobabilities[k] * scores[choices[k]];
  }
  sum = warp_reduce(sum, Sum());
  weighted = warp_reduce(weighted, Sum());
  __syncwarp();
  for (int k = lane; k < op.top_k; k += kWarp) {
    const float grad =
        op.normalize ? (dprobabilities[k] - weighted / sum) / sum : dprobabilities[k];
    dscores[choices[k]] += op.scaling_factor * grad;
  }
  __syncwarp();
  float mean = 0.0F;  // sum of dscore * score, for softmax
  for (int x = lane; x < op.experts; x += kWarp) mean += dscores[x] * scores[x];
  mean = warp_reduce(mean, Sum());
  T* dlogits = static_cast<T*>(op.dlogits) + t * op.dlogits_stride;
  for (int x = lane; x < op.experts; x += kWarp) {
    const float s = scores[x];
    const float grad =
        op.score == RouterScore::Softmax ? s * (dscores[x] - mean) : dscores[x] * s * (1.0F - s);
    dlogits[x] = from_float<T>(grad);
  }
}

template <class Op>
LaunchShape shape_of(const Context& context, const Op& op) {
  require_invariant(op.top_k >= 1 && op.top_k <= op.experts, "top_k is among the experts");
  const std::int64_t bytes = std::int64_t{kWarps} * op.experts * size_of(DType::F32);
  require_invariant(bytes <= context.max_shared_bytes, "a router's experts fit shared memory");
  return {.grid = dim3(static_cast<unsigned>(ceil_div(op.tokens, kWarps))),
          .block = dim3(kRowThreads),
          .shared_bytes = static_cast<std::size_t>(bytes)};
}

}  // namespace

void enqueue(const Context& context, const RouterForward& op) {
  with_float_type(op.dtype, [&](auto type) {
    launch(context, shape_of(context, op), forward_kernel<typename decltype(type)::type>, op);
  });
}

void enqueue(const Context& context, const RouterBackward& op) {
  with_float_type(op.dtype, [&](auto type) {
    launch(context, shape_of(context, op), backward_kernel<typename decltype(type)::type>, op);
  });
}

}  // namespace meshplan::kernels::cuda
