#include "reports/certificate_report.hpp"

#include <catch2/catch.hpp>

#include "program/plans.hpp"

namespace meshplan::test {
namespace {

using Catch::Contains;
using program::Certificate;
using program::Compared;

Certificate some_certificate() {
  const Compared loss{.what = "loss",
                      .name = "step 1",
                      .difference = 1e-8,
                      .tolerance = 1e-5,
                      .value = 4,
                      .expected = 4};
  const Compared gradient{.what = "gradient",
                          .name = "layers.0.mlp.down_proj.weight",
                          .difference = 4e-6,
                          .tolerance = 1e-5,
                          .where = {3, 5},
                          .value = 0.5,
                          .expected = 0.25};
  return {.version = "1.0",
          .plan_hash = "0123456789abcdef",
          .plan_precision = "bf16",
          .compared_in = "fp32",
          .twins = {{.plan = program::test::make_plan(program::test::llama_style(), {.tp = 2}),
                     .techniques = {"tp", "zero1"},
                     .ranks = 2,
                     .steps = 3,
                     .seeds = {7},
                     .tolerance = {.derivation = "2 sqrt(2 N n) 0.4 u"},
                     .compared = {loss, gradient}}}};
}

}  // namespace

TEST_CASE("a certificate names plan, twins, the furthest figure and the verdict",
          "[reports][certificate]") {
  const std::string text = reports::to_text(some_certificate());
  CHECK_THAT(text, Contains("plan        0123456789abcdef, trains in bf16"));
  CHECK_THAT(text, Contains("in fp32: the layout, not what bf16 rounds"));
  CHECK_THAT(text, Contains("twin 1      tp, zero1"));
  CHECK_THAT(text, Contains("gradient of layers.0.mlp.down_proj.weight [3, 5]"));
  CHECK_THAT(text, Contains("4.0e-06") && Contains("1.0e-05"));
  CHECK_THAT(text, Contains("tolerance   of twin 1 in 2 sqrt(2 N n) 0.4 u"));
  CHECK_THAT(text, Contains("not shown   kernels and communication of GPUs"));
  CHECK_THAT(text, Contains("verdict     agrees: 2 figures of 1 twin"));
  CHECK_THAT(text, !Contains("not covered") && !Contains("differs"));
}

TEST_CASE("a certificate says on what the twins and the one rank ran", "[reports][certificate]") {
  Certificate certificate = some_certificate();
  CHECK_THAT(reports::to_text(certificate), !Contains("twins on"));  // a file of before
  certificate.twins.front().device = "NVIDIA H100 (GPU 0), NCCL";
  certificate.twins.front().reference = "cpu avx2 1 thread";
  certificate.twins.front().reference_precision = "fp32";
  const std::string text = reports::to_text(certificate);
  CHECK_THAT(text, Contains("twins on    NVIDIA H100 (GPU 0), NCCL\n"
                            "one rank on cpu avx2 1 thread, in fp32\n"));
  CHECK_THAT(text, !Contains("twins run on processor cores"));
}

TEST_CASE("what differs is named with both values, worst first", "[reports][certificate]") {
  Certificate certificate = some_certificate();
  certificate.twins.front().compared[0].difference = 1e-4;
  certificate.twins.front().compared[1].difference = 1e-2;
  const std::string text = reports::to_text(certificate);
  const std::size_t gradient = text.find("differs     twin 1, gradient of layers.0");
  const std::size_t loss = text.find("differs     twin 1, loss of step 1");
  REQUIRE(gradient != std::string::npos);
  REQUIRE(loss != std::string::npos);
  CHECK(gradient < loss);
  CHECK_THAT(text, Contains("1.0e-02 (tolerance 1.0e-05); there 0.5 beside 0.25"));
  CHECK_THAT(text, Contains("verdict     differs: 2 of 2 figures of 1 twin"));
}

TEST_CASE("a twin that ended early, and what none covers, are said", "[reports][certificate]") {
  Certificate certificate = some_certificate();
  certificate.twins.clear();
  certificate.failure = "the ranks of a twin ended with exit code 1";
  certificate.uncovered = {"pp with custom schedule"};
  const std::string text = reports::to_text(certificate);
  CHECK_THAT(text, Contains("not covered pp with custom schedule"));
  CHECK_THAT(text, Contains("verdict     differs: the ranks of a twin ended with exit code 1"));
}

TEST_CASE("messages and copies are counted, and one that differs is named",
          "[reports][certificate]") {
  Certificate certificate = some_certificate();
  std::vector<Compared>& compared = certificate.twins.front().compared;
  compared.push_back({.what = "message", .name = "all_gather of tp", .checked = 1200});
  compared.push_back({.what = "copies", .name = "weights", .checked = 5000});
  std::string text = reports::to_text(certificate);
  CHECK_THAT(text, Contains("message     1,200       0  -"));
  CHECK_THAT(text, Contains("those of one rank; 1,200 messages and 5,000 copied numbers are the "
                            "same bits\n"));
  compared[2].difference = 1.0 / 1200;
  compared[3].difference = 1.0 / 5000;
  compared.push_back({.what = "message",
                      .name = "step 1, all_gather of tp of ranks 0 1, call 3: rank 1 did not "
                              "receive what rank 0 sent",
                      .difference = 1,
                      .checked = 0});
  compared.push_back({.what = "copies",
                      .name = "step 1, weights of a: rank 1 beside rank 0",
                      .difference = 1e-4,
                      .where = {3, 5},
                      .value = 1.0001,
                      .expected = 1,
                      .checked = 0});
  text = reports::to_text(certificate);
  CHECK_THAT(text, Contains("differs     twin 1, message: step 1, all_gather of tp of ranks 0 1, "
                            "call 3: rank 1 did not receive what rank 0 sent\n"));
  CHECK_THAT(text, Contains("rank 1 beside rank 0; [3, 5] is 1.0001, not 1\n"));
  CHECK_THAT(text, Contains("verdict     differs: 0 of 2 figures of 1 twin are not those of one "
                            "rank; 1 of 1,200 messages and 1 of 5,000 copies are not the same "
                            "bits\n"));
}

TEST_CASE("a second seed that decided is said", "[reports][certificate]") {
  Certificate certificate = some_certificate();
  certificate.twins.front().seeds = {7, 8};
  CHECK_THAT(reports::to_text(certificate), Contains("a second one decides"));
}

TEST_CASE("what is proven of the plan's own programs is said", "[reports][certificate]") {
  Certificate certificate = some_certificate();
  certificate.programs = program::ProgramProof{.stages = 16, .operations = 1'234'567};
  CHECK(certificate.agrees());
  CHECK_THAT(
      reports::to_text(certificate),
      Contains("programs    of the plan itself, 16 stages: 1,234,567 operations a step, each "
               "reads what its operands name"));
  certificate.programs->errors = {"stage 3: norm reads what micro-batch 2 has overwritten"};
  CHECK_FALSE(certificate.agrees());
  CHECK_THAT(reports::to_text(certificate),
             Contains("differs     stage 3: norm reads what micro-batch 2 has overwritten") &&
                 Contains("verdict     differs: 0 of 2 figures") &&
                 Contains("the plan's own programs do not hold together"));
  certificate.programs = program::ProgramProof{.stages = 1, .left_out = "too many"};
  CHECK(certificate.agrees());
  CHECK_THAT(reports::to_text(certificate), Contains("1 stage: not proven, too many"));
}

}  // namespace meshplan::test
