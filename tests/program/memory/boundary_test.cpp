#include <catch2/catch.hpp>

#include "program/inspect.hpp"
#include "program/plans.hpp"

namespace meshplan::program {

// 16 tokens of hidden size 64; sp leaves each of two ranks half of the tokens.
TEST_CASE("A slot between stages holds the activations of a micro-batch", "[program][memory]") {
  const auto slot_bytes = [](const ParallelConfig& parallel, DType precision) {
    Plan plan = test::make_plan(test::llama_style(), parallel, 4);
    plan.workload.precision = precision;
    return lower(plan, 0).memory.regions[static_cast<std::size_t>(Region::Boundary)].stride_bytes;
  };
  CHECK(slot_bytes({.pp = 2}, DType::F32) == 16 * 64 * 4);
  CHECK(slot_bytes({.pp = 2}, DType::BF16) == 16 * 64 * 2);
  CHECK(slot_bytes({.tp = 2, .pp = 2}, DType::BF16) == 16 * 64 * 2);
  CHECK(slot_bytes({.tp = 2, .pp = 2, .sp = true}, DType::BF16) == 16 / 2 * 64 * 2);
}

}  // namespace meshplan::program
