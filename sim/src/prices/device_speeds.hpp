// The speeds of a device: the data sheet's peaks with the fitted constants, and the formulas that
// turn work into seconds with them. Operations of a program and items of a run prediction are
// priced here, so that the same work costs the same in both.
#pragma once

#include <optional>

#include "sim/clusters/cluster.hpp"
#include "sim/prices/fitted_constants.hpp"
#include "sim/prices/flash_generation.hpp"
#include "sim/prices/linear_attention.hpp"
#include "sim/prices/measured_works.hpp"
#include "sim/prices/operator_constants.hpp"

namespace meshplan::sim {

/// The data sheet with the rates that single operators reach, alone: products, the matrix work and
/// the exponentials of fused attention, collectives inside a domain. A CPU host, whose speeds are
/// measured, stays as it is. A cluster that has them already is filled in again.
Cluster with_operator_speeds(const Cluster& data_sheet, const OperatorConstants& constants);

/// The same in a training step: operators with the factor of their architecture, streams,
/// all-to-alls between nodes, what communication beside compute costs, stragglers and the overhead
/// of a step.
/// @param flash  the generation of fused attention that runs on it
Cluster with_fitted_speeds(const Cluster& data_sheet, const Constants& constants,
                           FlashGeneration flash);

/// `count` products (m, k) x (k, n) in one launch.
struct ProductShape {
  double count = 1;
  double m = 0, n = 0, k = 0;
  std::optional<OperandType> type = OperandType::Half;  // none: wider than 16 bit
  bool forward = true;  // of activations and weights, in the layout in which products were timed

  /// Times the cluster's half_k: a step of the inner loop holds as many bytes, so of FP8 twice as
  /// many elements.
  double fill() const;
};

/// Arithmetic alone, without launch. @param peak  FLOP/s
double tiled_product_seconds(const ProductShape& shape, double peak, const Cluster& cluster);

/// Fused attention over all local heads of a micro-batch.
struct AttentionShape {
  double pairs = 0;       // of a query and a key, over all heads
  double head_sizes = 0;  // of query and value together
  double blocks = 0;      // independent tiles, for wave quantization
  bool backward = false;
  double exponentials = 1;  // of a pair, and what else its unit computes: see exponentials_of()
  std::optional<AttentionWork> causal = {};  // where it is that, forward: for measured shapes
};

/// What measured shapes near it say of the formula: see measured_shapes.hpp.
struct ShapeCorrection {
  double factor = 1;  // times the formula's seconds
  bool near = false;  // was a shape timed that is less than twice as large or small?
};
ShapeCorrection correction_of(const ProductShape& shape, const Cluster& cluster);
ShapeCorrection correction_of(const AttentionShape& shape, const Cluster& cluster);
ShapeCorrection correction_of(const LinearAttentionWork& work, const Cluster& cluster);
ShapeCorrection correction_of(const ShortConvolutionWork& work, const Cluster& cluster);

/// Seconds without launch: arithmetic or operand traffic, whichever is slower (roofline: Williams,
/// Waterman and Patterson 2009), corrected by measured shapes. @param peak  FLOP/s
/// @param bytes  operands through memory
double product_seconds(const ProductShape& shape, double peak, double bytes,
                       const Cluster& cluster);

/// Keys that a query sees on average under a causal mask. @param window  0 = none
double attended_keys(double seq, double window);

/// Keys that a query sees on average, with what its block of queries computes besides: the tiles on
/// the diagonal run whole; a window's edges cost more, for masks and for tiles that are cut twice.
/// @param window  0 = none
double causal_keys(double seq, double window,
                   const OperatorConstants& constants = operator_constants());

/// Clocks of all SMs together, at the data sheet's boost.
double unit_clocks_per_s(const Device& device);

/// What attention asks of the unit of exponentials for each pair: one, and for a soft cap's tanh
/// one more and a reciprocal.
constexpr double exponentials_of(bool softcap) {
  return softcap ? 3 : 1;
}

/// Forward: scores and values; backward: scores again, dV, dP, dQ, dK (Dao 2023, FlashAttention-2,
/// section 3.1.2).
double attention_flops(const AttentionShape& shape);

/// Seconds without launch. @param peak  FLOP/s
double attention_seconds(const AttentionShape& shape, double peak, const Cluster& cluster);

}  // namespace meshplan::sim
