// Where ranks run, and how long they may hang.
#pragma once

#include <optional>
#include <string>

#include "options/command_line.hpp"

namespace meshplan::cli {

struct HostOptions {
  std::optional<std::string> hosts;
  std::optional<std::string> hostfile;
  bool no_binding = false;
  int cores_per_rank = 1;  // not an option: of what the job runs
  double hang_timeout_s = 60;
};

/// --hosts --hostfile --no-binding --hang-timeout
void add_host_options(Command& command, HostOptions& options);

}  // namespace meshplan::cli
