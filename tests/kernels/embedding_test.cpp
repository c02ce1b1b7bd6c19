// embedding and position_embedding
#include "kernels/support.hpp"

namespace meshplan::kernels::test {

namespace {

constexpr std::int64_t kVocab = 12;
const std::vector<std::int32_t> kIds = {3, 11, 3, 0, 7, 3, 5};

}  // namespace

TEST_CASE("embedding shards look up their own rows and leave zeros elsewhere",
          "[kernels][embedding]") {
  for_each_backend([](Backend& backend) {
    for (const DType dtype : {DType::F32, DType::BF16, DType::F16}) {
      for (const std::int64_t size : {3, 40}) {
        const auto tokens = static_cast<std::int64_t>(kIds.size());
        const Matrix table = random_in(dtype, kVocab, size, 1);
        const DeviceMatrix weight(backend, table, dtype);
        const DeviceVector<std::int32_t> ids(backend, kIds);
        for (const auto& [begin, end] : {std::pair{0, 12}, {0, 6}, {6, 12}}) {
          const DeviceMatrix out(backend, tokens, size, dtype, row_padding(size, 5));
          const auto* shard =
              static_cast<const char*>(weight.data()) + begin * size * size_of(dtype);
          run(backend, EmbeddingForward{.tokens = tokens,
                                        .size = size,
                                        .vocab_begin = begin,
                                        .vocab_end = end,
                                        .dtype = dtype,
                                        .ids = ids.data(),
                                        .weight = shard,
                                        .out = out.data(),
                                        .out_stride = out.stride()});
          Matrix expected(tokens, size);
          for (std::int64_t t = 0; t < tokens; ++t) {
            const std::int64_t id = kIds[static_cast<std::size_t>(t)];
            if (id >= begin && id < end)
              for (std::int64_t i = 0; i < size; ++i) expected(t, i) = table(id, i);
          }
          check_close(out.read(), expected, 0.0);
        }
      }
    }
  });
}

TEST_CASE("embedding backward sums the rows of repeated ids into fp32", "[kernels][embedding]") {
  for_each_backend([](Backend& backend) {
    for (const DType dtype : {DType::F32, DType::BF16, DType::F16}) {
      for (const std::int64_t size : {3, 150, 160}) {
        const auto tokens = static_cast<std::int64_t>(kIds.size());
        const Matrix grads = random_in(dtype, tokens, size, 1);
        const DeviceMatrix dout(backend, grads, dtype, row_padding(size, 2));
        const DeviceVector<std::int32_t> ids(backend, kIds);
        const Matrix before = random_in(DType::F32, 6, size, 2);
        for (const bool accumulate : {false, true}) {
          const DeviceMatrix dweight(backend, before);  // the shard of ids 2 to 7
          run(backend, EmbeddingBackward{.tokens = tokens,
                                         .size = size,
                                         .vocab_begin = 2,
                                         .vocab_end = 8,
                                         .dtype = dtype,
                                         .ids = ids.data(),
                                         .dout = dout.data(),
                                         .dout_stride = dout.stride(),
                                         .dweight = dweight.floats(),
                                         .accumulate = accumulate});
          Matrix expected = accumulate ? before : Matrix(6, size);
          for (std::int64_t t = 0; t < tokens; ++t) {
            const std::int64_t row = kIds[static_cast<std::size_t>(t)] - 2;
            if (row >= 0 && row < 6)
              for (std::int64_t i = 0; i < size; ++i) expected(row, i) += grads(t, i);
          }
          check_close(dweight.read(), expected, tolerance(DType::F32, 4, 4.0));
        }
      }
    }
  });
}

TEST_CASE("position embeddings follow the position of each row", "[kernels][embedding]") {
  const bool by_rows = GENERATE(false, true);
  for_each_backend([&](Backend& backend) {
    for (const DType dtype : {DType::F32, DType::BF16, DType::F16}) {
      constexpr std::int64_t kTokens = 9;
      constexpr std::int64_t kSize = 35;
      // sequences of two runs: 1, 2 and then 4, 5
      const RowPositions runs{.seq_len = 4, .first_row = 2, .first_position = 1, .jump = 1};
      const std::vector<std::int64_t> expected_positions = {4, 5, 1, 2, 4, 5, 1, 2, 4};
      // the same, one by one, after a row that is another rank's
      const DeviceVector<std::int32_t> listed(
          backend, std::vector<std::int32_t>{3, 4, 5, 1, 2, 4, 5, 1, 2, 4});
      const RowPositions rows{.seq_len = 6, .first_row = 1, .rows = listed.data()};
      const RowPositions positions = by_rows ? rows : runs;
      const Matrix inputs = random_in(dtype, kTokens, kSize, 1);
      const Matrix table = random_in(dtype, 6, kSize, 2);
      const DeviceMatrix x(backend, inputs, dtype, 1);
      const DeviceMatrix weight(backend, table, dtype);
      const DeviceMatrix out(backend, kTokens, kSize, dtype, 3);
      run(backend, PositionEmbeddingForward{.tokens = kTokens,
                                            .size = kSize,
                                            .positions = positions,
                                            .dtype = dtype,
                                            .x = x.data(),
                                            .x_stride = x.stride(),
                                            .weight = weight.data(),
                                            .out = out.data(),
                                            .out_stride = out.stride()});
      const DeviceMatrix dweight(backend, 6, kSize);
      for (const bool accumulate : {false, true}) {
        run(backend, PositionEmbeddingBackward{.tokens = kTokens,
                                               .size = kSize,
                                               .num_positions = 6,
                                               .positions = positions,
                                               .dtype = dtype,
                                               .dout = x.data(),
                                               .dout_stride = x.stride(),
                                               .dweight = dweight.floats(),
                                               .accumulate = accumulate});
      }
      Matrix expected = inputs;
      Matrix expected_grad(6, kSize);  // twice the sum: the second run accumulated
      for (std::int64_t t = 0; t < kTokens; ++t) {
        const std::int64_t position = expected_positions[static_cast<std::size_t>(t)];
        for (std::int64_t i = 0; i < kSize; ++i) {
          expected(t, i) += table(position, i);
          expected_grad(position, i) += 2.0 * inputs(t, i);
        }
      }
      check_close(out.read(), expected, tolerance(dtype, 1, 2.0));
      check_close(dweight.read(), expected_grad, tolerance(DType::F32, 6, 6.0));
    }
  });
}

}  // namespace meshplan::kernels::test
