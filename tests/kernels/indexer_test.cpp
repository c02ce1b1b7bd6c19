#include <algorithm>
#include <tuple>

#include "kernels/cpu_backend.hpp"
#include "kernels/support.hpp"
#include "reference/sparse_attention.hpp"

namespace meshplan::kernels::test {

namespace {

struct Case {
  AttentionShape shape;  // heads and head_size of the indexer
  int top_k;
  std::vector<std::int32_t> key_lengths = {};
  std::vector<std::int32_t> key_ranges = {};
};

/// Causal ranges of documents packed one after the other.
std::vector<std::int32_t> packed(std::initializer_list<int> lengths) {
  std::vector<std::int32_t> ranges;
  std::int32_t begin = 0, position = 0;
  for (const int length : lengths) {
    for (int i = 0; i < length; ++i) {
      ranges.push_back(begin);
      ranges.push_back(++position);
    }
    begin = position;
  }
  return ranges;
}

AttentionShape indexer_shape(std::int64_t sequences, std::int64_t queries, std::int64_t keys,
                             int heads, int size) {
  return {.num_sequences = sequences,
          .query_len = queries,
          .key_len = keys,
          .heads = heads,
          .kv_heads = 1,
          .head_size = size,
          .scale = 1.0F / std::sqrt(static_cast<float>(heads * size))};
}

const std::vector<Case>& cases() {
  static const std::vector<Case> all = [] {
    std::vector<Case> result = {{indexer_shape(1, 1, 1, 1, 16), 1},
                                {indexer_shape(2, 70, 70, 4, 32), 9},
                                {indexer_shape(1, 140, 140, 3, 20), 66},
                                {indexer_shape(1, 90, 90, 2, 16), 200},
                                {indexer_shape(2, 35, 35, 2, 16), 5, {9, 35}},
                                {indexer_shape(1, 150, 150, 5, 8), 12, {}, packed({10, 90, 50})},
                                {indexer_shape(1, 20, 300, 2, 64), 16},
                                {indexer_shape(1, 60, 60, 2, 16), 6},
                                {indexer_shape(1, 40, 70, 2, 16), 4}};
    result[6].shape.query_offset = 280;  // a later chunk of queries, as in context parallelism
    result[7].shape.window = 20;
    result[8].shape.query_offset = -10;  // the first queries see no key
    return result;
  }();
  return all;
}

reference::IndexerInput make_input(const Case& c, DType dtype) {
  const AttentionShape& s = c.shape;
  const std::int64_t queries = s.num_sequences * s.query_len;
  return {s,
          random_in(dtype, queries, std::int64_t{s.heads} * s.head_size, 1, 2.0),
          random_in(dtype, s.num_sequences * s.key_len, s.head_size, 2, 2.0),
          random_in(dtype, queries, s.heads, 3),
          c.key_lengths,
          c.key_ranges};
}

/// Error of an index score, |q| and |k| <= 2 and |w| <= 1: a sum of Hi Di products.
double score_error(const AttentionShape& shape) {
  const std::int64_t length = std::int64_t{shape.heads} * shape.head_size;
  return tolerance(DType::F32, length, 4.0 * static_cast<double>(length)) * double{shape.scale};
}

/// Everything on a device, and the three operations.
class DeviceIndexer {
 public:
  DeviceIndexer(Backend& backend, const reference::IndexerInput& input, int top_k, DType dtype,
                std::int64_t padding = 3)
      : backend_(backend),
        input_(input),
        dtype_(dtype),
        top_k_(top_k),
        q_(backend, input.q, dtype, padding),
        k_(backend, input.k, dtype, padding),
        weights_(backend, input.weights, dtype, padding),
        lengths_(backend, input.key_lengths),
        ranges_(backend, input.key_ranges),
        loss_(backend, input.q.rows, 1),
        dq_(backend, input.q.rows, input.q.columns, dtype, padding),
        dk_(backend, input.k.rows, input.k.columns, dtype, padding),
        dweights_(backend, input.weights.rows, input.weights.columns, dtype, padding) {}

