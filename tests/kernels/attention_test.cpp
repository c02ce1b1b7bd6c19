#include "reference/attention.hpp"

#include <tuple>

#include "kernels/cpu_backend.hpp"
#include "kernels/support.hpp"
#include "support/cases.hpp"

namespace meshplan::kernels::test {

namespace {

/// The shape with scale 1 / sqrt(head size).
AttentionShape scaled(AttentionShape shape) {
  shape.scale = 1.0F / std::sqrt(static_cast<float>(shape.head_size));
  return shape;
}

struct Case {
  AttentionShape shape;
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

/// Ranges of the queries that lie at `first` to `first + count` of a longer run.
std::vector<std::int32_t> part_of(const std::vector<std::int32_t>& ranges, std::size_t first,
                                  std::size_t count) {
  const auto begin = ranges.begin() + static_cast<std::ptrdiff_t>(2 * first);
  return {begin, begin + static_cast<std::ptrdiff_t>(2 * count)};
}

std::vector<std::int32_t> joined(std::vector<std::int32_t> a, const std::vector<std::int32_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {{.num_sequences = 1,
        .query_len = 1,
        .key_len = 1,
        .heads = 1,
        .kv_heads = 1,
        .head_size = 16}},
      {{.num_sequences = 2,
        .query_len = 7,
        .key_len = 7,
        .heads = 2,
        .kv_heads = 1,
        .head_size = 32}},
      {{.num_sequences = 2,
        .query_len = 33,
        .key_len = 33,
        .heads = 4,
        .kv_heads = 2,
        .head_size = 64}},
      {{.num_sequences = 1,
        .query_len = 130,
        .key_len = 130,
        .heads = 2,
        .kv_heads = 2,
        .head_size = 80}},
      {{.num_sequences = 1,
        .query_len = 65,
        .key_len = 65,
        .heads = 6,
        .kv_heads = 2,
        .head_size = 128}},
      {{.num_sequences = 1,
        .query_len = 40,
        .key_len = 40,
        .heads = 2,
        .kv_heads = 2,
        .head_size = 20}},
      {{.num_sequences = 2,
        .query_len = 70,
        .key_len = 70,
        .heads = 2,
        .kv_heads = 1,
        .head_size = 16,
        .causal = false}},
      {{.num_sequences = 3,
        .query_len = 35,
        .key_len = 35,
        .heads = 2,
        .kv_heads = 2,
        .head_size = 16,
        .causal = false},
       {35, 1, 20}},
      {{.num_sequences = 2,
        .query_len = 35,
        .key_len = 35,
        .heads = 2,
        .kv_heads = 2,
        .head_size = 16},
       {9, 35}},
      // a later chunk of queries against all keys so far, as in context parallelism
      {{.num_sequences = 1,
        .query_len = 20,
        .key_len = 90,
        .heads = 2,
        .kv_heads = 1,
        .head_size = 16,
        .query_offset = 70}},
      // an earlier chunk: the first queries see no key
      {{.num_sequences = 1,
        .query_len = 40,
        .key_len = 70,
        .heads = 2,
        .kv_heads = 1,
        .head_size = 16,
        .query_offset = -10}},
      {{.num_sequences = 1,
        .query_len = 150,
        .key_len = 150,
        .heads = 2,
        .kv_heads = 1,
        .head_size = 16,
        .window = 20}},
      {{.num_sequences = 1,
        .query_len = 19,
        .key_len = 19,
        .heads = 2,
        .kv_heads = 2,
        .head_size = 192,
        .window = 9}},
      {{.num_sequences = 1,
        .query_len = 35,
        .key_len = 50,
        .heads = 3,
        .kv_heads = 1,
        .head_size = 256,
        .query_offset = 15},
       {41}},
      // latent attention: value heads smaller, or larger, than query and key heads
      {{.num_sequences = 2,
        .query_len = 37,
        .key_len = 37,
        .heads = 3,
        .kv_heads = 3,
        .head_size = 24,
        .value_head_size = 12}},
      {{.num_sequences = 1,
        .query_len = 70,
        .key_len = 70,
        .heads = 4,
        .kv_heads = 2,
        .head_size = 192,
        .value_head_size = 128}},
      {{.num_sequences = 1,
        .query_len = 33,
        .key_len = 80,
        .heads = 2,
        .kv_heads = 1,
        .head_size = 16,
        .value_head_size = 40,
        .query_offset = 47}},
      // packed documents, some of one token; causal is what the ranges say, not the shape
      {{.num_sequences = 2,
        .query_len = 150,
        .key_len = 150,
        .heads = 4,
        .kv_heads = 2,
        .head_size = 32},
       {},
       joined(packed({70, 1, 40, 1, 1, 37}), packed({150}))},
      // two far parts of the queries of a document and one of another: tiles between are unseen
      {{.num_sequences = 1,
        .query_len = 45,
        .key_len = 500,
        .heads = 2,
        .kv_heads = 1,
        .head_size = 16},
       {},
       joined(part_of(packed({400, 100}), 5, 20),
              joined(part_of(packed({400, 100}), 370, 15), part_of(packed({400, 100}), 480, 10)))},
      // as in a step of a ring: the first and the last queries see nothing
      {{.num_sequences = 1,
        .query_len = 60,
        .key_len = 40,
        .heads = 2,
        .kv_heads = 2,
        .head_size = 16,
        .causal = false},
       {},
       [] {
         std::vector<std::int32_t> ranges;
         for (std::int32_t i = 0; i < 60; ++i) {
           ranges.push_back(i < 20 ? 0 : i < 50 ? 10 : 40);
           ranges.push_back(i < 20 ? 0 : i < 50 ? 30 : 40);
         }
         return ranges;
       }()},
      // soft caps far below the largest scores: the first hides what is not seen, the second has
      // value heads of their own and queries that see nothing, the third windows inside documents
      {{.num_sequences = 2,
        .query_len = 70,
        .key_len = 70,
        .heads = 4,
        .kv_heads = 2,
        .head_size = 64,
        .softcap = 1.5F}},
      {{.num_sequences = 1,
        .query_len = 40,
        .key_len = 70,
        .heads = 2,
        .kv_heads = 1,
        .head_size = 16,
        .value_head_size = 40,
        .query_offset = -10,
        .softcap = 0.5F}},
      {{.num_sequences = 1,
        .query_len = 150,
        .key_len = 150,
        .heads = 2,
        .kv_heads = 1,
        .head_size = 256,
        .window = 20,
        .softcap = 50.0F},
       {},
       packed({10, 90, 50})},
      // windows inside documents
      {{.num_sequences = 1,
        .query_len = 150,
        .key_len = 150,
        .heads = 2,
        .kv_heads = 1,
        .head_size = 16,
        .window = 20},
       {},
       packed({10, 90, 50})},
  };
  return all;
}

/// Rows that begin at multiples of 16 bytes, which some kernels copy faster, or do not.
std::int64_t padding_of(std::size_t case_index) {
  return case_index % 2 == 0 ? 8 : 3;
}

reference::AttentionInput make_input(const Case& c, DType dtype, bool sinks = false) {
  const AttentionShape& s = c.shape;
  const std::int64_t queries = s.num_sequences * s.query_len;
  const std::int64_t keys = s.num_sequences * s.key_len;
  return {scaled(s),
          random_in(dtype, queries, s.heads * s.head_size, 1, 2.0),
          random_in(dtype, keys, s.kv_heads * s.head_size, 2, 2.0),
          random_in(dtype, keys, s.kv_heads * s.value_size(), 3),
          c.key_lengths,
          c.key_ranges,
          sinks ? random_in(dtype, 1, s.heads, 5, 3.0) : Matrix()};
}

/// k and v of a fused buffer: [k | v] side by side.
Matrix side_by_side(const Matrix& a, const Matrix& b) {
  Matrix result(a.rows, a.columns + b.columns);
  for (std::int64_t row = 0; row < a.rows; ++row) {
    for (std::int64_t i = 0; i < a.columns; ++i) result(row, i) = a(row, i);
    for (std::int64_t i = 0; i < b.columns; ++i) result(row, a.columns + i) = b(row, i);
  }
  return result;
}

/// Everything on a device, and the two operations.
class Attention {
 public:
  /// Rows of all operands are `padding` elements further apart than they are long.
  Attention(Backend& backend, const reference::AttentionInput& input, const Matrix& output_grad,
            DType dtype, std::int64_t padding = 3)
      : backend_(backend),
        shape_(input.shape),
        dtype_(dtype),
        q_(backend, input.q, dtype, padding),
        kv_(backend, side_by_side(input.k, input.v), dtype, padding),
        lengths_(backend, input.key_lengths),
        ranges_(backend, input.key_ranges),
        sinks_(backend, input.sinks, dtype),
        output_grad_(backend, output_grad, dtype, padding),
        o_(backend, input.q.rows, std::int64_t{shape_.heads} * shape_.value_size(), dtype, padding),
        lse_stride_(shape_.query_len + (input.sinks.values.empty() ? 5 : 0)),
        lse_(backend, shape_.num_sequences * shape_.heads, lse_stride_),
        dq_(backend, input.q.rows, input.q.columns, dtype, padding),
        dkv_(backend, input.k.rows, input.k.columns + input.v.columns, dtype, padding),
        dsinks_(backend, 1, shape_.heads),
        has_lengths_(!input.key_lengths.empty()),
        has_ranges_(!input.key_ranges.empty()),
        has_sinks_(!input.sinks.values.empty()) {}

