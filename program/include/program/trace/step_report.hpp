// What one step of a run reports: a line of its log, a row on the terminal. See docs/watching.md,
// which defines every figure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "program/trace/expert_report.hpp"

namespace meshplan::program {

/// A figure over ranks.
struct OverRanks {
  double min = 0;
  double mean = 0;
  double max = 0;
  int max_rank = 0;  // the first rank that has the maximum
  bool operator==(const OverRanks&) const = default;
};

/// Communication along an axis of the mesh, in seconds of a rank: exposed while nothing is computed
/// there, hidden while something is.
struct CommunicationTime {
  OverRanks exposed_s;
  OverRanks hidden_s;
  bool operator==(const CommunicationTime&) const = default;
};

/// The reduction of one gradient bucket, over the ranks of its stage.
struct BucketTime {
  int stage = 0;
  int bucket = 0;  // in the order in which they are issued
  std::int64_t bytes = 0;
  OverRanks seconds;
  bool operator==(const BucketTime&) const = default;
};

/// Where the time of a step went, over all ranks.
struct StepTiming {
  std::map<std::string, OverRanks> phases_s;               // by phase_names()
  std::map<std::string, CommunicationTime> communication;  // by axis, those that a rank waited for
  std::vector<BucketTime> buckets;
  OverRanks busy_share;      // computing / step time
  double rank_balance = 1;   // mean / max over ranks of the time spent computing
  double stage_balance = 1;  // the same over the means of the stages
  bool operator==(const StepTiming&) const = default;
};

/// mean_imbalance() in the mean over the steps of a run's log (`meshplan run --log`).
/// @throws ConfigError if a line is no JSON, or no step of it has experts
ExpertImbalance imbalance_of_log(std::string_view log, const std::string& file);

/// "forward", "recompute", ...: how a rank's step is divided, in order; the last one is "idle".
const std::vector<std::string>& phase_names();

/// A rank that has computed longer than the ranks that do the same work, for several timed steps.
struct SlowRank {
  int rank = 0;
  double times = 1;  // as long as the median of the others, in the last of these steps
  bool operator==(const SlowRank&) const = default;
};

struct StepReport {
  int step = 0;  // 1 = the first
  double loss = 0;
  std::optional<double> gradient_norm;  // before clipping; absent if the step was skipped
  double learning_rate = 0;
  double seconds = 0;  // of the slowest rank
  double tokens_per_s = 0;
  double samples_per_s = 0;
  std::optional<double> mfu;  // absent where no peak is known
  double resident_bytes = 0;  // of the process that holds most
  std::optional<double> evaluation_loss;
  std::optional<double> prediction_loss;               // mean of the prediction modules'
  std::optional<double> loss_scale;                    // fp16: of this step
  std::optional<StepTiming> timing;                    // of steps whose operations were timed
  std::optional<ExpertReport> experts = std::nullopt;  // of models that have some
  // Of sparse attention, mean over tokens, sum over layers; in the gradient, not in `loss`.
  std::optional<double> indexer_loss = std::nullopt;
  std::optional<SlowRank> slow_rank =
      std::nullopt;  // that is slow: of several the newest, then the worst
  std::vector<std::string> warnings;
  bool operator==(const StepReport&) const = default;
};

std::string to_json(const StepTiming& timing);
std::string to_json(const ExpertReport& experts);
/// One line without its end. @throws ConfigError naming file, path, value and rule
std::string to_json_line(const StepReport& report);
StepReport parse_step_report(std::string_view line, const std::string& file);
/// The JSON Schema of a step's line.
std::string step_report_schema();

/// Sums of timings of several steps of one run.
class MeanTiming {
 public:
  void add(const StepTiming& timing);
  int steps() const { return steps_; }
  /// Every figure's mean over the steps; absent without any. max_rank is that of the last step.
  std::optional<StepTiming> mean() const;

 private:
  StepTiming sum_;
  int steps_ = 0;
};

}  // namespace meshplan::program
