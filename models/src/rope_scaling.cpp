#include "models/rope_scaling.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/error.hpp"

namespace meshplan::models {
namespace {

constexpr double kTwoPi = 2.0 * std::numbers::pi;

double length_before_scaling(const RopeScaling& scaling) {
  require_invariant(scaling.original_max_positions.has_value(),
                    "rope scaling has its original_max_positions");
  return *scaling.original_max_positions;
}

/// Base that keeps the lowest frequency's wavelength in proportion to the sequence.
double dynamic_base(double base, int rope_size, const RopeScaling& scaling, std::int64_t seq_len) {
  const double trained = length_before_scaling(scaling);
  const double length = std::max(trained, static_cast<double>(seq_len));
  const double stretch = scaling.factor * length / trained - (scaling.factor - 1.0);
  return base * std::pow(stretch, rope_size / (rope_size - 2.0));
}

double llama3_frequency(double frequency, const RopeScaling& scaling) {
  const double turns = length_before_scaling(scaling) * frequency / kTwoPi;
  if (turns >= scaling.high_frequency_factor) return frequency;
  if (turns < scaling.low_frequency_factor) return frequency / scaling.factor;
  const double kept = (turns - scaling.low_frequency_factor) /
                      (scaling.high_frequency_factor - scaling.low_frequency_factor);
  return kept * frequency + (1.0 - kept) * frequency / scaling.factor;
}

/// Pair that makes `turns` rotations in the original length.
double pair_of_turns(double turns, double base, int rope_size, const RopeScaling& scaling) {
  return rope_size * std::log(length_before_scaling(scaling) / (turns * kTwoPi)) /
         (2.0 * std::log(base));
}

void divide_by_ramp(std::vector<double>& frequencies, double base, int rope_size,
                    const RopeScaling& scaling) {
  double first = pair_of_turns(scaling.beta_fast, base, rope_size, scaling);
  double last = pair_of_turns(scaling.beta_slow, base, rope_size, scaling);
  if (scaling.truncate) {
    first = std::floor(first);
    last = std::ceil(last);
  }
  first = std::max(first, 0.0);
  last = std::min(last, rope_size - 1.0);
  if (first == last) last += 0.001;  // as in transformers: a step instead of a division by zero
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - first) / (last - first), 0.0, 1.0);
    frequencies[i] *= (1.0 - ramp) + ramp / scaling.factor;
  }
}

double magnitude(double factor, double mscale) {
  return factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

bool is_yarn(const std::optional<RopeScaling>& scaling) {
  return scaling && scaling->kind == RopeScalingKind::Yarn;
}

}  // namespace

std::vector<double> rope_inverse_frequencies(double base, int rope_size,
                                             const std::optional<RopeScaling>& scaling,
                                             std::int64_t seq_len) {
  require_invariant(rope_size > 0 && rope_size % 2 == 0, "rope_size is even and positive");
  const double used_base = scaling && scaling->kind == RopeScalingKind::Dynamic
                               ? dynamic_base(base, rope_size, *scaling, seq_len)
                               : base;
  std::vector<double> frequencies(static_cast<std::size_t>(rope_size / 2));
  for (std::size_t i = 0; i < frequencies.size(); ++i)
    frequencies[i] = std::pow(used_base, -2.0 * static_cast<double>(i) / rope_size);
  if (!scaling) return frequencies;
  switch (scaling->kind) {
    case RopeScalingKind::Linear:
      for (double& frequency : frequencies) frequency /= scaling->factor;
      break;
    case RopeScalingKind::Dynamic:
      break;
    case RopeScalingKind::Yarn:
      divide_by_ramp(frequencies, base, rope_size, *scaling);
      break;
    case RopeScalingKind::Llama3:
      for (double& frequency : frequencies) frequency = llama3_frequency(frequency, *scaling);
      break;
  }
  return frequencies;
}

double rope_attention_factor(const std::optional<RopeScaling>& scaling) {
  if (!is_yarn(scaling)) return 1.0;
  if (scaling->attention_factor) return *scaling->attention_factor;
  const double mscale = scaling->mscale.value_or(0.0);
  const double all_dim = scaling->mscale_all_dim.value_or(0.0);
  if (mscale != 0.0 && all_dim != 0.0)
    return magnitude(scaling->factor, mscale) / magnitude(scaling->factor, all_dim);
  return magnitude(scaling->factor, 1.0);
}

double rope_latent_score_factor(const std::optional<RopeScaling>& scaling) {
  if (!is_yarn(scaling) || !scaling->mscale_all_dim) return 1.0;
  const double m = magnitude(scaling->factor, *scaling->mscale_all_dim);
  return m * m;
}

}  // namespace meshplan::models
