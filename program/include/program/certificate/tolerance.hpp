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

/// Of gradients whose tensors are rounded apart in 16 bits. Rounding is about 0.4 u in the root
/// mean square. Between the loss and the weights of the first layer lie, of each layer, 11 tensors
/// that the forward pass rounds (norms, projections, rotation, attention, activation, sums) and as
/// many gradients; a plan of `ranks` that add partial sums also rounds every one of these before it
/// is added: 4 times as many in a layer, two sums each way. Once an input differs in one bit, the
/// two runs round everything after it independently, so N tensors make a relative error of at most
/// sqrt(2 N) 0.4 u: at most, for each changes only its branch, while the residual stream carries
/// most of the signal. Gradients themselves are summed in fp32: their reduction lengths add
/// nothing.
/// @param ranks  that share a layer; 1 = none
double half_tolerance(DType precision, const models::ModelSpec& model, int ranks);

/// Of gradients whose products are quantized apart. E4M3 has 4 significant bits, E5M2 3: rounding
/// is about 0.4 u in the root mean square, u = 2^-4 and 2^-3. A linear rounds x and w to E4M3 and
/// dy to E5M2, which counts as four of E4M3: 6 a linear; a sum of products has the relative error
/// of its terms. So as half_tolerance().
double float8_tolerance(int num_layers, int linears_in_a_layer = 4);

/// What a twin is held to.
struct Tolerance {
  double relative = 0;     // of a gradient of the first step
  double loss = 0;         // of its loss
  double floor = 0;        // part of the global norm below which a tensor is what cancellation left
  double growth = 1;       // factor for each step after the first
  std::string derivation;  // in words, with the numbers

  /// `first`, of what the first step gives, for what step `step` (from 0) does.
  double grown(double first, int step) const;
};

/// For a twin beside one rank. In fp32 every tensor is rounded alike, but sums are taken in another
/// order: a sum of n numbers in fp32 has an error of about sqrt(n) 0.4 u in the root mean square
/// (Higham & Mary 2019), n being the longest reduction of the model and its batch, and the N
/// tensors between loss and first layer of half_tolerance() each have one: twice
/// sqrt(2 N n) 0.4 u. In other precisions half_tolerance() or float8_tolerance().
Tolerance tolerance_of(const Plan& twin);

}  // namespace meshplan::program
