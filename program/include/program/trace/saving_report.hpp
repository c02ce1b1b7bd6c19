#pragma once

#include <cstdint>

namespace meshplan::program {

/// What saving to one place cost a run. Seconds and bytes are those of the rank that has most.
struct SavingTimes {
  int saves = 0;
  int skipped = 0;         // because the one before was not finished
  double stall_s = 0;      // that steps were held up, over all saves
  std::int64_t bytes = 0;  // that a rank copies in one save
  bool operator==(const SavingTimes&) const = default;
};

struct SavingReport {
  SavingTimes disk;
  SavingTimes memory;  // of the job's nodes
  double steps_s = 0;  // of all steps, without what saving added
  bool operator==(const SavingReport&) const = default;
};

}  // namespace meshplan::program
