#include "device/reduce.cuh"
#include "device/rows.cuh"
#include "experts/operators.hpp"
#include "experts/router_load.cuh"

namespace meshplan::kernels::cuda {

namespace {

/// Choices [begin, end) of the tokens here that belong to a sequence.
struct ChoiceRange {
  std::int64_t begin;
  std::int64_t end;
};
__device__ inline ChoiceRange choices_of(std::int64_t sequence, std::int64_t first_token,
                                         std::int64_t seq_len, std::int64_t tokens, int top_k) {
  const std::int64_t begin = sequence * seq_len - first_token;
  const std::int64_t end = begin + seq_len;
  return {(begin > 0 ? begin : 0) * top_k, (end < tokens ? end : tokens) * top_k};
}

/// Block (expert, sequence); without sequences all tokens are one.
__global__ void load_kernel(const ExpertLoad op) {
  const int expert = static_cast<int>(blockIdx.x);
  const ChoiceRange range =
      op.load != nullptr ? choices_of(blockIdx.y, op.first_token, op.seq_len, op.tokens, op.top_k)
                         : ChoiceRange{0, op.tokens * op.top_k};
  int count = 0;
  for (std::int64_t c = range.begin + threadIdx.x; c < range.end; c += kRowThreads)
    count += op.choices[c] == expert;
  count = group_reduce<kRowThreads>(count, Sum());
  if (threadIdx.x != 0) return;
  if (op.load != nullptr)
    op.load[std::int64_t{blockIdx.y} * op.experts + expert] = static_cast<float>(count);
  else
    op.total[expert] += static_cast<float>(count);
}

/// Tokens that chose the expert and come before the ones here of a sequence (or chunk).
__device__ inline std::int64_t loads_before(const LimitChoices& op, std::int64_t sequence,
                                            int expert) {
  const SequenceCounts& counts = op.counts;
  const std::int64_t chunks = counts.cp > 1 ? 2 : 1;
  const std::int64_t first = sequence / chunks * chunks;
  const int own = place_of_part(counts, op.part, sequence);
  float taken = 0.0F;  // whole numbers
  for (int part = 0; part < counts.parts; ++part)
    for (std::int64_t other = first; other < first + chunks; ++other)
      if (place_of_part(counts, part, other) < own)
        taken += counts.load[(part * counts.sequences + other) * op.experts + expert];
  return static_cast<std::int64_t>(taken);
}

/// Block (expert, sequence): its choices in order, a block's threads at a time.
__global__ void limit_kernel(const LimitChoices op) {
  const int expert = static_cast<int>(blockIdx.x);
  const std::int64_t sequence = blockIdx.y;
  const ChoiceRange range =
      choices_of(sequence, op.counts.first_token, op.counts.seq_len, op.tokens, op.top_k);
  const std::int64_t counted = (op.tokens - op.uncounted_tokens) * op.top_k;
  std::int64_t taken = loads_before(op, sequence, expert);
  for (std::int64_t first = range.begin; first < range.end; first += kRowThreads) {
    const std::int64_t c = first + threadIdx.x;
    const bool own = c < range.end && op.choices[c] == expert;
    int total = 0;
    const int before = block_exclusive_sum<kRowThreads>(own ? 1 : 0, total);
    if (own) op.kept[c] = c < counted && taken + before < op.capacity ? expert : -1;
    taken += total;
  }
}

/// One block, a warp for each token in turn; the sums of its warps in their order.
__global__ void losses_kernel(const RouterLosses op) {
  constexpr int kWarps = kRowThreads / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  double balance = 0.0;
  double z = 0.0;
  for (std::int64_t t = warp; t < op.tokens; t += kWarps) {
    if (op.z_weight != 0.0F && lane == 0) {
      const double lse = op.lse[t];
      z += lse * lse;
    }
    if (op.balance_weight == 0.0F) continue;
    float total = 0.0F;
    float weighted = 0.0F;
    for (int x = lane; x < op.experts; x += kWarp) {
      const float score = op.scores[t * op.experts + x];
      total += score;
      weighted += score * load_of(op.counts, op.experts, t, x);
    }
    total = warp_reduce(total, Sum());
    weighted = warp_reduce(weighted, Sum());
    if (lane == 0) balance += static_cast<double>(weighted) / static_cast<double>(total);
  }
  balance = group_reduce<kRowThreads>(balance, Sum());
  z = group_reduce<kRowThreads>(z, Sum());
  if (threadIdx.x != 0) return;
  *op.balance += static_cast<double>(op.balance_weight) * balance;
  *op.z += static_cast<double>(op.z_weight) * z;
}

template <class T>
__global__ void balance_kernel(const BalanceExperts op) {
  if (op.gradient_scale != nullptr && isnan(*op.gradient_scale)) return;
  float total = 0.0F;  // whole numbers
  for (int x = static_cast<int>(threadIdx.x); x < op.experts; x += kRowThreads) total += op.load[x];
  const float mean = group_reduce<kRowThreads>(total, Sum()) / static_cast<float>(op.experts);
  for (int x = static_cast<int>(threadIdx.x); x < op.experts; x += kRowThreads) {
    const float missing = mean - op.load[x];
    if (missing != 0.0F) op.bias[x] += missing > 0.0F ? op.rate : -op.rate;
    if (op.copy != nullptr) static_cast<T*>(op.copy)[x] = from_float<T>(op.bias[x]);
  }
}

LaunchShape by_expert(int experts, std::int64_t sequences) {
  return {.grid = dim3(static_cast<unsigned>(experts), static_cast<unsigned>(sequences)),
          .block = dim3(kRowThreads)};
}

}  // namespace

void enqueue(const Context& context, const ExpertLoad& op) {
  if (op.load != nullptr) {
    ExpertLoad by_sequence = op;
    by_sequence.total = nullptr;
    launch(context, by_expert(op.experts, op.sequences), load_kernel, by_sequence);
  }
  if (op.total == nullptr) return;
  ExpertLoad all = op;
  all.load = nullptr;
  launch(context, by_expert(op.experts, 1), load_kernel, all);
}

void enqueue(const Context& context, const LimitChoices& op) {
  launch(context, by_expert(op.experts, op.counts.sequences), limit_kernel, op);
}

void enqueue(const Context& context, const RouterLosses& op) {
  launch(context, by_expert(1, 1), losses_kernel, op);
}

void enqueue(const Context& context, const BalanceExperts& op) {
  with_float_type(op.copy_dtype, [&](auto type) {
    launch(context, by_expert(1, 1), balance_kernel<typename decltype(type)::type>, op);
  });
}

}  // namespace meshplan::kernels::cuda
