#include "device/reduce.cuh"
#include "device/rows.cuh"
#include "experts/operators.hpp"
#include "experts/router_load.cuh"
#include "kernels/experts/router.hpp"

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

__device__ inline float bias_of(const RouterForward& op, int x) {
  if (op.bias_dtype == DType::F32) return static_cast<const float*>(op.correction_bias)[x];
  if (op.bias_dtype == DType::F16)
    return to_float(static_cast<const __half*>(op.correction_bias)[x]);
  return to_float(static_cast<const __nv_bfloat16*>(op.correction_bias)[x]);
}

/// The scores of token t, by its warp.
template <class T>
__device__ void write_scores(const RouterForward& op, std::int64_t t, int lane) {
  const T* logits = static_cast<const T*>(op.logits) + t * op.logits_stride;
  float* scores = op.scores + t * op.experts;
  if (op.score == RouterScore::Sigmoid && op.lse == nullptr) {
    for (int x = lane; x < op.experts; x += kWarp)
      scores[x] = 1.0F / (1.0F + expf(-to_float(logits[x])));
    return;
  }
  float max = -INFINITY;
  for (int x = lane; x < op.experts; x += kWarp) max = fmaxf(max, to_float(logits[x]));
  max = warp_reduce(max, Max());
  // The scores may lie where the logits do; a lane reads what it writes itself.
  const bool sigmoid = op.score == RouterScore::Sigmoid;
  float sum = 0.0F;
  for (int x = lane; x < op.experts; x += kWarp) {
    const float logit = to_float(logits[x]);
    const float exponential = expf(logit - max);
    scores[x] = sigmoid ? 1.0F / (1.0F + expf(-logit)) : exponential;
    sum += exponential;
  }
  sum = warp_reduce(sum, Sum());
  if (op.lse != nullptr && lane == 0) op.lse[t] = max + logf(sum);
  if (sigmoid) return;
  for (int x = lane; x < op.experts; x += kWarp) scores[x] /= sum;
}

/// Leaves only experts of the best groups eligible: the others' keys become -infinity. Lane g
/// scores groups g, g + 32, ...
__device__ inline void limit_groups(const RouterForward& op, float* keys, float* group_scores,
                                    int lane) {
  const int size = op.experts / op.num_groups;
  __syncwarp();  // the keys were written by other lanes
  for (int group = lane; group < op.num_groups; group += kWarp) {
    float first = -INFINITY;
    float second = -INFINITY;
    for (int x = group * size; x < (group + 1) * size; ++x) {
      second = fmaxf(second, fminf(first, keys[x]));
      first = fmaxf(first, keys[x]);
    }
    group_scores[group] = op.group_experts == 1 ? first : first + second;
  }
  __syncwarp();
  for (int group = lane; group < op.num_groups; group += kWarp) {
    int better = 0;
    for (int other = 0; other < op.num_groups; ++other)
      better += group_scores[other] > group_scores[group] ||
                (group_scores[other] == group_scores[group] && other < group);
    if (better < op.top_groups) continue;
    for (int x = group * size; x < (group + 1) * size; ++x) keys[x] = -INFINITY;
  }
  __syncwarp();
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
  float* keys = dynamic_shared<float>() + warp * (op.experts + op.num_groups);
  for (int x = lane; x < op.experts; x += kWarp) {
    const float key = op.correction_bias == nullptr ? scores[x] : scores[x] + bias_of(op, x);
    keys[x] = key == key ? key : INFINITY;  // NaN is chosen, so that it is seen
  }
  if (op.num_groups > 1) limit_groups(op, keys, keys + op.experts, lane);
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

/// Adds to a token's score gradients those of the load balancing loss; see cpu/src/router.cpp.
__device__ inline void add_balance_gradient(const RouterBackward& op, std::int64_t t,
                                            float* dscores, int lane) {
  const float* scores = op.scores + t * op.experts;
  const float weight = op.balance_weight * *op.loss_scale;
  float total = 0.0F;
  float mean = 0.0F;
  for (int x = lane; x < op.experts; x += kWarp) {
    total += scores[x];
    mean += scores[x] * load_of(op.counts, op.experts, t, x);
  }
  total = warp_reduce(total, Sum());
  mean = warp_reduce(mean, Sum()) / total;
  for (int x = lane; x < op.experts; x += kWarp)
    dscores[x] += weight * (load_of(op.counts, op.experts, t, x) - mean) / total;
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
  const bool counted = t < op.tokens - op.uncounted_tokens;  // the same in all lanes
  if (op.balance_weight != 0.0F && counted) add_balance_gradient(op, t, dscores, lane);
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
  // The z-loss z lse^2 has the gradient 2 z lse times the softmax.
  if (op.z_weight != 0.0F && counted) mean -= 2.0F * op.z_weight * *op.loss_scale * op.lse[t];
  T* dlogits = static_cast<T*>(op.dlogits) + t * op.dlogits_stride;
  for (int x = lane; x < op.experts; x += kWarp) {
    const float s = scores[x];
    const float grad =
        op.score == RouterScore::Softmax ? s * (dscores[x] - mean) : dscores[x] * s * (1.0F - s);
    dlogits[x] = from_float<T>(grad);
  }
}

/// @param floats  of shared memory for each token
template <class Op>
LaunchShape shape_of(const Context& context, const Op& op, std::int64_t floats) {
  require_invariant(op.top_k >= 1 && op.top_k <= op.experts, "top_k is among the experts");
  const std::int64_t bytes = kWarps * floats * size_of(DType::F32);
  require_invariant(bytes <= context.max_shared_bytes, "a router's experts fit shared memory");
  return {.grid = dim3(static_cast<unsigned>(ceil_div(op.tokens, kWarps))),
          .block = dim3(kRowThreads),
          .shared_bytes = static_cast<std::size_t>(bytes)};
}

}  // namespace

void enqueue(const Context& context, const RouterForward& op) {
  with_float_type(op.dtype, [&](auto type) {
    launch(context, shape_of(context, op, op.experts + op.num_groups),
           forward_kernel<typename decltype(type)::type>, op);
  });
}

void enqueue(const Context& context, const RouterBackward& op) {
  with_float_type(op.dtype, [&](auto type) {
    launch(context, shape_of(context, op, op.experts),
           backward_kernel<typename decltype(type)::type>, op);
  });
}

}  // namespace meshplan::kernels::cuda
