#include "reference/sparse_attention.hpp"

#include "kernels/cpu_backend.hpp"
#include "kernels/support.hpp"

namespace meshplan::kernels::test {

namespace {

struct Case {
  AttentionShape shape;
  int top_k;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {{.num_sequences = 1,
        .query_len = 1,
        .key_len = 1,
        .heads = 1,
        .kv_heads = 1,
        .head_size = 16},
       1},
      // latent attention's heads, of two sizes
      {{.num_sequences = 2,
        .query_len = 37,
        .key_len = 37,
        .heads = 3,
        .kv_heads = 3,
        .head_size = 24,
        .value_head_size = 12},
       9},
      {{.num_sequences = 1,
        .query_len = 70,
        .key_len = 70,
        .heads = 2,
        .kv_heads = 2,
        .head_size = 192,
        .value_head_size = 128},
       33},
      // heads that share keys, and odd sizes
      {{.num_sequences = 2,
        .query_len = 33,
        .key_len = 50,
        .heads = 6,
        .kv_heads = 2,
        .head_size = 20,
        .value_head_size = 40,
        .query_offset = 17},
       7},
      // all heads share one key, as where latents are not expanded
      {{.num_sequences = 1,
        .query_len = 40,
        .key_len = 90,
        .heads = 4,
        .kv_heads = 1,
        .head_size = 288,
        .value_head_size = 256,
        .query_offset = 50},
       12},
  };
  return all;
}

/// Of each query a random part of the keys that a causal mask shows, all of them where top_k is as
/// large; query 3 of each sequence has none.
std::vector<std::int32_t> random_choices(const Case& c, bool all = false) {
  const AttentionShape& s = c.shape;
  const std::int64_t rows = s.num_sequences * s.query_len;
  Matrix scores = reference::random_matrix(rows, s.key_len, 7);
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t key = 0; key < s.key_len; ++key)
      if (key > row % s.query_len + s.query_offset || (!all && row % s.query_len == 3))
        scores(row, key) = -std::numeric_limits<double>::infinity();
  return reference::largest_keys(scores, c.top_k);
}

reference::AttentionInput make_input(const Case& c, DType dtype) {
  AttentionShape shape = c.shape;
  shape.scale = 1.0F / std::sqrt(static_cast<float>(shape.head_size));
  const std::int64_t queries = shape.num_sequences * shape.query_len;
  const std::int64_t keys = shape.num_sequences * shape.key_len;
  return {shape, random_in(dtype, queries, shape.heads * shape.head_size, 1, 2.0),
          random_in(dtype, keys, shape.kv_heads * shape.head_size, 2, 2.0),
          random_in(dtype, keys, shape.kv_heads * shape.value_size(), 3)};
}

/// q, k and v side by side, as latent attention has them; everything on a device.
class SparseAttention {
 public:
  SparseAttention(Backend& backend, const reference::AttentionInput& input,
                  const std::vector<std::int32_t>& choices, int top_k, const Matrix& output_grad,
                  DType dtype, std::int64_t padding = 3)
      : backend_(backend),
        shape_(input.shape),
        dtype_(dtype),
        top_k_(top_k),
        key_column_(input.q.columns),
        value_column_(input.q.columns + input.k.columns),
        q_(backend, input.q, dtype, padding),
        k_(backend, side_by_side(input.k, input.v), dtype, padding),
        choices_(backend, choices),
        output_grad_(backend, output_grad, dtype, padding),
        o_(backend, output_grad.rows, output_grad.columns, dtype, padding),
        lse_(backend, shape_.num_sequences * shape_.heads, shape_.query_len + 5),
        probabilities_(backend, input.q.rows, top_k),
        dq_(backend, input.q.rows, input.q.columns, dtype, padding),
        dkv_(backend, input.k.rows, input.k.columns + input.v.columns, dtype, padding) {}

