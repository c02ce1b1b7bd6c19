#pragma once

#include "program/plan/plan.hpp"

namespace meshplan::program {

/// What the sizes of a twin's model must suit.
struct ModelSizes {
  int num_layers = 0;
  std::int64_t seq_len = 0;
  int head_shards = 1;       // ranks that have query and key heads of their own
  bool float8 = false;       // products want multiples of 16
  bool chooses_all = false;  // all experts, all keys: rounding then decides no near tie
};

/// The plan's model with every feature of it and small sizes: fewer key than query heads where it
/// has, key heads that ranks share where its ranks do, a vocabulary that needs padding where it
/// does. Initial weights are large enough for attention that is not uniform.
models::ModelSpec shrunk_model(const Plan& plan, const ModelSizes& sizes);

/// Patterns of Plan::frozen with the numbers of their layers scaled.
std::vector<std::string> shrunk_patterns(const std::vector<std::string>& patterns, int layers,
                                         int shrunk_layers);

}  // namespace meshplan::program
