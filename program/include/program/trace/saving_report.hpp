#pragma once

#include <cstdint>
#include <optional>

namespace meshplan::program {

/// What one save was predicted to cost.
struct PredictedSave {
  double stall_s = 0;
  std::int64_t bytes = 0;  // of the rank that saves most
  bool operator==(const PredictedSave&) const = default;
};

/// What saving to one place cost a run. Seconds and bytes are those of the rank that has most.
struct SavingTimes {
  int saves = 0;
  int skipped = 0;         // because the one before was not finished
  double stall_s = 0;      // that steps were held up, over all saves
  double stall_share = 0;  // of the time of all steps, which has no stalls in it
  std::int64_t bytes = 0;  // that a rank copies in one save
  std::optional<PredictedSave> predicted = {};
  double stall_of_save_s() const { return saves > 0 ? stall_s / saves : 0; }
  bool operator==(const SavingTimes&) const = default;
};

struct SavingReport {
  SavingTimes disk;
  SavingTimes memory;  // of the job's nodes
  bool operator==(const SavingReport&) const = default;
};

}  // namespace meshplan::program
