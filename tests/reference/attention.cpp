#include "reference/attention.hpp"

#include <cmath>
#include <limits>

namespace meshplan::reference {

bool is_visible(const AttentionInput& input, std::int64_t sequence, std::int64_t query,
                std::int64_t key) {
  const auto& shape = input.shape;
  if (!input.key_ranges.empty()) {
    const auto row = static_cast<std::size_t>(sequence * shape.query_len + query);
    const std::int64_t begin = input.key_ranges[2 * row], end = input.key_ranges[2 * row + 1];
    return key >= begin && key < end && (shape.window == 0 || key >= end - shape.window);
  }
  const std::int64_t distance = query + shape.query_offset - key;
  if (!input.key_lengths.empty() && key >= input.key_lengths[static_cast<std::size_t>(sequence)])
    return false;
  if (shape.causal && distance < 0) return false;
  return shape.window == 0 || distance < shape.window;
}

namespace {

/// Row `query` of the probabilities of one head, that of its sink, and its log sum exp.
struct Probabilities {
  std::vector<double> values;
  double sink = 0.0;
  std::vector<double> slopes;  // of the scores that they are made of, in the uncapped ones
  double lse = -std::numeric_limits<double>::infinity();
};

Probabilities probabilities(const AttentionInput& input, std::int64_t sequence, std::int64_t query,
                            int head) {
  const auto& shape = input.shape;
  const int size = shape.head_size;
  const int kv_head = head / (shape.heads / shape.kv_heads);
  Probabilities result;
  result.values.resize(static_cast<std::size_t>(shape.key_len));
  result.slopes.resize(static_cast<std::size_t>(shape.key_len), 1.0);
  double sum = 0.0;
  for (std::int64_t key = 0; key < shape.key_len; ++key) {
    if (!is_visible(input, sequence, query, key)) continue;
    double score = 0.0;
    for (int e = 0; e < size; ++e)
      score += input.q(sequence * shape.query_len + query, head * size + e) *
               input.k(sequence * shape.key_len + key, kv_head * size + e);
    score *= double{shape.scale};
    if (shape.softcap > 0) {
      const double t = std::tanh(score / double{shape.softcap});
      score = double{shape.softcap} * t;
      result.slopes[static_cast<std::size_t>(key)] = 1.0 - t * t;
    }
    // Test inputs are small: no maximum is needed in fp64.
    sum += result.values[static_cast<std::size_t>(key)] = std::exp(score);
  }
  if (!input.sinks.values.empty()) sum += result.sink = std::exp(input.sinks(0, head));
  if (sum == 0.0) return result;
  for (double& value : result.values) value /= sum;
  result.sink /= sum;
  result.lse = std::log(sum);
  return result;
}

}  // namespace

AttentionOutput attention(const AttentionInput& input) {
  const auto& shape = input.shape;
  const int value_size = shape.value_size();
  AttentionOutput output{Matrix(input.q.rows, std::int64_t{shape.heads} * value_size),
                         Matrix(input.q.rows, shape.heads)};
  for (std::int64_t b = 0; b < shape.num_sequences; ++b) {
    for (std::int64_t i = 0; i < shape.query_len; ++i) {
      for (int head = 0; head < shape.heads; ++head) {
        const int kv_head = head / (shape.heads / shape.kv_heads);
        const Probabilities p = probabilities(input, b, i, head);
        const std::int64_t row = b * shape.query_len + i;
        output.lse(row, head) = p.lse;
        for (std::int64_t j = 0; j < shape.key_len; ++j)
          for (int e = 0; e < value_size; ++e)
            output.o(row, head * value_size + e) +=
                p.values[static_cast<std::size_t>(j)] *
                input.v(b * shape.key_len + j, kv_head * value_size + e);
      }
    }
  }
  return output;
}

AttentionGrads attention_backward(const AttentionInput& input, const Matrix& output_grad) {
  const auto& shape = input.shape;
  const int size = shape.head_size;
  const int value_size = shape.value_size();
  AttentionGrads grads{Matrix(input.q.rows, input.q.columns), Matrix(input.k.rows, input.k.columns),
                       Matrix(input.v.rows, input.v.columns), Matrix(1, shape.heads)};
  for (std::int64_t b = 0; b < shape.num_sequences; ++b) {
    for (std::int64_t i = 0; i < shape.query_len; ++i) {
      for (int head = 0; head < shape.heads; ++head) {
        const int kv_head = head / (shape.heads / shape.kv_heads);
        const std::int64_t row = b * shape.query_len + i;
        const Probabilities all = probabilities(input, b, i, head);
        const std::vector<double>& p = all.values;
        std::vector<double> dp(p.size());
        double row_sum = 0.0;
        for (std::size_t j = 0; j < p.size(); ++j) {
          const std::int64_t key_row = b * shape.key_len + static_cast<std::int64_t>(j);
          for (int e = 0; e < value_size; ++e) {
            const double grad = output_grad(row, head * value_size + e);
            dp[j] += grad * input.v(key_row, kv_head * value_size + e);
            grads.dv(key_row, kv_head * value_size + e) += p[j] * grad;
          }
          row_sum += p[j] * dp[j];
        }
        grads.dsinks(0, head) -= all.sink * row_sum;
        for (std::size_t j = 0; j < p.size(); ++j) {
          const std::int64_t key_row = b * shape.key_len + static_cast<std::int64_t>(j);
          const double ds = double{shape.scale} * all.slopes[j] * p[j] * (dp[j] - row_sum);
          for (int e = 0; e < size; ++e) {
            grads.dq(row, head * size + e) += ds * input.k(key_row, kv_head * size + e);
            grads.dk(key_row, kv_head * size + e) += ds * input.q(row, head * size + e);
          }
        }
      }
    }
  }
  return grads;
}

}  // namespace meshplan::reference
