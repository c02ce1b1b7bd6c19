// Inputs that are almost right: a seed with a few changes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/json_fields.hpp"
#include "support/random.hpp"

namespace meshplan::fuzz {

using testing::Random;

struct Seed {
  std::string text;
  std::optional<Json> json;  // if the text is JSON
};

/// @param text  parsed if it is JSON
Seed make_seed(std::string text);

/// One change of a random value in `root`; some take a value of `donor`.
void change_json(Random& random, Json& root, const Json& donor);

/// One of `seeds` with 1 to 4 changes: of JSON mostly its structure (numbers to their extremes,
/// types swapped, keys renamed, removed and doubled, lists repeated, values nested and exchanged
/// with another seed's), of other text its lines, words and numbers; of both their bytes.
std::string mutated(Random& random, const std::vector<Seed>& seeds);

}  // namespace meshplan::fuzz