  std::vector<std::int32_t> select(std::int64_t uncounted_sequences = 0) const {
    const DeviceVector<std::int32_t> choices(backend_,
                                             static_cast<std::size_t>(input_.q.rows * top_k_), -7);
    run(backend_, SelectKeysForward{.indexer = indexer(),
                                    .top_k = top_k_,
                                    .choices = choices.data(),
                                    .uncounted_sequences = uncounted_sequences});
    return choices.read();
  }
  Matrix loss(const std::vector<std::int32_t>& choices, const Matrix& probabilities) const {
    const DeviceVector<std::int32_t> chosen(backend_, choices);
    const DeviceMatrix target(backend_, probabilities);
    run(backend_, IndexerLossForward{.indexer = indexer(),
                                     .top_k = top_k_,
                                     .choices = chosen.data(),
                                     .probabilities = target.floats(),
                                     .loss = loss_.floats()});
    return loss_.read();
  }
  reference::IndexerGrads backward(const std::vector<std::int32_t>& choices,
                                   const Matrix& probabilities, float scale) const {
    const DeviceVector<std::int32_t> chosen(backend_, choices);
    const DeviceMatrix target(backend_, probabilities);
    const DeviceVector<float> factor(backend_, std::vector<float>{scale});
    run(backend_, IndexerLossBackward{.indexer = indexer(),
                                      .top_k = top_k_,
                                      .choices = chosen.data(),
                                      .probabilities = target.floats(),
                                      .scale = factor.data(),
                                      .dq = dq_.data(),
                                      .dq_stride = dq_.stride(),
                                      .dk = dk_.data(),
                                      .dk_stride = dk_.stride(),
                                      .dweights = dweights_.data(),
                                      .dweights_stride = dweights_.stride()});
    return {dq_.read(), dk_.read(), dweights_.read()};
  }

