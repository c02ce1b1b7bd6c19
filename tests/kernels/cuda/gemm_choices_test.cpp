#include "products/gemm_choices.hpp"

#include <catch2/catch.hpp>

namespace meshplan::kernels::cuda::test {

namespace {

GemmChoices some() {
  return {.subject = "NVIDIA H100 sm_90, cuBLASLt 130100",
          .of_problem = {{"m 1 n 2 k 3 bf16 TN -> bf16", {1, 2, 3, 4, 5, 6, 7, ~0ULL}},
                         {"m 4 n 5 k 6 fp32 NN -> fp32", {}}}};
}

}  // namespace

TEST_CASE("Choices are read back as they were written", "[kernels][cuda]") {
  GemmChoices read;
  CHECK(parse_gemm_choices(to_text(some()), some().subject, read).empty());
  CHECK(read.subject == some().subject);
  CHECK(read.of_problem == some().of_problem);
}

TEST_CASE("Choices that are damaged, or for something else, are of no use and change nothing",
          "[kernels][cuda]") {
  const std::string text = to_text(some());
  const auto error_of = [](const std::string& damaged, const std::string& subject) {
    GemmChoices read;
    const std::string error = parse_gemm_choices(damaged, subject, read);
    CHECK(read.of_problem.empty());
    return error;
  };
  CHECK(error_of(text, "NVIDIA A100 sm_80, cuBLASLt 130100") ==
        "its choices are for NVIDIA H100 sm_90, cuBLASLt 130100, not for NVIDIA A100 sm_80, "
        "cuBLASLt 130100");
  CHECK(error_of("", some().subject) == "it holds no choices of this version of meshplan");
  CHECK(error_of("PNG", some().subject) == "it holds no choices of this version of meshplan");
  for (std::size_t size = 24; size < text.size(); ++size)
    CHECK(error_of(text.substr(0, size), some().subject) == "it is damaged");
  for (std::size_t i = 24; i < text.size(); ++i) {
    std::string changed = text;
    changed[i] = changed[i] == '7' ? '8' : '7';
    CHECK_FALSE(error_of(changed, some().subject).empty());
  }
}

}  // namespace meshplan::kernels::cuda::test
