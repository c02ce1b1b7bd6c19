// The speeds of a device: the data sheet's peaks with the fitted constants, and the formulas that
// turn work into seconds with them. Operations of a program and items of a run prediction are
// priced here, so that the same work costs the same in both.
#pragma once

#include "sim/clusters/cluster.hpp"
#include "sim/prices/fitted_constants.hpp"
#include "sim/prices/flash_generation.hpp"

namespace meshplan::sim {

/// Fills in what the constants say of the cluster's architecture: rates of products, streams and
/// fused attention, all-to-alls, what communication beside compute costs, stragglers and the
/// overhead of a step. A CPU host, whose speeds are measured, stays as it is.
/// @param flash  the generation of fused attention that runs on it
Cluster with_fitted_speeds(const Cluster& data_sheet, const Constants& constants,
                           FlashGeneration flash);

/// FP8's part of its own peak over 16 bit's part of its own.
double fp8_fraction(Architecture architecture, const Constants& constants);

/// `count` products (m, k) x (k, n) in one launch.
struct ProductShape {
  double count = 1;
  double m = 0, n = 0, k = 0;
};

/// Seconds without launch: arithmetic or operand traffic, whichever is slower (roofline: Williams,
/// Waterman and Patterson 2009). @param peak  FLOP/s @param bytes  operands through memory
double product_seconds(const ProductShape& shape, double peak, double bytes,
                       const Cluster& cluster);

/// Fused attention over all local heads of a micro-batch.
struct AttentionShape {
  double pairs = 0;       // of a query and a key, over all heads
  double head_sizes = 0;  // of query and value together
  double blocks = 0;      // independent tiles, for wave quantization
  bool backward = false;
  double exponentials = 1;  // of a pair, and what else its unit computes: see exponentials_of()
};

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
