// Chosen kernels of matrix products as text, which outlives the process and travels between ranks.
//
//   meshplan gemm choices 1
//   NVIDIA H100 80GB HBM3 sm_90, cuBLASLt 130100
//   0123...64 words of an algorithm, in hexadecimal...  m 4096 n 512 k 4096 ...
//   hash 0123456789abcdef
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>

namespace meshplan::kernels::cuda {

/// A cublasLtMatmulAlgo_t. Its bits say the same to the same version of the library (cuBLAS library
/// guide, section 3.3.1).
using GemmAlgorithm = std::array<std::uint64_t, 8>;

struct GemmChoices {
  std::string subject;                              // GPU and version that they hold for
  std::map<std::string, GemmAlgorithm> of_problem;  // by problem, alignments and precision in words
};

std::string to_text(const GemmChoices& choices);

/// @param subject  that they must hold for
/// @return empty and `choices`, or why the text is of no use
std::string parse_gemm_choices(const std::string& text, const std::string& subject,
                               GemmChoices& choices);

}  // namespace meshplan::kernels::cuda
