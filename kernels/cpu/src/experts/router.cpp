// The router of a mixture of experts: its choice, its losses, and what keeps experts balanced.
#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.hpp"
#include "device/float_bits.hpp"
#include "device/threads.hpp"
#include "experts/operators.hpp"

namespace meshplan::kernels::cpu {

namespace {

float element(const void* data, DType dtype, std::int64_t index) {
  return with_float_bits(
      dtype, [&]<class T>(T /*type*/) { return to_float(static_cast<const T*>(data)[index]); });
}

void set_element(void* data, DType dtype, std::int64_t index, float value) {
  with_float_bits(dtype, [&]<class T>(T /*type*/) { set(static_cast<T*>(data)[index], value); });
}

void require_router(int experts, int top_k) {
  require_invariant(top_k >= 1 && top_k <= experts, "top_k is among the experts");
}

/// log sum exp of a row of logits.
template <class Logit>
float log_sum_exp(int experts, const Logit& logit) {
  float maximum = -std::numeric_limits<float>::infinity();
  for (int x = 0; x < experts; ++x) maximum = std::max(maximum, logit(x));
  float sum = 0.0F;
  for (int x = 0; x < experts; ++x) sum += std::exp(logit(x) - maximum);
  return maximum + std::log(sum);
}

/// The scores of token t, which may lie where its logits do.
void write_scores(const RouterForward& op, std::int64_t t) {
  const auto logit = [&](int x) { return element(op.logits, op.dtype, t * op.logits_stride + x); };
  float* scores = op.scores + t * op.experts;
  if (op.lse != nullptr) op.lse[t] = log_sum_exp(op.experts, logit);
  if (op.score == RouterScore::Sigmoid) {
    for (int x = 0; x < op.experts; ++x) scores[x] = 1.0F / (1.0F + std::exp(-logit(x)));
    return;
  }
  float maximum = -std::numeric_limits<float>::infinity();
  for (int x = 0; x < op.experts; ++x) maximum = std::max(maximum, logit(x));
  float sum = 0.0F;
  for (int x = 0; x < op.experts; ++x) sum += scores[x] = std::exp(logit(x) - maximum);
  for (int x = 0; x < op.experts; ++x) scores[x] /= sum;
}

/// What experts are chosen by.
float key_of(const RouterForward& op, const float* scores, std::int32_t x) {
  const float value = op.correction_bias == nullptr
                          ? scores[x]
                          : scores[x] + element(op.correction_bias, op.bias_dtype, x);
  // NaN is chosen, so that it is seen
  return std::isnan(value) ? std::numeric_limits<float>::infinity() : value;
}

/// Sorted insertion of `candidate` into the `count` best so far of at most `most`; a later one must
/// be strictly better, so ties keep the smaller one. @returns the new count
template <class Key>
int insert_best(std::int32_t* best, int count, int most, std::int32_t candidate, const Key& key) {
  const float own = key(candidate);
  if (count == most && !(own > key(best[count - 1]))) return count;
  int place = count < most ? count++ : count - 1;
  for (; place > 0 && own > key(best[place - 1]); --place) best[place] = best[place - 1];
  best[place] = candidate;
  return count;
}

/// The sum of the `group_experts` best keys of a group.
float score_of_group(const RouterForward& op, const float* scores, std::int32_t group) {
  const int size = op.experts / op.num_groups;
  float first = -std::numeric_limits<float>::infinity();
  float second = first;
  for (std::int32_t x = group * size; x < (group + 1) * size; ++x) {
    const float own = key_of(op, scores, x);
    second = std::max(second, std::min(first, own));
    first = std::max(first, own);
  }
  return op.group_experts == 1 ? first : first + second;
}

/// Scratch of a token: the scores of the groups, and which of them are eligible.
std::int64_t group_scratch_bytes(const RouterForward& op) {
  return op.num_groups > 1 ? op.num_groups * (size_of(DType::F32) + size_of(DType::I32)) : 0;
}

/// Calls visit(expert) for the eligible experts, ascending.
template <class Visit>
void for_each_eligible(const RouterForward& op, const float* scores, float* scratch,
                       const Visit& visit) {
  if (op.num_groups == 1) {
    for (std::int32_t x = 0; x < op.experts; ++x) visit(x);
    return;
  }
  float* group_scores = scratch;
  auto* best = reinterpret_cast<std::int32_t*>(scratch + op.num_groups);
  int held = 0;
  for (std::int32_t group = 0; group < op.num_groups; ++group) {
    group_scores[group] = score_of_group(op, scores, group);
    held = insert_best(best, held, op.top_groups, group,
                       [&](std::int32_t g) { return group_scores[g]; });
  }
  std::sort(best, best + held);
  const int size = op.experts / op.num_groups;
  for (int i = 0; i < held; ++i)
    for (std::int32_t x = best[i] * size; x < (best[i] + 1) * size; ++x) visit(x);
}

void choose(const RouterForward& op, std::int64_t t, float* scratch) {
  const float* scores = op.scores + t * op.experts;
  std::int32_t* choices = op.choices + t * op.top_k;
  float* probabilities = op.probabilities + t * op.top_k;
  int held = 0;
  for_each_eligible(op, scores, scratch, [&](std::int32_t expert) {
    held = insert_best(choices, held, op.top_k, expert,
                       [&](std::int32_t x) { return key_of(op, scores, x); });
  });
  float sum = 0.0F;
  for (int k = 0; k < op.top_k; ++k) sum += scores[choices[k]];
  const float factor = op.normalize ? op.scaling_factor / sum : op.scaling_factor;
  for (int k = 0; k < op.top_k; ++k) probabilities[k] = scores[choices[k]] * factor;
}

/// Tokens of expert x in the sequence of token t, on all ranks.
float load_of(const SequenceCounts& counts, int experts, std::int64_t t, int x) {
  const int chunks = counts.cp > 1 ? 2 : 1;
  const std::int64_t sequence = (counts.first_token + t) / counts.seq_len / chunks * chunks;
  float load = 0.0F;
  for (int part = 0; part < counts.parts; ++part)
    for (int chunk = 0; chunk < chunks; ++chunk)
      load += counts.load[(part * counts.sequences + sequence + chunk) * experts + x];
  return load;
}

/// Adds to a token's score gradients those of the load balancing loss: of w sum_x load_x p_x with
/// p = s / S, S = sum of s, d/ds_x = w (load_x - sum_y load_y p_y) / S.
void add_balance_gradient(const RouterBackward& op, std::int64_t t, float* dscores) {
  const float* scores = op.scores + t * op.experts;
  const float weight = op.balance_weight * *op.loss_scale;
  float total = 0.0F;
  float mean = 0.0F;
  for (int x = 0; x < op.experts; ++x) {
    total += scores[x];
    mean += scores[x] * load_of(op.counts, op.experts, t, x);
  }
  mean /= total;
  for (int x = 0; x < op.experts; ++x)
    dscores[x] += weight * (load_of(op.counts, op.experts, t, x) - mean) / total;
}

/// @param dscores  room for the gradients of one token's scores
void write_dlogits(const RouterBackward& op, std::int64_t t, float* dscores) {
  const float* scores = op.scores + t * op.experts;
  const std::int32_t* choices = op.choices + t * op.top_k;
  const float* dprobabilities = op.dprobabilities + t * op.top_k;
  for (int x = 0; x < op.experts; ++x)
    dscores[x] = op.dscores == nullptr ? 0.0F : op.dscores[t * op.experts + x];
  const bool counted = t < op.tokens - op.uncounted_tokens;
  if (op.balance_weight != 0.0F && counted) add_balance_gradient(op, t, dscores);
  float sum = 0.0F;
  float weighted = 0.0F;  // sum of dprobability * score
  for (int k = 0; k < op.top_k; ++k) {
    sum += scores[choices[k]];
    weighted += dprobabilities[k] * scores[choices[k]];
  }
  for (int k = 0; k < op.top_k; ++k) {
    const float gradient =
        op.normalize ? (dprobabilities[k] - weighted / sum) / sum : dprobabilities[k];
    dscores[choices[k]] += op.scaling_factor * gradient;
  }
  float mean = 0.0F;  // sum of dscore * score, for softmax
  for (int x = 0; x < op.experts; ++x) mean += dscores[x] * scores[x];
  // The z-loss z lse^2 has the gradient 2 z lse times the softmax.
  if (op.z_weight != 0.0F && counted) mean -= 2.0F * op.z_weight * *op.loss_scale * op.lse[t];
  for (int x = 0; x < op.experts; ++x) {
    const float gradient = op.score == RouterScore::Softmax
                               ? scores[x] * (dscores[x] - mean)
                               : dscores[x] * scores[x] * (1.0F - scores[x]);
    set_element(op.dlogits, op.dtype, t * op.dlogits_stride + x, gradient);
  }
}

}  // namespace

std::int64_t scratch_bytes(const Context& context, const RouterForward& op) {
  return context.num_threads * group_scratch_bytes(op);
}

void run(const Context& context, const RouterForward& op) {
  require_router(op.experts, op.top_k);
  require_invariant(op.num_groups >= 1 && op.experts % op.num_groups == 0 && op.top_groups >= 1 &&
                        op.top_groups <= op.num_groups &&
                        op.top_k <= op.experts / op.num_groups * op.top_groups,
                    "the eligible groups hold top_k experts");
  require_scratch(context, scratch_bytes(context, op));
  parallel_for(context.num_threads, op.tokens, kRowGrain, [&](Range range, int thread) {
    float* scratch = context.thread_scratch(thread, group_scratch_bytes(op) / size_of(DType::F32));
    for (std::int64_t t = range.begin; t < range.end; ++t) {
      write_scores(op, t);
      choose(op, t, scratch);
    }
  });
}

std::int64_t scratch_bytes(const Context& context, const RouterBackward& op) {
  return std::int64_t{context.num_threads} * op.experts * size_of(DType::F32);
}

void run(const Context& context, const RouterBackward& op) {
  require_router(op.experts, op.top_k);
  require_invariant(op.z_weight == 0.0F || op.score == RouterScore::Softmax,
                    "the z-loss has a gradient through softmax scores only");
  require_scratch(context, scratch_bytes(context, op));
  parallel_for(context.num_threads, op.tokens, kRowGrain, [&](Range range, int thread) {
    for (std::int64_t t = range.begin; t < range.end; ++t)
      write_dlogits(op, t, context.thread_scratch(thread, op.experts));
  });
}

void run(const Context& /*context*/, const ExpertLoad& op) {
  if (op.load != nullptr) std::fill_n(op.load, op.sequences * op.experts, 0.0F);
  for (std::int64_t choice = 0; choice < op.tokens * op.top_k; ++choice) {
    const std::int32_t expert = op.choices[choice];
    if (expert < 0) continue;
    if (op.total != nullptr) ++op.total[expert];
    if (op.load == nullptr) continue;
    const std::int64_t sequence = (op.first_token + choice / op.top_k) / op.seq_len;
    ++op.load[sequence * op.experts + expert];
  }
}

void run(const Context& /*context*/, const RouterLosses& op) {
  double balance = 0.0;
  double z = 0.0;
  for (std::int64_t t = 0; t < op.tokens; ++t) {
    if (op.z_weight != 0.0F) z += double{op.lse[t]} * double{op.lse[t]};
    if (op.balance_weight == 0.0F) continue;
    double total = 0.0;
    double weighted = 0.0;
    for (int x = 0; x < op.experts; ++x) {
      const double score{op.scores[t * op.experts + x]};
      total += score;
      weighted += score * double{load_of(op.counts, op.experts, t, x)};
    }
    balance += weighted / total;
  }
  *op.balance += double{op.balance_weight} * balance;
  *op.z += double{op.z_weight} * z;
}

namespace {

/// Adds to sum (X) what tokens chose that come before the ones here of a sequence (or chunk).
void add_loads_before(const LimitChoices& op, std::int64_t sequence, float* sum) {
  const SequenceCounts& counts = op.counts;
  const std::int64_t chunks = counts.cp > 1 ? 2 : 1;
  const std::int64_t first = sequence / chunks * chunks;
  const int own = place_of_part(counts, op.part, sequence);
  for (int part = 0; part < counts.parts; ++part)
    for (std::int64_t other = first; other < first + chunks; ++other) {
      if (place_of_part(counts, part, other) >= own) continue;
      const float* load = counts.load + (part * counts.sequences + other) * op.experts;
      for (int x = 0; x < op.experts; ++x) sum[x] += load[x];
    }
}

}  // namespace

std::int64_t scratch_bytes(const Context& /*context*/, const LimitChoices& op) {
  return op.counts.sequences * op.experts * size_of(DType::F32);
}

void run(const Context& context, const LimitChoices& op) {
  require_scratch(context, scratch_bytes(context, op));
  const std::int64_t size = op.counts.sequences * op.experts;
  auto* taken =
      reinterpret_cast<float*>(context.scratch.data());  // (B, X): by tokens that come before
  std::fill_n(taken, size, 0.0F);
  for (std::int64_t sequence = 0; sequence < op.counts.sequences; ++sequence)
    add_loads_before(op, sequence, taken + sequence * op.experts);
  const std::int64_t counted = (op.tokens - op.uncounted_tokens) * op.top_k;
  std::fill(op.kept + counted, op.kept + op.tokens * op.top_k, -1);
  for (std::int64_t choice = 0; choice < counted; ++choice) {
    const std::int64_t sequence = (op.counts.first_token + choice / op.top_k) / op.counts.seq_len;
    const std::int32_t expert = op.choices[choice];
    const float before = taken[sequence * op.experts + expert]++;
    op.kept[choice] = before < static_cast<float>(op.capacity) ? expert : -1;
  }
}

void run(const Context& /*context*/, const BalanceExperts& op) {
  if (op.gradient_scale != nullptr && std::isnan(*op.gradient_scale)) return;
  double total = 0.0;
  for (int x = 0; x < op.experts; ++x) total += double{op.load[x]};
  const double mean = total / op.experts;
  for (int x = 0; x < op.experts; ++x) {
    const double missing = mean - double{op.load[x]};
    if (missing != 0.0) op.bias[x] += missing > 0.0 ? op.rate : -op.rate;
    if (op.copy != nullptr) set_element(op.copy, op.copy_dtype, x, op.bias[x]);
  }
}

}  // namespace meshplan::kernels::cpu
