// Predictions laid against published measurements, and the constants fitted on them.
//
// Errors are predicted / measured - 1. Statistics average within a family (rows of the same work
// per replica) first, then over families.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "sim/anchors/adjustment.hpp"
#include "sim/engine/prediction_terms.hpp"
#include "sim/fit/published_table.hpp"
#include "sim/prices/fitted_constants.hpp"
#include "sim/stacks/run_prediction.hpp"

namespace meshplan::sim {

/// Runs body(i) for every i < count, in any order and on any threads.
using ForEach = std::function<void(std::size_t, const std::function<void(std::size_t)>&)>;
void one_by_one(std::size_t count, const std::function<void(std::size_t)>& body);

struct RowPrediction {
  std::optional<RunPrediction> prediction;
  std::string note;  // why there is none, or what of the row it leaves out
  std::optional<double> error;
  std::optional<double> predicted_mem_gib;  // of the kind that was measured
  std::optional<double> memory_error;
};

/// A table with its rows prepared once, so that many constants can be tried.
class PreparedTable {
 public:
  PreparedTable(std::vector<PublishedRow> rows, const ForEach& for_each);
  const std::vector<PublishedRow>& rows() const { return rows_; }
  std::vector<RowPrediction> predict(const Constants& constants, const ForEach& for_each) const;
  RowPrediction predict_row(std::size_t row, const Constants& constants) const;
  /// With intervals that hold how well the fit knows its constants.
  RowPrediction predict_row(std::size_t row, const std::vector<ConstantRecord>& fitted) const;
  std::vector<RowPrediction> predict(const std::vector<ConstantRecord>& fitted,
                                     const ForEach& for_each) const;
  /// Terms of a row's prediction; empty if the row has none.
  std::vector<PredictionTerm> terms(std::size_t row, const RowPrediction& prediction) const;
  TimedShares timed_shares(std::size_t row, const Constants& constants) const;
  /// Corrects the predictions of the rows of the adjustment's cluster, software, model and
  /// precision, their errors and intervals. @returns how many these are
  int adjust(const Adjustment& adjustment, std::vector<RowPrediction>& predictions) const;
  /// The run of a row, as it is predicted; null if it is none.
  const TrainingRun* run(std::size_t row) const;
  /// Log of predicted over measured step time; absent where either is missing.
  std::optional<double> log_error(std::size_t row, const Constants& constants) const;

 private:
  std::vector<PublishedRow> rows_;
  std::vector<std::optional<PreparedRun>> runs_;
  std::vector<std::string> notes_;
};

struct ErrorSummary {
  int rows = 0;
  int families = 0;
  double mean_absolute = 0;
  double bias = 0;
  double median = 0;  // of the families' mean absolute errors
  double p90 = 0;
  double maximum = 0;
};

/// How well the fastest of several configurations of the same work is found.
struct ChoiceSummary {
  int groups = 0;
  double mean_regret = 0;  // measured time of the predicted best over the measured best, - 1
  double largest_regret = 0;
  double ordered_pairs = 0;  // share of pairs that are predicted in the right order
};

/// Share of rows whose measured step time lies inside its 80 % interval, and the median half-width.
struct IntervalSummary {
  int rows = 0;
  double covered = 0;
  double half_width = 0;
};

struct SuiteSummary {
  std::string suite;
  ErrorSummary step_time;
  ErrorSummary memory;
  ChoiceSummary choice;
  IntervalSummary intervals;
  int unpredicted = 0;
  int misfits = 0;  // rows that ran but are said not to fit
};

/// Suites in alphabetical order.
std::vector<SuiteSummary> summarize(const std::vector<PublishedRow>& rows,
                                    const std::vector<RowPrediction>& predictions);

IntervalSummary intervals_of(const std::vector<PublishedRow>& rows,
                             const std::vector<RowPrediction>& predictions);

/// What is left out together: rows of equal model shape, cluster or software stack.
enum class LeaveOut { Model, Cluster, Software };
std::string_view name_of(LeaveOut group);
std::string group_of(const PublishedRow& row, LeaveOut by);

struct FitOptions {
  int max_rounds = 25;
  std::vector<bool> row_used;       // empty: all
  std::vector<bool> constant_free;  // empty: all
};

struct Fit {
  std::vector<ConstantRecord> constants;
  double loss_before = 0;
  double loss_after = 0;
  int rounds = 0;
};

/// A group's rows, predicted with constants that were fitted without them.
struct LeftOutGroup {
  std::string group;
  int rows = 0;
  int families = 0;
  double fitted = 0;    // mean absolute error, its rows in the fit
  double left_out = 0;  // its rows not in the fit
  std::vector<std::pair<std::size_t, RowPrediction>> predictions;  // by row of the table
};

/// The table without one constant: held at its neutral value, the others fitted again.
struct Ablation {
  std::string constant;
  std::vector<SuiteSummary> suites;
};

/// Every group in turn; fits start at the expected values, so that nothing of the left-out rows
/// remains.
std::vector<LeftOutGroup> leave_one_out(const PreparedTable& table,
                                        const std::vector<ConstantRecord>& fitted, LeaveOut by,
                                        const ForEach& for_each);
std::vector<Ablation> ablate(const PreparedTable& table, const std::vector<ConstantRecord>& fitted,
                             const ForEach& for_each);

/// Iteratively reweighted least squares on the logs of predicted over measured, Gauss-Newton with
/// numeric derivatives and a weak pull to where it starts (Huber weights: Huber 1964; damping:
/// Levenberg 1944, Marquardt 1963). A family counts once, a suite by the root of its families.
Fit fit_constants(const PreparedTable& table, const std::vector<ConstantRecord>& start,
                  const FitOptions& options, const ForEach& for_each);

}  // namespace meshplan::sim
