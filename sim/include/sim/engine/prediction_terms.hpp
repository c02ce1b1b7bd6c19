// The terms of a predicted step: what each takes, how well it is known and from what, and what to
// measure to know it better.
#pragma once

#include <string_view>
#include <vector>

#include "sim/engine/breakdown.hpp"

namespace meshplan::program {
struct Program;
}  // namespace meshplan::program

namespace meshplan::sim {

struct Cluster;

/// What a term rests on, best first.
enum class TermSource {
  Measured,      // samples of this operation on this machine
  Interpolated,  // constants fitted on runs of other models and machines of the same generation
  DataSheet,     // rates of devices and links, and published algorithms
  Assumed,       // a judgement, with its reason
};
std::string_view name_of(TermSource source);

struct PredictionTerm {
  std::string_view name;
  double seconds = 0;  // of the step; the whole step for what scales all of it
  double sigma = 0;    // relative standard deviation of these seconds
  TermSource source = TermSource::Assumed;
  std::string_view measure;  // what narrows it
};

/// Terms of a simulated plan, largest contribution to the interval first: computation by what its
/// prices rest on, the rest from where the time of that stage goes.
/// @param program  of the stage that computes longest
/// @param seconds  breakdown of that stage
std::vector<PredictionTerm> terms_of(const program::Program& program, const Cluster& cluster,
                                     const Breakdown& seconds, double step_time_s);

/// Standard deviations of half the width of an 80 % interval: Student's t distribution with 4
/// degrees of freedom at 0.9 (Lange, Little and Taylor 1989, "Robust statistical modeling using the
/// t distribution"). The errors of runs that a fit has not seen have tails of about this weight.
inline constexpr double kDeviations80 = 1.533;

/// The measured time is expected within a factor of 1 + this, either way, in 80 % of cases.
/// @param relative_sigma  of the time's logarithm
double half_width_80(double relative_sigma);

/// Standard deviation of a step time's logarithm: the terms err independently of each other.
double relative_sigma_of(const std::vector<PredictionTerm>& terms, double step_time_s);

/// A predicted step time is expected between these in 80 % of cases.
struct Interval {
  double low_s = 0;
  double high_s = 0;
};
Interval interval_of(const std::vector<PredictionTerm>& terms, double step_time_s);
/// @param relative_sigma  of the time's logarithm
Interval interval_of(double relative_sigma, double step_time_s);

/// Half the width of the 80 % interval of the difference between two plans' step times on one
/// cluster: a term errs by the same factor in both, so that what they have in common cancels.
/// Plans that differ by less cannot be told apart.
double indistinguishable_s(const std::vector<PredictionTerm>& a,
                           const std::vector<PredictionTerm>& b);

}  // namespace meshplan::sim
