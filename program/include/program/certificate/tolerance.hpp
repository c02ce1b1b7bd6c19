// How far two runs may lie apart that differ in the order of their sums, or in what is rounded
// (docs/certificates/certificate.md).
#pragma once

#include <cstdint>
#include <string>

#include "program/plan/plan.hpp"

namespace meshplan::program {

/// Half a unit in the last place: rounding changes a number by at most this part of it. 2^-24 for
/// fp32, 2^-8 for bf16, 2^-11 for fp16.
double unit_roundoff(DType precision);

/// Root mean square of a rounding error, in units of the roundoff.
constexpr double kRoundingError = 0.4;

/// Tensors that a step of the plan rounds to its precision between the loss and the weights of the
/// first layer, counted in its programs: what operations of layers make in the forward pass, and of
/// gradients; what is only moved, or made again with the same bits, does not count. A sum over n
/// ranks counts n, for each of them rounds its part before it is added. With FP8, casts of
/// operands: E4M3 has 4 significant bits, E5M2 3, so a cast of a gradient counts as four.
double rounded_tensors(const Plan& plan);

/// Of gradients of two runs whose tensors are rounded apart in 16 bits, the plan's and one rank's.
/// Rounding is about 0.4 u in the root mean square. Once an input differs in one bit, the two runs
/// round everything after it independently, so the N tensors of both make a relative error of
/// sqrt(N) 0.4 u: at most, where nothing amplifies it, for each changes only its branch, while the
/// residual stream carries most of the signal. Gradients themselves are summed in fp32: their
/// reduction lengths add nothing.
double half_tolerance(const Plan& plan);

/// The same where products are quantized apart: u = 2^-4 of E4M3. A sum of products has the
/// relative error of its terms.
double float8_tolerance(const Plan& plan);

/// No gradient in fp32 may differ by more from one rank's, whatever tolerance_of() derives, which
/// is more where N n > 44,000 (170 tensors, sums of 256 numbers): five digits of a gradient are
/// kept.
constexpr double kMostInExact = 1e-5;

/// What a twin is held to.
struct Tolerance {
  double relative = 0;  // of a gradient of the first step
  double loss = 0;      // of its loss, a mean: its terms\' errors cancel
  double floor = 0;     // part of the global norm below which a tensor is what cancellation left
  double growth = 1;    // factor for each step after the first
  double most = 1;      // of a gradient in any case: kMostInExact in fp32
  /// Of what rounding alone does to a figure of this model: of one rank in this precision beside
  /// one in fp32. 0 = not known.
  double of_rounding = 0;
  std::string derivation;  // in words, with the numbers

  /// `first`, of what the first step gives, for what step `step` (from 0) does.
  double grown(double first, int step) const;
};

/// For a twin beside one rank. In fp32 every tensor is rounded alike, but sums are taken in another
/// order: a sum of n numbers in fp32 has an error of about sqrt(n) 0.4 u in the root mean square
/// (Higham & Mary 2019), n being the longest reduction of the model and its batch, and each of the
/// N rounded_tensors() of both runs has one: twice sqrt(N n) 0.4 u. In other precisions
/// half_tolerance() or float8_tolerance(), or, where a part of the model amplifies rounding (the
/// norms of few numbers in heads, soft caps, norms behind the parts), 2 sqrt(2) times what one rank
/// in this precision differs from one in fp32: two runs that round independently differ by sqrt(2)
/// times that. At most 0.7, which a gradient without the part of one of two replicas differs by.
/// The same holds where the one rank is in fp32 and rounds nothing: kernels of another device may
/// round more on the way, as those of attention do their probabilities.
Tolerance tolerance_of(const Plan& twin);

}  // namespace meshplan::program