  void forward() {
    run(backend_, AttentionForward{.shape = shape_,
                                   .dtype = dtype_,
                                   .q = q_.data(),
                                   .q_stride = q_.stride(),
                                   .k = kv_.data(),
                                   .v = at(kv_, kv_columns()),
                                   .kv_stride = kv_.stride(),
                                   .key_lengths = has_lengths_ ? lengths_.data() : nullptr,
                                   .key_ranges = has_ranges_ ? ranges_.data() : nullptr,
                                   .sinks = has_sinks_ ? sinks_.data() : nullptr,
                                   .o = o_.data(),
                                   .o_stride = o_.stride(),
                                   .lse = lse_.floats(),
                                   .lse_stride = lse_stride_});
  }
  void backward(bool deterministic = true) {
    run(backend_, AttentionBackward{.shape = shape_,
                                    .dtype = dtype_,
                                    .q = q_.data(),
                                    .q_stride = q_.stride(),
                                    .k = kv_.data(),
                                    .v = at(kv_, kv_columns()),
                                    .kv_stride = kv_.stride(),
                                    .key_lengths = has_lengths_ ? lengths_.data() : nullptr,
                                    .key_ranges = has_ranges_ ? ranges_.data() : nullptr,
                                    .o = o_.data(),
                                    .o_stride = o_.stride(),
                                    .output_grad = output_grad_.data(),
                                    .lse = lse_.floats(),
                                    .lse_stride = lse_stride_,
                                    .dq = dq_.data(),
                                    .dq_stride = dq_.stride(),
                                    .dk = dkv_.data(),
                                    .dv = at(dkv_, kv_columns()),
                                    .dkv_stride = dkv_.stride(),
                                    .choice = {.deterministic = deterministic}});
  }
  void sinks_grad(bool accumulate = false) {
    run(backend_, AttentionSinksGrad{.tokens = shape_.num_sequences * shape_.query_len,
                                     .queries = shape_.query_len,
                                     .heads = shape_.heads,
                                     .head_size = shape_.value_size(),
                                     .dtype = dtype_,
                                     .sinks = sinks_.data(),
                                     .o = o_.data(),
                                     .o_stride = o_.stride(),
                                     .output_grad = output_grad_.data(),
                                     .lse = lse_.floats(),
                                     .dsinks = dsinks_.floats(),
                                     .accumulate = accumulate});
  }
  const DeviceMatrix& dsinks() const { return dsinks_; }
  const DeviceMatrix& o() const { return o_; }
  const DeviceMatrix& lse_memory() const { return lse_; }
  /// (B Q, H), as the reference has it.
  Matrix lse() const {
    const Matrix memory = lse_.read();
    Matrix result(shape_.num_sequences * shape_.query_len, shape_.heads);
    for (std::int64_t row = 0; row < result.rows; ++row)
      for (int head = 0; head < shape_.heads; ++head)
        result(row, head) =
            memory(row / shape_.query_len * shape_.heads + head, row % shape_.query_len);
    return result;
  }
  const DeviceMatrix& dq() const { return dq_; }
  const DeviceMatrix& dkv() const { return dkv_; }
  std::int64_t kv_columns() const { return std::int64_t{shape_.kv_heads} * shape_.head_size; }

