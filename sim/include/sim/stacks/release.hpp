// Releases of training stacks, "megatron-core@25.09", and what changed with them.
#pragma once

#include <compare>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/clusters/cluster.hpp"
#include "sim/prices/flash_generation.hpp"
#include "sim/stacks/training_run.hpp"

namespace meshplan::sim {

/// The numbers of a release, compared one by one; one that is left out is 0, so 25.9 is 25.09 and
/// older than 25.09.01.
class Release {
 public:
  /// "25.09", "2025-06" or "v0.2.1": numbers joined by dots or dashes. Absent for anything else.
  static std::optional<Release> parse(std::string_view text);
  auto operator<=>(const Release&) const = default;

 private:
  std::vector<int> numbers_;  // without zeros at the end
};

/// A stack as users name it: "megatron-core", or "megatron-core@25.09".
struct SoftwareRelease {
  std::string name;
  std::optional<std::string> release;  // as written; absent: the newest
  bool operator==(const SoftwareRelease&) const = default;
};
SoftwareRelease parse_software(std::string_view text);
/// The same with the stack's name as its profile has it: "megatron-lm@25.09" is
/// "megatron-core@25.09". What is no other name of a stack stays as it is.
std::string with_stack_name(std::string_view text);

/// A change of the software itself: it holds for each run of the release, and of the newest.
struct ReleaseChange {
  std::string since;    // release
  std::string source;   // where it is public
  std::string profile;  // JSON object: fields of the profile with what they are from then on
  bool dated = false;   // runs of an unknown release are not taken to have it
  bool operator==(const ReleaseChange&) const = default;
};

/// Where a recipe chooses; what is absent does not matter.
struct RecipePlace {
  std::optional<Architecture> architecture;
  std::optional<bool> racks;  // does NVLink join the devices of several nodes?
  std::optional<bool> experts;
  std::optional<bool> fused_dispatch;    // does the run state a fused dispatcher, whichever?
  std::vector<RunPrecision> precisions;  // empty: any
  bool operator==(const RecipePlace&) const = default;
};

/// What a release's recipes choose together for runs that leave it open. It holds only where a
/// release is named: who runs the software without its recipes has to ask for each.
struct ReleaseRecipe {
  std::string since;
  std::string source;
  RecipePlace where;
  program::StackSettings settings;  // what it chooses
  std::optional<FlashGeneration> flash;
  bool operator==(const ReleaseRecipe&) const = default;
};

/// The releases of one stack, as its profile has them.
struct Releases {
  std::string named_by;  // what the numbers are of
  std::string oldest;    // that the profile describes; empty: no release is told from another
  std::vector<ReleaseChange> changes;  // oldest first
  std::vector<ReleaseRecipe> recipes;  // oldest first
  bool operator==(const Releases&) const = default;
};

/// @throws ConfigError for a release that is no list of numbers, of another scheme than the oldest
/// known one ("2025-06" for "24.07") or older than it, and where the stack's are not known
void require_known(const SoftwareRelease& software, const Releases& releases);

}  // namespace meshplan::sim