  void forward(bool keeps_probabilities = true) const {
    run(backend_, SparseAttentionForward{
                      .shape = shape_,
                      .dtype = dtype_,
                      .q = q_.data(),
                      .q_stride = q_.stride(),
                      .k = k_.data(),
                      .v = value_of(k_),
                      .kv_stride = k_.stride(),
                      .top_k = top_k_,
                      .choices = choices_.data(),
                      .o = o_.data(),
                      .o_stride = o_.stride(),
                      .lse = lse_.floats(),
                      .lse_stride = lse_.stride(),
                      .probabilities = keeps_probabilities ? probabilities_.floats() : nullptr});
  }
  void backward() const {
    run(backend_, SparseAttentionBackward{.shape = shape_,
                                          .dtype = dtype_,
                                          .q = q_.data(),
                                          .q_stride = q_.stride(),
                                          .k = k_.data(),
                                          .v = value_of(k_),
                                          .kv_stride = k_.stride(),
                                          .top_k = top_k_,
                                          .choices = choices_.data(),
                                          .o = o_.data(),
                                          .o_stride = o_.stride(),
                                          .output_grad = output_grad_.data(),
                                          .lse = lse_.floats(),
                                          .lse_stride = lse_.stride(),
                                          .dq = dq_.data(),
                                          .dq_stride = dq_.stride(),
                                          .dk = dkv_.data(),
                                          .dv = value_of(dkv_),
                                          .dkv_stride = dkv_.stride()});
  }
  /// The same by the operators that take a mask.
  void dense_forward() const {
    run(backend_, AttentionForward{.shape = shape_,
                                   .dtype = dtype_,
                                   .q = q_.data(),
                                   .q_stride = q_.stride(),
                                   .k = k_.data(),
                                   .v = value_of(k_),
                                   .kv_stride = k_.stride(),
                                   .o = o_.data(),
                                   .o_stride = o_.stride(),
                                   .lse = lse_.floats(),
                                   .lse_stride = lse_.stride()});
  }
  void dense_backward() const {
    run(backend_, AttentionBackward{.shape = shape_,
                                    .dtype = dtype_,
                                    .q = q_.data(),
                                    .q_stride = q_.stride(),
                                    .k = k_.data(),
                                    .v = value_of(k_),
                                    .kv_stride = k_.stride(),
                                    .o = o_.data(),
                                    .o_stride = o_.stride(),
                                    .output_grad = output_grad_.data(),
                                    .lse = lse_.floats(),
                                    .lse_stride = lse_.stride(),
                                    .dq = dq_.data(),
                                    .dq_stride = dq_.stride(),
                                    .dk = dkv_.data(),
                                    .dv = value_of(dkv_),
                                    .dkv_stride = dkv_.stride()});
  }

  Matrix o() const { return o_.read(); }
  Matrix probabilities() const { return probabilities_.read(); }
  Matrix dq() const { return dq_.read(); }
  Matrix dk() const { return reference::slice_columns(dkv_.read(), 0, k_columns()); }
  Matrix dv() const {
    const Matrix both = dkv_.read();
    return reference::slice_columns(both, k_columns(), both.columns - k_columns());
  }
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
  std::vector<std::uint8_t> bits() const {
    std::vector<std::uint8_t> all;
    for (const DeviceMatrix* part : {&o_, &lse_, &probabilities_, &dq_, &dkv_}) {
      const auto more = part->bits();
      all.insert(all.end(), more.begin(), more.end());
    }
    return all;
  }

 private:
  static Matrix side_by_side(const Matrix& a, const Matrix& b) {
    Matrix result(a.rows, a.columns + b.columns);
    for (std::int64_t row = 0; row < a.rows; ++row) {
      for (std::int64_t i = 0; i < a.columns; ++i) result(row, i) = a(row, i);
      for (std::int64_t i = 0; i < b.columns; ++i) result(row, a.columns + i) = b(row, i);
    }
    return result;
  }
  std::int64_t k_columns() const { return value_column_ - key_column_; }
  void* value_of(const DeviceMatrix& kv) const {
    return static_cast<char*>(kv.data()) + k_columns() * size_of(dtype_);
  }

  Backend& backend_;
  AttentionShape shape_;
  DType dtype_;
  int top_k_;
  std::int64_t key_column_, value_column_;
  DeviceMatrix q_, k_;
  DeviceVector<std::int32_t> choices_;
  DeviceMatrix output_grad_, o_, lse_, probabilities_, dq_, dkv_;
};

/// Rounding error of a scaled score, |q| and |k| <= 2: exp turns it into a relative error.
double score_error(const AttentionShape& shape) {
  const double magnitude = 4.0 * std::sqrt(static_cast<double>(shape.head_size));
  return static_cast<double>(shape.head_size + 16) * kEps32 * magnitude;
}

double largest(const Matrix& m) {
  double result = 1.0;
  for (const double value : m.values) result = std::max(result, std::fabs(value));
  return result;
}

/// Error bounds of gradients, by the argument of attention_test.cpp.
struct GradientBounds {
  GradientBounds(const AttentionShape& shape, DType dtype)
      : relative(2 * score_error(shape) + tolerance(DType::F32, 200, 1.0) +
                 2 * stored_roundoff(dtype)),
        dq(relative * 4.0 * std::sqrt(static_cast<double>(shape.head_size))),
        num_queries(
            std::sqrt(static_cast<double>(shape.heads / shape.kv_heads * shape.query_len))) {}
  double of_keys(const Matrix& expected) const {
    return relative * num_queries * largest(expected);
  }
  double relative, dq, num_queries;
};

Matrix random_output_grad(const reference::AttentionInput& input, DType dtype) {
  return random_in(dtype, input.q.rows, std::int64_t{input.shape.heads} * input.shape.value_size(),
                   4);
}

}  // namespace

