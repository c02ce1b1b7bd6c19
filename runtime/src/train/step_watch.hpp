// Turns what every rank saw of a step into one report, the same on all ranks.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "program/trace/step_report.hpp"
#include "runtime/train/watch_options.hpp"
#include "train/rank_times.hpp"
#include "train/trainer.hpp"
#include "train/warnings.hpp"

namespace meshplan::runtime {

class StepWatch {
 public:
  /// Collective over `world`.
  /// @param losses  before the run, oldest first  @param status  may be null
  StepWatch(const WatchOptions& options, Trainer& trainer, Communicator& world,
            std::span<const double> losses, StatusBoard* status);

  /// Before step `step` (1 = the first): decides whether its operations are timed.
  void begin(int step);
  /// After it: completes the report, which has step, loss, norm, learning rate and, of its experts'
  /// rows beyond the plan, this rank's.
  /// Collective. @param own_seconds  of this rank
  void complete(program::StepReport& report, double own_seconds);

 private:
  void exchange(const program::RowsBeyondPlan& own_rows, double own_seconds);
  program::RowsBeyondPlan rows_beyond_plan() const;
  program::StepTiming timing() const;
  program::OverRanks over_ranks(std::size_t figure) const;
  double figure(int rank, std::size_t which) const;
  double computing_s(int rank) const;

  WatchOptions options_;
  Trainer& trainer_;
  Communicator& world_;
  StatusBoard* status_;
  std::string exchanging_;  // what the board says meanwhile
  RankTimer timer_;
  std::vector<int> stages_;  // of each rank
  LossSpikes spikes_;
  SlowRanks slow_ranks_;
  std::vector<std::int64_t> bucket_bytes_;  // (rank, most_buckets_); 0 = none
  std::size_t most_buckets_ = 0;
  double model_flops_;
  bool timed_ = false;
  std::vector<double> own_;
  std::vector<double> all_;  // (rank, figures of a rank)
};

}  // namespace meshplan::runtime
