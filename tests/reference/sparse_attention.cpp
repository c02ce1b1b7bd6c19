#include "reference/sparse_attention.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace meshplan::reference {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double dot(const Matrix& a, std::int64_t row_a, int begin_a, const Matrix& b, std::int64_t row_b,
           int begin_b, int count) {
  double sum = 0.0;
  for (int i = 0; i < count; ++i) sum += a(row_a, begin_a + i) * b(row_b, begin_b + i);
  return sum;
}

/// to[begin + i] += factor * from[begin + i]
void add_row(Matrix& to, std::int64_t row_to, int begin_to, double factor, const Matrix& from,
             std::int64_t row_from, int begin_from, int count) {
  for (int i = 0; i < count; ++i)
    to(row_to, begin_to + i) += factor * from(row_from, begin_from + i);
}

double index_score(const IndexerInput& input, std::int64_t token, std::int64_t key_row) {
  const int size = input.shape.head_size;
  double score = 0.0;
  for (int j = 0; j < input.shape.heads; ++j)
    score += input.weights(token, j) *
             std::max(dot(input.q, token, j * size, input.k, key_row, 0, size), 0.0);
  return score * double{input.shape.scale};
}

/// Positions that query `token` chose.
std::vector<std::int32_t> chosen(const std::vector<std::int32_t>& choices, int top_k,
                                 std::int64_t token) {
  std::vector<std::int32_t> result;
  for (int c = 0; c < top_k; ++c)
    if (const std::int32_t key = choices[static_cast<std::size_t>(token * top_k + c)]; key >= 0)
      result.push_back(key);
  return result;
}

struct Probabilities {
  std::vector<double> values;
  double lse;  // -infinity without keys
};

/// Of one head of one query over the keys that it chose.
Probabilities probabilities(const AttentionInput& input, const std::vector<std::int32_t>& keys,
                            std::int64_t token, int head) {
  const auto& shape = input.shape;
  const int kv_head = head / (shape.heads / shape.kv_heads);
  const std::int64_t first = token / shape.query_len * shape.key_len;
  std::vector<double> p;
  for (const std::int32_t key : keys)
    p.push_back(std::exp(double{shape.scale} * dot(input.q, token, head * shape.head_size, input.k,
                                                   first + key, kv_head * shape.head_size,
                                                   shape.head_size)));
  const double sum = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& value : p) value /= sum;
  return {p, std::log(sum)};
}

/// Softmax of the index scores of the chosen keys.
std::vector<double> index_softmax(const IndexerInput& input, const std::vector<std::int32_t>& keys,
                                  std::int64_t token) {
  const std::int64_t first = token / input.shape.query_len * input.shape.key_len;
  std::vector<double> result;
  for (const std::int32_t key : keys)
    result.push_back(std::exp(index_score(input, token, first + key)));
  const double sum = std::accumulate(result.begin(), result.end(), 0.0);
  for (double& value : result) value /= sum;
  return result;
}

/// The probabilities of a query's choices, which sum to 1; empty if there are none.
std::vector<double> target(const Matrix& probabilities, std::int64_t token, std::size_t count) {
  std::vector<double> result;
  for (std::size_t c = 0; c < count; ++c)
    result.push_back(probabilities(token, static_cast<std::int64_t>(c)));
  const double total = std::accumulate(result.begin(), result.end(), 0.0);
  if (total == 0.0) return {};
  for (double& value : result) value /= total;
  return result;
}

}  // namespace

Matrix index_scores(const IndexerInput& input) {
  const auto& shape = input.shape;
  const AttentionInput mask{.shape = shape,
                            .q = {},
                            .k = {},
                            .v = {},
                            .key_lengths = input.key_lengths,
                            .key_ranges = input.key_ranges};
  Matrix scores(input.q.rows, shape.key_len);
  for (std::int64_t token = 0; token < input.q.rows; ++token) {
    const std::int64_t sequence = token / shape.query_len;
    for (std::int64_t key = 0; key < shape.key_len; ++key)
      scores(token, key) = is_visible(mask, sequence, token % shape.query_len, key)
                               ? index_score(input, token, sequence * shape.key_len + key)
                               : -kInfinity;
  }
  return scores;
}

std::vector<std::int32_t> largest_keys(const Matrix& scores, int top_k) {
  std::vector<std::int32_t> choices;
  for (std::int64_t row = 0; row < scores.rows; ++row) {
    std::vector<std::int32_t> keys(static_cast<std::size_t>(scores.columns));
    std::iota(keys.begin(), keys.end(), 0);
    std::erase_if(keys, [&](std::int32_t key) { return scores(row, key) == -kInfinity; });
    std::stable_sort(keys.begin(), keys.end(), [&](std::int32_t a, std::int32_t b) {
      return scores(row, a) > scores(row, b);
    });
    if (keys.size() > static_cast<std::size_t>(top_k)) keys.resize(static_cast<std::size_t>(top_k));
    std::sort(keys.begin(), keys.end());
    keys.resize(static_cast<std::size_t>(top_k), -1);
    choices.insert(choices.end(), keys.begin(), keys.end());
  }
  return choices;
}

