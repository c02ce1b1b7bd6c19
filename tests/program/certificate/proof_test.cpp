#include "program/certificate/proof.hpp"

#include <catch2/catch.hpp>

#include "program/certificate/large_plans.hpp"

namespace meshplan::program {

TEST_CASE("programs of plans on many ranks are proven at their own size", "[program][proof]") {
  Plan plan = test::large_plan("llama3-8b", {.tp = 8, .pp = 8, .vpp = 2, .dp = 16, .sp = true}, 32);
  plan.schedule = ScheduleKind::Interleaved;
  plan.recompute.kind = RecomputeKind::Full;
  plan.zero_stage = 1;
  const ProgramProof proof = prove_programs(plan);
  CHECK(proof.stages == 8);
  // 32 layers and 32 micro-batches: forward, recompute and backward of some ten operations each.
  CHECK(proof.operations > 32 * 32 * 30);
  CHECK(proof.errors == std::vector<std::string>{});
  CHECK(proof.left_out.empty());
  CHECK(proof.holds());
}

TEST_CASE("a plan whose programs are too long is left out with the reason", "[program][proof]") {
  const ProgramProof proof = prove_programs(test::large_plan("llama3-70b", {.pp = 8}, 1 << 14));
  CHECK(proof.operations == 0);
  CHECK(proof.left_out.find("layers") != std::string::npos);
}

}  // namespace meshplan::program
