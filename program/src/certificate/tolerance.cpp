#include "program/certificate/tolerance.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

namespace meshplan::program {
namespace {

constexpr double kRoundedInALayer = 22;
constexpr double kRootMeanSquare = 0.4;  // of a rounding error, in units of the roundoff
constexpr double kMargin = 2;
/// Weights after a step differ by what their gradients did, and the next gradients by what the
/// weights do: a step at most doubles what it was given.
constexpr double kGrowth = 2;
constexpr double kFloorInExact = 1e-4;
constexpr double kFloorInHalf = 1e-2;
constexpr double kLossInFloat8 = 0x1p-6;

/// Tensors between the loss and the first layer's weights.
double rounded_tensors(const models::ModelSpec& model, int ranks) {
  return model.num_layers * (kRoundedInALayer + 4.0 * (ranks > 1 ? ranks : 0));
}

/// Ranks that add partial sums of one layer.
int summing_ranks(const ParallelConfig& parallel) {
  return parallel.tp + (parallel.cp > 1 ? parallel.cp : 0);
}

/// Numbers in the longest sum: over the tokens of a step, over the vocabulary, or over a width.
std::int64_t longest_reduction(const Plan& twin) {
  const models::ModelSpec& model = twin.model;
  const std::int64_t tokens = twin.workload.global_batch_size * twin.workload.seq_len;
  return std::max({tokens, std::int64_t{model.vocab_size}, std::int64_t{model.hidden_size},
                   std::int64_t{model.ffn_size}, std::int64_t{model.num_heads} * model.head_size});
}

Tolerance exact_tolerance(const Plan& twin) {
  const double tensors = rounded_tensors(twin.model, summing_ranks(twin.parallel));
  const auto length = static_cast<double>(longest_reduction(twin));
  const double relative =
      kMargin * std::sqrt(2 * tensors * length) * kRootMeanSquare * unit_roundoff(DType::F32);
  return {.relative = relative,
          .loss = relative,
          .floor = kFloorInExact,
          .growth = kGrowth,
          .derivation = fmt::format(
              "fp32: {:g} sqrt(2 N n) {:g} u = {:.2g}, with u = 2^-24, N = {:g} rounded tensors "
              "between the loss and the first layer, sums of at most n = {:g} numbers",
              kMargin, kRootMeanSquare, relative, tensors, length)};
}

}  // namespace

double unit_roundoff(DType precision) {
  if (precision == DType::BF16) return 0x1p-8;
  return precision == DType::F16 ? 0x1p-11 : 0x1p-24;
}

double half_tolerance(DType precision, const models::ModelSpec& model, int ranks) {
  return std::sqrt(2 * rounded_tensors(model, ranks)) * kRootMeanSquare * unit_roundoff(precision);
}

double float8_tolerance(int num_layers, int linears_in_a_layer) {
  constexpr double kRoundedInALinear = 6;
  return std::sqrt(2 * kRoundedInALinear * linears_in_a_layer * num_layers) * kRootMeanSquare *
         0x1p-4;
}

double Tolerance::grown(double first, int step) const {
  return first * std::pow(growth, step);
}

Tolerance tolerance_of(const Plan& twin) {
  constexpr int kLinears = 4, kLinearsOfLatent = 7;
  const Precision precision = precision_of(twin.workload);
  if (precision == Precision::F32) return exact_tolerance(twin);
  const bool float8 = precision == Precision::Fp8;
  const double relative =
      float8 ? float8_tolerance(twin.model.num_layers, twin.model.mla ? kLinearsOfLatent : kLinears)
             : half_tolerance(twin.workload.precision, twin.model, summing_ranks(twin.parallel));
  // A loss is a mean over tokens, whose errors cancel.
  return {
      .relative = relative,
      .loss = float8 ? kLossInFloat8 : unit_roundoff(twin.workload.precision),
      .floor = kFloorInHalf,
      .growth = kGrowth,
      .derivation = fmt::format("{}: sqrt(2 N) {:g} u = {:.2g} of N tensors that are rounded apart",
                                precision_name(twin.workload), kRootMeanSquare, relative)};
}

}  // namespace meshplan::program