SparseAttentionOutput sparse_attention(const AttentionInput& input,
                                       const std::vector<std::int32_t>& choices, int top_k) {
  const auto& shape = input.shape;
  const int value_size = shape.value_size();
  SparseAttentionOutput output{{Matrix(input.q.rows, std::int64_t{shape.heads} * value_size),
                                Matrix(input.q.rows, shape.heads)},
                               Matrix(input.q.rows, top_k)};
  for (std::int64_t token = 0; token < input.q.rows; ++token) {
    const std::vector<std::int32_t> keys = chosen(choices, top_k, token);
    const std::int64_t first = token / shape.query_len * shape.key_len;
    for (int head = 0; head < shape.heads; ++head) {
      const int kv_head = head / (shape.heads / shape.kv_heads);
      const Probabilities p = probabilities(input, keys, token, head);
      output.attention.lse(token, head) = p.lse;
      for (std::size_t c = 0; c < keys.size(); ++c) {
        output.probabilities(token, static_cast<std::int64_t>(c)) += p.values[c];
        add_row(output.attention.o, token, head * value_size, p.values[c], input.v, first + keys[c],
                kv_head * value_size, value_size);
      }
    }
  }
  return output;
}

AttentionGrads sparse_attention_backward(const AttentionInput& input,
                                         const std::vector<std::int32_t>& choices, int top_k,
                                         const Matrix& output_grad) {
  const auto& shape = input.shape;
  const int size = shape.head_size;
  const int value_size = shape.value_size();
  AttentionGrads grads{Matrix(input.q.rows, input.q.columns), Matrix(input.k.rows, input.k.columns),
                       Matrix(input.v.rows, input.v.columns), Matrix(1, shape.heads)};
  for (std::int64_t token = 0; token < input.q.rows; ++token) {
    const std::vector<std::int32_t> keys = chosen(choices, top_k, token);
    const std::int64_t first = token / shape.query_len * shape.key_len;
    for (int head = 0; head < shape.heads; ++head) {
      const int kv_head = head / (shape.heads / shape.kv_heads);
      const std::vector<double> p = probabilities(input, keys, token, head).values;
      std::vector<double> dp;
      for (const std::int32_t key : keys)
        dp.push_back(dot(output_grad, token, head * value_size, input.v, first + key,
                         kv_head * value_size, value_size));
      const double row_sum = std::inner_product(p.begin(), p.end(), dp.begin(), 0.0);
      for (std::size_t c = 0; c < keys.size(); ++c) {
        const std::int64_t row = first + keys[c];
        const double ds = double{shape.scale} * p[c] * (dp[c] - row_sum);
        add_row(grads.dq, token, head * size, ds, input.k, row, kv_head * size, size);
        add_row(grads.dk, row, kv_head * size, ds, input.q, token, head * size, size);
        add_row(grads.dv, row, kv_head * value_size, p[c], output_grad, token, head * value_size,
                value_size);
      }
    }
  }
  return grads;
}

Matrix indexer_loss(const IndexerInput& input, const std::vector<std::int32_t>& choices, int top_k,
                    const Matrix& probabilities) {
  Matrix loss(input.q.rows, 1);
  for (std::int64_t token = 0; token < input.q.rows; ++token) {
    const std::vector<std::int32_t> keys = chosen(choices, top_k, token);
    const std::vector<double> softmax = index_softmax(input, keys, token);
    const std::vector<double> p = target(probabilities, token, keys.size());
    for (std::size_t c = 0; c < p.size(); ++c)
      if (p[c] > 0.0) loss(token, 0) += p[c] * std::log(p[c] / softmax[c]);
  }
  return loss;
}

IndexerGrads indexer_loss_backward(const IndexerInput& input,
                                   const std::vector<std::int32_t>& choices, int top_k,
                                   const Matrix& probabilities, double scale) {
  const int size = input.shape.head_size;
  IndexerGrads grads{Matrix(input.q.rows, input.q.columns), Matrix(input.k.rows, input.k.columns),
                     Matrix(input.weights.rows, input.weights.columns)};
  for (std::int64_t token = 0; token < input.q.rows; ++token) {
    const std::vector<std::int32_t> keys = chosen(choices, top_k, token);
    const std::vector<double> softmax = index_softmax(input, keys, token);
    const std::vector<double> p = target(probabilities, token, keys.size());
    for (std::size_t c = 0; c < p.size(); ++c) {
      const std::int64_t row = token / input.shape.query_len * input.shape.key_len + keys[c];
      const double score_grad = scale * double{input.shape.scale} * (softmax[c] - p[c]);
      for (int j = 0; j < input.shape.heads; ++j) {
        const double product = dot(input.q, token, j * size, input.k, row, 0, size);
        if (product <= 0.0) continue;
        grads.dweights(token, j) += score_grad * product;
        const double grad = score_grad * input.weights(token, j);
        add_row(grads.dq, token, j * size, grad, input.k, row, 0, size);
        add_row(grads.dk, row, 0, grad, input.q, token, j * size, size);
      }
    }
  }
  return grads;
}

}  // namespace meshplan::reference
