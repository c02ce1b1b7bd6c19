// meshplan data order: which tokens of the file each step of a run reads, on which ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace meshplan::cli {

/// As the run would be given them.
struct DataOrderOptions {
  std::string plan;
  std::optional<std::string> data;
  std::int64_t seed = 1;
  int first_step = 0;
  int num_steps = 1;
  int evaluate_every = 0;
  bool json = false;
};

/// Prints; @returns the exit code. @throws ConfigError
int print_data_order(const DataOrderOptions& options);

}  // namespace meshplan::cli
