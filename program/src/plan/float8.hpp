// Which products of a plan are in FP8, and what they ask of its sizes. docs/cuda.md#fp8
#pragma once

#include <string>
#include <vector>

#include "models/graph.hpp"
#include "program/plan/plan.hpp"

namespace meshplan::program {

/// Sizes of an FP8 product are multiples of this (cuBLAS library guide, cublasLtMatmul).
constexpr std::int64_t kFloat8Multiple = 16;

/// Is the product of a transformer layer's linear in FP8? All are but gates of a few features
/// and adapters. The output layer and the embedding are in no such layer; experts' grouped products
/// and the router stay in bf16.
constexpr bool computes_in_float8(models::Split split, std::int64_t out_features) {
  return split != models::Split::Vocab && out_features >= kFloat8Multiple;
}

/// A size of a rank's FP8 product that is no multiple of 16.
struct OddFeatures {
  std::string linear;  // "gate_up"
  bool output = true;  // else of its input
  std::int64_t features = 0;
  std::int64_t per_rank = 0;
};
/// The first one, if tp ranks share the layers' linears; nothing if all fit.
std::optional<OddFeatures> odd_float8_features(const models::ModelGraph& graph, int tp);

}  // namespace meshplan::program