 private:
  Indexer indexer() const {
    return {.shape = input_.shape,
            .dtype = dtype_,
            .q = q_.data(),
            .q_stride = q_.stride(),
            .k = k_.data(),
            .k_stride = k_.stride(),
            .weights = weights_.data(),
            .weights_stride = weights_.stride(),
            .key_lengths = input_.key_lengths.empty() ? nullptr : lengths_.data(),
            .key_ranges = input_.key_ranges.empty() ? nullptr : ranges_.data()};
  }
  Backend& backend_;
  const reference::IndexerInput& input_;
  DType dtype_;
  int top_k_;
  DeviceMatrix q_, k_, weights_;
  DeviceVector<std::int32_t> lengths_, ranges_;
  DeviceMatrix loss_, dq_, dk_, dweights_;
};

/// Whether a row of choices is one that scores within `error` of the expected ones give: as many as
/// there can be, ascending, none far below the lowest of the expected ones, none left out far
/// above.
bool is_selection(const std::int32_t* choices, const std::int32_t* expected, int top_k,
                  const Matrix& scores, std::int64_t row, double error) {
  std::vector<bool> chosen(static_cast<std::size_t>(scores.columns));
  double lowest = std::numeric_limits<double>::infinity();
  for (int c = 0; c < top_k; ++c) {
    if ((choices[c] < 0) != (expected[c] < 0) || choices[c] >= scores.columns) return false;
    if (choices[c] < 0) {
      if (choices[c] != -1) return false;
      continue;
    }
    if (c > 0 && choices[c] <= choices[c - 1]) return false;
    chosen[static_cast<std::size_t>(choices[c])] = true;
    lowest = std::min(lowest, scores(row, expected[c]));
  }
  for (std::int64_t key = 0; key < scores.columns; ++key) {
    const double score = scores(row, key);
    if (chosen[static_cast<std::size_t>(key)] ? score < lowest - error : score > lowest + error)
      return false;
  }
  return true;
}

/// Random probabilities of the choices, some of them zero.
Matrix random_probabilities(const std::vector<std::int32_t>& choices, std::int64_t rows,
                            int top_k) {
  Matrix result = reference::random_matrix(rows, top_k, 8);
  for (std::size_t i = 0; i < choices.size(); ++i)
    result.values[i] = choices[i] < 0 || i % 11 == 0
                           ? 0.0
                           : double{static_cast<float>(std::fabs(result.values[i]))};
  return result;
}

double largest(const Matrix& m) {
  double result = 0.0;
  for (const double value : m.values) result = std::max(result, std::fabs(value));
  return result;
}

}  // namespace

TEST_CASE("each query selects the keys of its largest index scores", "[kernels][indexer]") {
  for (const DType dtype : {DType::F32, DType::BF16, DType::F16})
    for (std::size_t i = 0; i < cases().size(); ++i) {
      INFO(name_of(dtype) << " case " << i);
      const int top_k = cases()[i].top_k;
      const auto input = make_input(cases()[i], dtype);
      const Matrix scores = reference::index_scores(input);
      const auto expected = reference::largest_keys(scores, top_k);
      for_each_backend([&](Backend& backend) {
        const auto choices = DeviceIndexer(backend, input, top_k, dtype).select();
        std::int64_t wrong = 0;
        for (std::int64_t row = 0; row < scores.rows; ++row)
          wrong += is_selection(&choices[static_cast<std::size_t>(row * top_k)],
                                &expected[static_cast<std::size_t>(row * top_k)], top_k, scores,
                                row, 2 * score_error(input.shape))
                       ? 0
                       : 1;
        CHECK(wrong == 0);
      });
    }
}

TEST_CASE("queries of uncounted sequences select no key and have no loss", "[kernels][indexer]") {
  const Case c{indexer_shape(3, 20, 20, 2, 4), 6};
  const auto input = make_input(c, DType::F32);
  for_each_backend([&](Backend& backend) {
    const DeviceIndexer indexer(backend, input, c.top_k, DType::F32);
    auto expected = indexer.select();
    std::fill(expected.begin() + std::ptrdiff_t{20} * c.top_k, expected.end(), -1);
    const auto choices = indexer.select(/*uncounted_sequences=*/2);
    CHECK(choices == expected);
    const Matrix probabilities = random_probabilities(choices, input.q.rows, c.top_k);
    const Matrix loss = indexer.loss(choices, probabilities);
    const auto grads = indexer.backward(choices, probabilities, 0.5F);
    for (std::int64_t row = 20; row < 60; ++row) {
      CHECK(loss(row, 0) == 0.0);
      for (std::int64_t column = 0; column < grads.dq.columns; ++column)
        CHECK(grads.dq(row, column) == 0.0);
      for (std::int64_t column = 0; column < grads.dk.columns; ++column)
        CHECK(grads.dk(row, column) == 0.0);
    }
  });
}

TEST_CASE("of equal index scores the lower position is selected", "[kernels][indexer]") {
  // Whole numbers: scores are exact in fp32, and many are equal. Some are zero, some negative.
  const Case c{indexer_shape(1, 200, 200, 2, 4), 12};
  auto input = make_input(c, DType::F32);
  input.shape.scale = 1.0F;
  for (Matrix* part : {&input.q, &input.k, &input.weights})
    for (double& value : part->values) value = std::round(value);
  const auto expected = reference::largest_keys(reference::index_scores(input), c.top_k);
  for_each_backend([&](Backend& backend) {
    CHECK(DeviceIndexer(backend, input, c.top_k, DType::F32).select() == expected);
  });
}

TEST_CASE("a key without a number for a score is selected", "[kernels][indexer]") {
  const Case c{indexer_shape(1, 100, 100, 2, 16), 4};
  auto input = make_input(c, DType::F32);
  input.k(17, 5) = std::nan("");
  for_each_backend([&](Backend& backend) {
    const auto choices = DeviceIndexer(backend, input, c.top_k, DType::F32).select();
    for (std::size_t row = 20; row < 100; ++row)
      CHECK(std::count(choices.begin() + static_cast<std::ptrdiff_t>(4 * row),
                       choices.begin() + static_cast<std::ptrdiff_t>(4 * row + 4), 17) == 1);
  });
}

TEST_CASE("the indexer's loss and its gradients agree with the explicit softmax",
          "[kernels][indexer]") {
  std::vector<Case> all = cases();
  all.push_back({indexer_shape(1, 260, 260, 2, 8), 70});  // more than one block of gradients
  for (const DType dtype : {DType::F32, DType::BF16, DType::F16})
    for (std::size_t i = 0; i < (dtype == DType::F32 ? all.size() : cases().size()); ++i) {
      INFO(name_of(dtype) << " case " << i);
      const int top_k = all[i].top_k;
      const auto input = make_input(all[i], dtype);
      const auto choices = reference::largest_keys(reference::index_scores(input), top_k);
      const Matrix probabilities = random_probabilities(choices, input.q.rows, top_k);
      constexpr float kScale = 0.25F;
      const Matrix loss = reference::indexer_loss(input, choices, top_k, probabilities);
      const auto expected =
          reference::indexer_loss_backward(input, choices, top_k, probabilities, double{kScale});
      // A score's error is a relative one of its probability.
      const double error = 2 * score_error(input.shape) + tolerance(DType::F32, top_k, 1.0);
      const double relative = 2 * error + stored_roundoff(dtype);
      const double of_keys = std::sqrt(static_cast<double>(input.shape.query_len)) * relative;
      for_each_backend([&](Backend& backend) {
        const DeviceIndexer indexer(backend, input, top_k, dtype);
        check_close(indexer.loss(choices, probabilities), loss, 4 * error);
        const auto grads = indexer.backward(choices, probabilities, kScale);
        check_close(grads.dq, expected.dq, relative * std::max(largest(expected.dq), 0.1));
        check_close(grads.dk, expected.dk, of_keys * std::max(largest(expected.dk), 0.1));
        check_close(grads.dweights, expected.dweights,
                    relative * std::max(largest(expected.dweights), 0.1));
      });
    }
}

TEST_CASE("the reference gradients of the indexer's loss agree with finite differences",
          "[kernels][indexer][reference]") {
  const Case c{indexer_shape(2, 6, 6, 3, 4), 3};
  const auto input = make_input(c, DType::F32);
  const auto choices = reference::largest_keys(reference::index_scores(input), c.top_k);
  const Matrix probabilities = random_probabilities(choices, input.q.rows, c.top_k);
  Matrix scale(input.q.rows, 1);
  for (double& value : scale.values) value = 0.25;
  const auto grads = reference::indexer_loss_backward(input, choices, c.top_k, probabilities, 0.25);
  const auto by = [&](Matrix reference::IndexerInput::*member) {
    return reference::finite_difference(
        [&](const Matrix& moved) {
          auto changed = input;
          changed.*member = moved;
          return reference::indexer_loss(changed, choices, c.top_k, probabilities);
        },
        input.*member, scale);
  };
  check_close(grads.dq, by(&reference::IndexerInput::q), 1e-8);
  check_close(grads.dk, by(&reference::IndexerInput::k), 1e-8);
  check_close(grads.dweights, by(&reference::IndexerInput::weights), 1e-8);
}

TEST_CASE("the indexer gives the same bits twice and for any number of threads",
          "[kernels][indexer]") {
  const Case c{indexer_shape(1, 260, 260, 2, 20), 70};
  const auto input = make_input(c, DType::F32);
  const auto choices = reference::largest_keys(reference::index_scores(input), c.top_k);
  const Matrix probabilities = random_probabilities(choices, input.q.rows, c.top_k);
  const auto results_on = [&](Backend& backend) {
    const DeviceIndexer indexer(backend, input, c.top_k, DType::F32);
    const auto grads = indexer.backward(choices, probabilities, 0.5F);
    return std::make_tuple(indexer.select(), indexer.loss(choices, probabilities).values,
                           grads.dq.values, grads.dk.values, grads.dweights.values);
  };
  for_each_backend([&](Backend& backend) { CHECK(results_on(backend) == results_on(backend)); });
  const auto expected = results_on(*make_cpu_backend(1));
  for (const int num_threads : {2, 3})
    CHECK(results_on(*make_cpu_backend(num_threads)) == expected);
}

}  // namespace meshplan::kernels::test
