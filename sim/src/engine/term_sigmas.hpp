// How well each kind of term is known, whatever it is a term of.
#pragma once

#include <vector>

#include "sim/engine/prediction_terms.hpp"

namespace meshplan::sim {

// Relative standard deviations (scales of a t distribution) by what a term rests on: variance
// components of the errors of runs whose model, cluster or stack was left out of the fit of the
// constants, by maximum likelihood (Searle, Casella and McCulloch 1992, "Variance Components",
// chapter 6), then rounded and moved to where 80 % of these runs lie inside (docs/accuracy.md).
inline constexpr double kProductSigma = 0.01;
inline constexpr double kLowPrecisionSigma =
    0.07;  // scaling recipes and their kernels change by release
inline constexpr double kAttentionSigma = 0.04;
// Of formulas: single shapes differ from them by 4 to 7 % in the median, from shapes that were
// timed near them by 2 to 5 % (docs/accuracy.md, operators alone); a step has some eight of them.
inline constexpr double kShapeSigma = 0.02;
// Of formulas on a GPU none of whose operators were timed. With B200's constants GB200's operators
// are missed by 7 % in the median, and the other way round; generations that were left out of the
// fit by 9 to 14 % (docs/accuracy.md, device left out). Kernels and libraries of another vendor are
// judged to differ by twice that from what data sheets and their own figures say.
inline constexpr double kDeviceSigma = 0.09;
inline constexpr double kGenerationSigma = 0.25;
inline constexpr double kGenerationLinksSigma = 0.3;
inline constexpr double kStreamSigma = 0.14;
inline constexpr double kStartSigma = 0.6;  // of kernels: small models differ most
inline constexpr double kExchangeSigma = 0.26;
// Of experts' rows: inside a domain kernels that were timed differ from the formulas by 7 to 11 %
// in the median, those of other libraries by more. Across nodes one cluster's links gave a third of
// their rate to 64 ranks, another's all of it (docs/accuracy.md).
inline constexpr double kExpertsInsideSigma = 0.15;
inline constexpr double kExpertsAcrossSigma = 0.35;
inline constexpr double kHostSigma =
    0.035;  // of what the host paces: where it is late it sets the pace
inline constexpr double kPipelineSigma = 0.34;
inline constexpr double kDataParallelSigma = 0.3;
inline constexpr double kOptimizerSigma = 0.3;
inline constexpr double kOffloadSigma = 0.3;
inline constexpr double kOverheadSigma = 0.5;
// Ten calibrations of one machine, five of them beside a disturber, scatter by about a third
// (docs/noise.md).
inline constexpr double kNoiseSigma = 0.33;
// Repeated measurements of one configuration across releases differ by 1.8 % in the median and 8 %
// at the 90th percentile.
inline constexpr double kVersionSigma = 0.015;
// Between stacks and machines: what is peculiar to one and common to all of its runs, a random
// effect (DerSimonian and Laird 1986), for no run of a new stack says how large its own is.
inline constexpr double kStackSigma = 0.022;
// Operations timed on this machine (ten plans of the demo scatter by 1 to 4 % from step to step),
// operations between timed ones, and those priced by a CPU's data sheet (OpenBLAS and oneDNN differ
// by 2).
inline constexpr double kMeasuredSigma = 0.03;
inline constexpr double kBetweenSigma = 0.1;
inline constexpr double kCpuSheetSigma = 0.4;

/// Leaves out terms that add nothing to the interval; largest contribution first.
void order(std::vector<PredictionTerm>& terms);

}  // namespace meshplan::sim
