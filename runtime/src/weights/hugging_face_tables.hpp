// The table of names of Hugging Face weights: for each family, which tensor of theirs holds which
// parameter of ours, and how.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "models/model_spec.hpp"

namespace meshplan::runtime {

/// How a tensor of theirs holds the rows of ours.
enum class Layout {
  Same,
  Transposed,   // (in, out): the Conv1D of GPT-2
  Interleaved,  // rotated rows of a head as pairs (2i, 2i + 1); ours are i and i + R/2
  Stacked,      // all experts in one, (X, in, out), rows of the sections in turns: of gate, of up
  Depthwise,    // (channels, 1, taps): the Conv1d of a short convolution
};

/// `count` rows of ours from `ours` on are rows of theirs from `theirs` on.
struct RowRun {
  std::int64_t ours = 0;
  std::int64_t theirs = 0;
  std::int64_t count = 0;
};
/// Where the rows of a parameter lie in a tensor of theirs that holds several.
struct FusedRows {
  std::int64_t total = 0;
  std::vector<RowRun> runs;
};

/// One line of the table. "{L}" is the layer, "{X}" the expert. Both sides are followed by the same
/// ".weight", ".bias" or nothing.
struct NameRule {
  std::string_view ours;
  std::string_view theirs;
  std::optional<int> section = std::nullopt;  // of a fused parameter; absent: all of it
  Layout layout = Layout::Same;
  FusedRows (*rows)(const models::ModelSpec&) = nullptr;  // absent: all rows of theirs
};

using Rules = std::span<const NameRule>;

struct Family {
  std::string_view name;
  std::string_view prefix;
  std::vector<Rules> rules;
  float norm_shift = 0;  // their norms hold w - norm_shift
};

/// Sorted by name.
const std::vector<Family>& weight_families();

}  // namespace meshplan::runtime