 private:
  void* at(const DeviceMatrix& matrix, std::int64_t column) const {
    return static_cast<char*>(matrix.data()) + column * size_of(dtype_);
  }
  Backend& backend_;
  AttentionShape shape_;
  DType dtype_;
  DeviceMatrix q_, kv_;
  DeviceVector<std::int32_t> lengths_, ranges_;
  DeviceMatrix sinks_, output_grad_, o_;
  std::int64_t lse_stride_;  // with sinks, whose gradient wants it so, dense
  DeviceMatrix lse_, dq_, dkv_, dsinks_;
  bool has_lengths_, has_ranges_, has_sinks_;
};

/// Rounding error of a scaled score, |q| and |k| <= 2: exp turns it into a relative error.
double score_error(const AttentionShape& shape) {
  const double magnitude = 4.0 * std::sqrt(static_cast<double>(shape.head_size));
  return static_cast<double>(shape.head_size + 16) * kEps32 * magnitude;
}

double largest(const Matrix& m) {
  double result = 0.0;
  for (const double value : m.values) result = std::max(result, std::fabs(value));
  return result;
}

}  // namespace

TEST_CASE("attention forward agrees with the explicit softmax", "[kernels][attention]") {
  const bool sinks = GENERATE(false, true);
  for (const DType dtype : {DType::F32, DType::BF16, DType::F16}) {
    for (std::size_t i = 0; i < cases().size(); ++i) {
      if (testing::few_cases() && sinks != (i % 2 == 1)) continue;  // each case once
      INFO(name_of(dtype) << " case " << i << (sinks ? " with sinks" : ""));
      const auto input = make_input(cases()[i], dtype, sinks);
      const auto expected = reference::attention(input);
      const double error = score_error(input.shape);
      for_each_backend([&](Backend& backend) {
        Attention attention(backend, input, Matrix(input.q.rows, expected.o.columns), dtype,
                            padding_of(i));
        attention.forward();
        // |v| <= 1, and the probabilities sum to 1
        check_close(attention.o().read(), expected.o,
                    2 * error + tolerance(dtype, input.shape.key_len, 1.0));
        check_close(attention.lse(), expected.lse, 2 * error + 16 * kEps32);
      });
    }
  }
}

TEST_CASE("attention backward agrees with the explicit softmax", "[kernels][attention]") {
  // In any order cuDNN runs another kernel, which knows neither sinks nor fp32.
  const auto form = GENERATE(table<bool, bool>({{false, true}, {true, true}, {false, false}}));
  const bool sinks = std::get<0>(form), deterministic = std::get<1>(form);
  for (const DType dtype : {DType::F32, DType::BF16, DType::F16}) {
    if (dtype == DType::F32 && !deterministic) continue;
    for (std::size_t i = 0; i < cases().size(); ++i) {
      if (testing::few_cases() && sinks != (i % 2 == 1)) continue;  // each case once
      INFO(name_of(dtype) << " case " << i << (sinks ? " with sinks" : "")
                          << (deterministic ? "" : " in any order"));
      const auto input = make_input(cases()[i], dtype, sinks);
      const Matrix output_grad = random_in(
          dtype, input.q.rows, std::int64_t{input.shape.heads} * input.shape.value_size(), 4);
      const auto expected = reference::attention_backward(input, output_grad);
      const double relative = 2 * score_error(input.shape) + tolerance(DType::F32, 200, 1.0) +
                              2 * stored_roundoff(dtype);
      // |dP - delta| <= 2 sqrt(E) or so, the probabilities of a row sum to 1, |q| and |k| <= 2; a
      // key's gradient sums over the queries that see it, whose errors are independent
      const double dq_magnitude = 4.0 * std::sqrt(static_cast<double>(input.shape.head_size));
      const double num_queries = std::sqrt(
          static_cast<double>(input.shape.heads / input.shape.kv_heads * input.shape.query_len));
      for_each_backend([&](Backend& backend) {
        Attention attention(backend, input, output_grad, dtype, padding_of(i));
        attention.forward();
        attention.backward(deterministic);
        check_close(attention.dq().read(), expected.dq, relative * dq_magnitude);
        const Matrix dkv = attention.dkv().read();
        const std::int64_t columns = attention.kv_columns();
        check_close(reference::slice_columns(dkv, 0, columns), expected.dk,
                    relative * num_queries * std::max(largest(expected.dk), 1.0));
        check_close(reference::slice_columns(dkv, columns, input.v.columns), expected.dv,
                    relative * num_queries * std::max(largest(expected.dv), 1.0));
      });
    }
  }
}

TEST_CASE("gradients of sinks agree with the explicit softmax", "[kernels][attention]") {
  for (const DType dtype : {DType::F32, DType::BF16, DType::F16}) {
    for (std::size_t i = 0; i < cases().size(); ++i) {
      INFO(name_of(dtype) << " case " << i);
      const auto input = make_input(cases()[i], dtype, /*sinks=*/true);
      const AttentionShape& shape = input.shape;
      const Matrix output_grad =
          random_in(dtype, input.q.rows, std::int64_t{shape.heads} * shape.value_size(), 4);
      const Matrix expected = reference::attention_backward(input, output_grad).dsinks;
      Matrix twice = expected;
      for (double& value : twice.values) value *= 2;
      // |do| and |v| are at most 1, so each of the products of a row sum is at most that; the
      // errors of a stored o are independent, those of a score make a relative error of the
      // probability
      const double relative = 2 * score_error(shape) + tolerance(DType::F32, 200, 1.0);
      const double row = static_cast<double>(shape.value_size());
      const auto tokens = static_cast<double>(shape.num_sequences * shape.query_len);
      const double bound =
          relative * row * std::sqrt(tokens) + stored_roundoff(dtype) * std::sqrt(row * tokens);
      for_each_backend([&](Backend& backend) {
        Attention attention(backend, input, output_grad, dtype, padding_of(i));
        attention.forward();
        attention.sinks_grad();
        check_close(attention.dsinks().read(), expected, bound);
        attention.sinks_grad(/*accumulate=*/true);
        check_close(attention.dsinks().read(), twice, 2 * bound);
      });
    }
  }
}

TEST_CASE("the attention reference backward agrees with finite differences",
          "[kernels][attention][reference]") {
  const bool sinks = GENERATE(false, true);
  const AttentionShape shape{.num_sequences = 2,
                             .query_len = 4,
                             .key_len = 4,
                             .heads = 4,
                             .kv_heads = 2,
                             .head_size = 3,
                             .value_head_size = 2};
  AttentionShape capped = shape;
  capped.softcap = 0.75F;
  const std::vector<std::int32_t> documents = joined(packed({3, 1}), packed({1, 3}));
  for (const Case& c : {Case{shape}, Case{shape, {}, documents}, Case{capped}}) {
    const auto input = make_input(c, DType::F32, sinks);
    const Matrix weights = reference::random_matrix(input.q.rows, 4 * 2, 9);
    const auto grads = reference::attention_backward(input, weights);
    const auto by = [&](Matrix reference::AttentionInput::*member) {
      return reference::finite_difference(
          [&](const Matrix& moved) {
            auto changed = input;
            changed.*member = moved;
            return reference::attention(changed).o;
          },
          input.*member, weights);
    };
    check_close(grads.dq, by(&reference::AttentionInput::q), 1e-8);
    check_close(grads.dk, by(&reference::AttentionInput::k), 1e-8);
    check_close(grads.dv, by(&reference::AttentionInput::v), 1e-8);
    if (sinks) check_close(grads.dsinks, by(&reference::AttentionInput::sinks), 1e-8);
  }
}

TEST_CASE("attention gives the same bits twice and for any number of threads",
          "[kernels][attention]") {
  const auto input = make_input({{.num_sequences = 2,
                                  .query_len = 70,
                                  .key_len = 70,
                                  .heads = 6,
                                  .kv_heads = 3,
                                  .head_size = 32}},
                                DType::F32, /*sinks=*/true);
  const Matrix output_grad = random_in(DType::F32, input.q.rows, input.q.columns, 4);
  std::vector<std::vector<std::uint8_t>> results;
  for (const int num_threads : {1, 1, 2, 3}) {
    const auto backend = make_cpu_backend(num_threads);
    Attention attention(*backend, input, output_grad, DType::F32);
    attention.forward();
    attention.backward();
    attention.sinks_grad();
    std::vector<std::uint8_t> bits;
    for (const DeviceMatrix* part : {&attention.o(), &attention.lse_memory(), &attention.dq(),
                                     &attention.dkv(), &attention.dsinks()}) {
      const auto more = part->bits();
      bits.insert(bits.end(), more.begin(), more.end());
    }
    results.push_back(bits);
  }
  CHECK(results[0] == results[1]);
  CHECK(results[0] == results[2]);
  CHECK(results[0] == results[3]);
}

TEST_CASE("attention survives scores that overflow exp", "[kernels][attention]") {
  for_each_backend([](Backend& backend) {
    auto input = make_input({{.num_sequences = 1,
                              .query_len = 2,
                              .key_len = 2,
                              .heads = 1,
                              .kv_heads = 1,
                              .head_size = 1}},
                            DType::F32);
    input.shape.scale = 1.0F;
    input.q.values = {1000.0, 1000.0};
    input.k.values = {1.0, 2.0};
    input.v.values = {0.25, 0.75};
    Attention attention(backend, input, Matrix(2, 1), DType::F32);
    attention.forward();
    // The second query's scores are 1000 and 2000: the second key takes everything.
    const Matrix o = attention.o().read();
    const Matrix lse = attention.lse();
    CHECK(o(0, 0) == 0.25);
    CHECK(o(1, 0) == 0.75);
    CHECK(lse(0, 0) == 1000.0);
    CHECK(lse(1, 0) == 2000.0);
    // A larger sink takes everything, and a smaller one nothing.
    input.sinks = Matrix(1, 1);
    input.sinks.values = {1500.0};
    Attention sunk(backend, input, Matrix(2, 1), DType::F32);
    sunk.forward();
    const Matrix sunk_o = sunk.o().read();
    CHECK(sunk_o(0, 0) == 0.0);
    CHECK(sunk_o(1, 0) == 0.75);
    CHECK(sunk.lse()(0, 0) == 1500.0);
  });
}

}  // namespace meshplan::kernels::test
