// A model in one line, for messages and lists.
#pragma once

#include <string>
#include <vector>

#include "models/model_spec.hpp"

namespace meshplan::models {

/// "61 layers of width 7168; latent attention of 128 heads; 256 experts of 2048, 8 a token, in 58
/// layers; 1 prediction module"
std::string describe_parts(const ModelSpec& spec);

/// Fields in which a decoder is more than attention with windows or latents, MLPs and experts: what
/// a writer of such decoders does not know.
std::vector<std::string> parts_beyond_plain(const ModelSpec& spec);

}  // namespace meshplan::models
