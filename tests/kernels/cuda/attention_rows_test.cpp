#include "attention_rows.hpp"

#include <catch2/catch.hpp>
#include <vector>

namespace meshplan::kernels::cuda::test {

TEST_CASE("row statistics change between cuDNN's order and ours", "[kernels][cuda]") {
  const AttentionShape shape{.num_sequences = 2, .query_len = 3, .heads = 5};
  std::vector<float> by_head(30);
  for (std::size_t i = 0; i < by_head.size(); ++i) by_head[i] = static_cast<float>(i);
  std::vector<float> by_row(30);
  std::vector<float> back(30);
  enqueue_rows_from_heads({}, shape, by_head.data(), by_row.data());
  // sequence 1, query 2, head 4: (1 * 5 + 4) * 3 + 2 there, (1 * 3 + 2) * 5 + 4 here
  CHECK(by_row[29] == 29.0F);
  CHECK(by_row[1] == 3.0F);        // query 0, head 1
  CHECK(by_row[15 + 5] == 16.0F);  // sequence 1, query 1, head 0
  enqueue_heads_from_rows({}, shape, by_row.data(), back.data());
  CHECK(back == by_head);
}

}  // namespace meshplan::kernels::cuda::test
