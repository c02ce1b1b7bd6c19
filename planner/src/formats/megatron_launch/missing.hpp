// Settings of a script that depend on what its caller has not said: all at once, with a command
// line that would do.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "formats/megatron/reading.hpp"
#include "planner/formats/formats.hpp"
#include "shell/script.hpp"

namespace meshplan::planner::megatron {

/// Arguments are among what is missing, and none was given.
struct MissingArguments : ConfigError {
  using ConfigError::ConfigError;
  int last_needed = 0;
};

class Missing {
 public:
  void take(const UnknownSetting& setting);
  /// A word that may hold flags.
  void take(const shell::Unknown& word, const std::set<std::string>& flags);
  bool empty() const { return flags_of_.empty() && !first_; }
  /// Are there arguments among what is missing, or variables alone?
  bool needs_arguments() const;

  /// @throws ConfigError, MissingArguments
  [[noreturn]] void refuse(const shell::Script& script, const ImportRequest& request) const;

 private:
  std::string listed(const shell::Script& script) const;
  std::string example(const shell::Script& script, const ImportRequest& request) const;

  std::map<std::string, std::set<std::string>> flags_of_;  // by what they need
  std::optional<UnknownSetting> first_;                    // that needs nothing with a name
};

/// A command line of the script in a page beside it, or in its own comments.
struct Usage {
  std::vector<std::string> arguments;
  std::string place;  // "README.md:12"
};
/// @param least  arguments that it has to have
std::optional<Usage> documented_usage(const ImportRequest& request, std::size_t least);

}  // namespace meshplan::planner::megatron
