// The tower of a multimodal model that makes vectors of images, which its decoder reads among those
// of tokens: a vision transformer (Dosovitskiy et al. 2021) and a projector.
#pragma once

#include <vector>

namespace meshplan::models {

struct VisionSpec {
  int num_layers = 0;
  int hidden_size = 0;
  int ffn_size = 0;
  int num_heads = 0;
  int head_size = 0;
  int patch_elements = 0;   // numbers of a patch: channels * frames * height * width
  int positions = 0;        // rows of a table of positions; 0 = none
  bool gated = false;       // the MLP
  bool biases = true;       // of its linears
  bool rms_norm = false;    // else layer norms
  bool four_norms = false;  // around each half of a layer, too
  bool qk_norm = false;
  std::vector<int> projector;  // widths: of the patches that make one token, ..., of the decoder
  bool projector_biases = true;
  int projectors = 1;     // alike, of which all but one read hidden layers (DeepStack)
  int image_patches = 0;  // of an image, before they are merged
  double images_per_sequence = 1;
  bool operator==(const VisionSpec&) const = default;

  /// Patches that become one token of the decoder.
  int patches_per_token() const {
    return projector.empty() || hidden_size == 0 ? 1 : projector.front() / hidden_size;
  }
};

}  // namespace meshplan::models