TEST_CASE("sparse attention agrees with the explicit softmax over the choices",
          "[kernels][attention][sparse]") {
  for (const DType dtype : {DType::F32, DType::BF16, DType::F16})
    for (std::size_t i = 0; i < cases().size(); ++i) {
      INFO(name_of(dtype) << " case " << i);
      const int top_k = cases()[i].top_k;
      const auto input = make_input(cases()[i], dtype);
      const auto choices = random_choices(cases()[i]);
      const Matrix output_grad = random_output_grad(input, dtype);
      const auto expected = reference::sparse_attention(input, choices, top_k);
      const auto grads = reference::sparse_attention_backward(input, choices, top_k, output_grad);
      const double error = 2 * score_error(input.shape);
      const GradientBounds bounds(input.shape, dtype);
      for_each_backend([&](Backend& backend) {
        const SparseAttention attention(backend, input, choices, top_k, output_grad, dtype,
                                        i % 2 == 0 ? 8 : 3);
        attention.forward();
        attention.backward();
        // |v| <= 1, and the probabilities of a head sum to 1
        check_close(attention.o(), expected.attention.o, error + tolerance(dtype, top_k, 1.0));
        check_close(attention.lse(), expected.attention.lse, error + 16 * kEps32);
        check_close(attention.probabilities(), expected.probabilities,
                    input.shape.heads * (error + 16 * kEps32));
        check_close(attention.dq(), grads.dq, bounds.dq);
        check_close(attention.dk(), grads.dk, bounds.of_keys(grads.dk));
        check_close(attention.dv(), grads.dv, bounds.of_keys(grads.dv));
      });
    }
}

TEST_CASE("sparse attention to all keys is attention", "[kernels][attention][sparse]") {
  for (const DType dtype : {DType::F32, DType::BF16})
    for (std::size_t i = 0; i < cases().size(); ++i) {
      if (cases()[i].shape.head_size > 256) continue;  // more than attention takes
      INFO(name_of(dtype) << " case " << i);
      Case c = cases()[i];
      c.top_k = static_cast<int>(c.shape.key_len) + 3;
      const auto input = make_input(c, dtype);
      const auto choices = random_choices(c, /*all=*/true);
      const Matrix output_grad = random_output_grad(input, dtype);
      const double error = 2 * score_error(input.shape);
      const GradientBounds bounds(input.shape, dtype);
      for_each_backend([&](Backend& backend) {
        const SparseAttention dense(backend, input, choices, c.top_k, output_grad, dtype);
        const SparseAttention sparse(backend, input, choices, c.top_k, output_grad, dtype);
        dense.dense_forward();
        dense.dense_backward();
        sparse.forward(/*keeps_probabilities=*/false);
        sparse.backward();
        check_close(sparse.o(), dense.o(), error + 2 * tolerance(dtype, c.top_k, 1.0));
        check_close(sparse.lse(), dense.lse(), error + 16 * kEps32);
        check_close(sparse.dq(), dense.dq(), 2 * bounds.dq);
        check_close(sparse.dk(), dense.dk(), 2 * bounds.of_keys(dense.dk()));
        check_close(sparse.dv(), dense.dv(), 2 * bounds.of_keys(dense.dv()));
      });
    }
}

TEST_CASE("the reference backward of sparse attention agrees with finite differences",
          "[kernels][attention][sparse][reference]") {
  const Case c{{.num_sequences = 2,
                .query_len = 5,
                .key_len = 5,
                .heads = 4,
                .kv_heads = 2,
                .head_size = 3,
                .value_head_size = 2},
               3};
  const auto input = make_input(c, DType::F32);
  const auto choices = random_choices(c);
  const Matrix weights = random_output_grad(input, DType::F32);
  const auto grads = reference::sparse_attention_backward(input, choices, c.top_k, weights);
  const auto by = [&](Matrix reference::AttentionInput::*member) {
    return reference::finite_difference(
        [&](const Matrix& moved) {
          auto changed = input;
          changed.*member = moved;
          return reference::sparse_attention(changed, choices, c.top_k).attention.o;
        },
        input.*member, weights);
  };
  check_close(grads.dq, by(&reference::AttentionInput::q), 1e-8);
  check_close(grads.dk, by(&reference::AttentionInput::k), 1e-8);
  check_close(grads.dv, by(&reference::AttentionInput::v), 1e-8);
}

TEST_CASE("sparse attention gives the same bits twice", "[kernels][attention][sparse]") {
  const Case& c = cases()[3];
  const auto input = make_input(c, DType::F32);
  const auto choices = random_choices(c);
  const Matrix output_grad = random_output_grad(input, DType::F32);
  const auto bits_on = [&](Backend& backend) {
    const SparseAttention attention(backend, input, choices, c.top_k, output_grad, DType::F32);
    attention.forward();
    attention.backward();
    return attention.bits();
  };
  for_each_backend([&](Backend& backend) { CHECK(bits_on(backend) == bits_on(backend)); });
  const auto expected = bits_on(*make_cpu_backend(1));
  for (const int num_threads : {2, 3}) CHECK(bits_on(*make_cpu_backend(num_threads)) == expected);
}

}  // namespace meshplan::kernels::test
