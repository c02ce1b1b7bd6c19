#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/node_store/node_store_options.hpp"

namespace meshplan::runtime {

class RecoveredState;

/// What a run starts from and what it saves.
struct CheckpointOptions {
  std::string folder;  // "" = none are saved
  int every = 0;       // steps; 0 = only at the end and when the run is stopped
  /// Mean time between failures of one device, from which the interval follows instead of `every`.
  std::optional<double> device_mtbf_s = std::nullopt;
  NodeStoreOptions memory;  // states that are kept in memory besides
  /// A state in memory that is continued instead of `resume`; null = none.
  std::shared_ptr<RecoveredState> recovered = nullptr;
  int keep = 0;                      // newest to keep; 0 = all
  std::string resume;                // a checkpoint to continue; "" = none
  std::vector<std::string> changes;  // settings that may differ from those of that run
  std::string
      init_from;       // a checkpoint or a Hugging Face folder whose weights a new run starts from
  std::string assume;  // model_type to read that folder's config.json as; "" = its own
  /// Takes a line about what happens to the folder, on rank 0; null = silent.
  std::function<void(const std::string&)> warn;
  /// Takes a line about when checkpoints are saved, on rank 0; null = silent.
  std::function<void(const std::string&)> say;
  /// The signal that has asked this rank to stop (StopSignal::number()); 0: none. Asked on every
  /// rank before the first step, from when on it is to look for signals, and after each but the
  /// last; the run ends after a step in which any rank had one.
  std::function<int()> stop_signal;
};

}  // namespace meshplan::runtime
