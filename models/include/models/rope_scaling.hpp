// Rotary frequencies of models that were stretched to longer sequences, as Hugging Face
// transformers defines them (modeling_rope_utils.py, version 5), in fp64. Checked against PyTorch
// by tests/reference_python.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "models/model_spec.hpp"

namespace meshplan::models {

/// Radians per position of each rotated pair i < R/2, for sequences of `seq_len` tokens:
///   unscaled  f_i = base^(-2i / R)
///   Linear    f_i / factor
///   Dynamic   base becomes base * (factor * S / L - (factor - 1))^(R / (R - 2)), with L the
///             original length and S = max(seq_len, L): unscaled up to L. In training every step
///             has the plan's sequence length, packed documents included
///   Yarn      f_i (1 - r_i) + f_i / factor * r_i, with r_i the ramp from 0 at pair d(beta_fast) to
///             1 at pair d(beta_slow), where d(n) = R ln(L / (2 pi n)) / (2 ln base) is the pair
///             that turns n times in L positions (Peng et al. 2023, section 3.2)
///   Llama3    f_i for wavelengths 2 pi / f_i below L / high_frequency_factor, f_i / factor above
///             L / low_frequency_factor, blended linearly in L / wavelength between
/// @param scaling  with its original_max_positions
/// @param rope_size  R, even
std::vector<double> rope_inverse_frequencies(double base, int rope_size,
                                             const std::optional<RopeScaling>& scaling,
                                             std::int64_t seq_len);

/// Factor of cos and sin: of Yarn its attention_factor, else m(mscale) / m(mscale_all_dim) where
/// both are given and not 0, else m(1), with m(s) = 0.1 s ln(factor) + 1; 1 of the other kinds.
double rope_attention_factor(const std::optional<RopeScaling>& scaling);

/// Factor of the attention scores with multi-head latent attention: m(mscale_all_dim)^2
/// (DeepSeek-V3's modeling code), 1 where mscale_all_dim is not given.
double rope_latent_score_factor(const std::optional<RopeScaling>& scaling);

}  // namespace meshplan::models
