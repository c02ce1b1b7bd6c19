#include "execute/tokens_ahead.hpp"

#include <catch2/catch.hpp>

#include "program/plans.hpp"

namespace meshplan::runtime {

TEST_CASE("prediction modules get the tokens further on in the same sequence", "[runtime][execute]") {
  program::Plan plan = program::test::make_plan(program::test::llama_style());
  plan.model.mtp_layers = 2;
  plan.workload.seq_len = 3;
  plan.micro_batch_size = 2;
  const std::vector<std::int32_t> rows = {1, 2, 3, 4, 5, 6, 11, 12, 13, 14, 15, 16};
  CHECK(with_tokens_ahead(plan, rows, -1) ==
        std::vector<std::int32_t>{1,  2,  3,  4,  5,  6,  2,  3,  -1, 5,  6,  -1,
                                  3,  -1, -1, 6,  -1, -1, 11, 12, 13, 14, 15, 16,
                                  12, 13, -1, 15, 16, -1, 13, -1, -1, 16, -1, -1});
}

}  // namespace meshplan::runtime
