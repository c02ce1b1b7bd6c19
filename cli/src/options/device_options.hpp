// What ranks compute on, and how those on GPUs communicate: --device --comm --share-gpu ...
#pragma once

#include <optional>
#include <string>

#include "options/command_line.hpp"

namespace meshplan::cli {

struct DeviceOptions {
  std::optional<std::string> device;  // "cpu", "cuda", "auto" = absent
  std::optional<std::string> comm;    // "nccl", "mpi", "auto" = absent
  bool share_gpu = false;
  bool no_graphs = false;
  std::optional<std::string> gemm_cache;  // folder; of run alone
  int threads_per_rank = 1;               // of a CPU rank
  // What NCCL waits for a peer, half of --hang-timeout: the rank itself reports the hang and aborts
  // its communicators before its guardian ends it.
  double hang_timeout_s = 30;
};

/// @param default_device  of --device, in words
void add_device_options(Command& command, DeviceOptions& options,
                        const std::string& default_device = "what the plan's cluster is made of");

}  // namespace meshplan::cli
