// Bugs as edits of lowered programs, each with a plan of the size that users run.
#pragma once

#include <string>
#include <vector>

#include "program/certificate/twin.hpp"
#include "runtime/parity/mutations.hpp"

namespace meshplan::test {

struct PlantedBug {
  std::string technique;  // by name, or what else of a plan may be lost
  std::string what;
  program::Plan plan;
  Mutation mutate;
  program::TwinPrecision precision = program::TwinPrecision::Exact;
};

/// At least one of every technique; bugs of further techniques join here.
std::vector<PlantedBug> planted_bugs();

}  // namespace meshplan::test
