#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "core/error.hpp"
#include "sim/fit/validation.hpp"

namespace meshplan::sim {
namespace {

constexpr double kHuber = 0.04;   // log error beyond which a row's pull stops growing
constexpr double kStep = 0.02;    // of the range, for derivatives
constexpr double kPrior = 0.3;    // standard deviation of a constant around its start, of the range
constexpr int kRefitRounds = 10;  // of the fits of a leave-one-out or an ablation
constexpr double kNoise = 0.05;   // standard deviation of a row's log error

/// Solves a symmetric positive definite system by Cholesky's method.
std::vector<double> solve(std::vector<std::vector<double>> a, std::vector<double> b) {
  const std::size_t n = b.size();
  for (std::size_t j = 0; j < n; ++j) {
    for (std::size_t k = 0; k < j; ++k) a[j][j] -= a[j][k] * a[j][k];
    require_invariant(a[j][j] > 0, "the normal equations are positive definite");
    a[j][j] = std::sqrt(a[j][j]);
    for (std::size_t i = j + 1; i < n; ++i) {
      for (std::size_t k = 0; k < j; ++k) a[i][j] -= a[i][k] * a[j][k];
      a[i][j] /= a[j][j];
    }
  }
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t k = 0; k < i; ++k) b[i] -= a[i][k] * b[k];
    b[i] /= a[i][i];
  }
  for (std::size_t i = n; i-- > 0;) {
    for (std::size_t k = i + 1; k < n; ++k) b[i] -= a[k][i] * b[k];
    b[i] /= a[i][i];
  }
  return b;
}

/// A family counts once; a suite counts by the root of its number of families.
std::vector<double> row_weights(const std::vector<PublishedRow>& rows,
                                const std::vector<bool>& used) {
  std::map<std::string, int> family_rows;
  std::map<std::string, std::set<std::string>> suite_families;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (!used.empty() && !used[i]) continue;
    ++family_rows[rows[i].family];
    suite_families[rows[i].suite].insert(rows[i].family);
  }
  std::vector<double> weights(rows.size(), 0);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (!used.empty() && !used[i]) continue;
    const double families = static_cast<double>(suite_families[rows[i].suite].size());
    weights[i] = 1 / std::sqrt(families) / family_rows[rows[i].family];
  }
  double sum = 0, count = 0;
  for (const double w : weights) {
    sum += w;
    count += w > 0 ? 1 : 0;
  }
  for (double& w : weights) w *= count / std::max(sum, 1e-9);
  return weights;
}

class Fitter {
 public:
  Fitter(const PreparedTable& table, const std::vector<ConstantRecord>& start,
         const FitOptions& options, const ForEach& for_each)
      : table_(table),
        options_(options),
        for_each_(for_each),
        start_(start),
        records_(start),
        weights_(row_weights(table.rows(), options.row_used)) {
    for (std::size_t c = 0; c < start.size(); ++c)
      if (options.constant_free.empty() || options.constant_free[c]) free_.push_back(c);
  }

  Fit run() {
    Fit fit;
    std::vector<double> errors = errors_at(records_);
    double loss = loss_of(errors, records_);
    fit.loss_before = loss;
    double damping = 1e-3;
    for (fit.rounds = 0; fit.rounds < options_.max_rounds; ++fit.rounds) {
      const auto slopes = derivatives(errors);
      bool better = false;
      for (int attempt = 0; attempt < 5 && !better; ++attempt) {
        const auto tried = moved(slopes, errors, damping);
        const auto tried_errors = errors_at(tried);
        const double tried_loss = loss_of(tried_errors, tried);
        better = tried_loss < loss * (1 - 1e-5);
        damping *= better ? 0.3 : 8;
        if (!better) continue;
        records_ = tried;
        errors = tried_errors;
        loss = tried_loss;
      }
      if (!better) break;
    }
    fit.loss_after = loss;
    set_sigmas(derivatives(errors), errors);
    fit.constants = records_;
    return fit;
  }

 private:
  double range(std::size_t c) const { return records_[c].high - records_[c].low; }

  std::vector<double> errors_at(const std::vector<ConstantRecord>& records) const {
    const Constants constants = constants_of(records);
    std::vector<double> errors(weights_.size(), 0);
    for_each_(weights_.size(), [&](std::size_t i) {
      if (weights_[i] > 0) errors[i] = table_.log_error(i, constants).value_or(0);
    });
    return errors;
  }

  static double huber(double error) {
    const double size = std::abs(error);
    return size <= kHuber ? error * error / 2 : kHuber * (size - kHuber / 2);
  }
  static double huber_weight(double error) {
    return std::abs(error) <= kHuber ? 1 : kHuber / std::abs(error);
  }

  double loss_of(const std::vector<double>& errors,
                 const std::vector<ConstantRecord>& records) const {
    double loss = 0;
    for (std::size_t i = 0; i < errors.size(); ++i) loss += weights_[i] * huber(errors[i]);
    for (const std::size_t c : free_) {
      const double away = (records[c].value - start_[c].expected) / (kPrior * range(c));
      loss += kNoise * kNoise * away * away / 2;
    }
    return loss;
  }

  /// slopes[f][row]: change of the log error per range of free constant f.
  std::vector<std::vector<double>> derivatives(const std::vector<double>& errors) const {
    std::vector<std::vector<double>> slopes;
    for (const std::size_t c : free_) {
      auto moved_records = records_;
      double step = kStep * range(c);
      if (records_[c].value + step > records_[c].high) step = -step;
      moved_records[c].value += step;
      auto slope = errors_at(moved_records);
      for (std::size_t i = 0; i < slope.size(); ++i)
        slope[i] = (slope[i] - errors[i]) / (step / range(c));
      slopes.push_back(std::move(slope));
    }
    return slopes;
  }

  std::vector<std::vector<double>> normal_matrix(const std::vector<std::vector<double>>& slopes,
                                                 const std::vector<double>& errors) const {
    const std::size_t n = free_.size();
    std::vector<std::vector<double>> a(n, std::vector<double>(n, 0));
    for (std::size_t i = 0; i < errors.size(); ++i) {
      const double w = weights_[i] * huber_weight(errors[i]);
      if (w <= 0) continue;
      for (std::size_t f = 0; f < n; ++f)
        for (std::size_t g = 0; g <= f; ++g) a[f][g] += w * slopes[f][i] * slopes[g][i];
    }
    for (std::size_t f = 0; f < n; ++f) a[f][f] += kNoise * kNoise / (kPrior * kPrior);
    for (std::size_t f = 0; f < n; ++f)
      for (std::size_t g = 0; g < f; ++g) a[g][f] = a[f][g];
    return a;
  }

  std::vector<ConstantRecord> moved(const std::vector<std::vector<double>>& slopes,
                                    const std::vector<double>& errors, double damping) const {
    const std::size_t n = free_.size();
    auto a = normal_matrix(slopes, errors);
    std::vector<double> b(n, 0);
    for (std::size_t f = 0; f < n; ++f) {
      for (std::size_t i = 0; i < errors.size(); ++i)
        b[f] -= weights_[i] * huber_weight(errors[i]) * errors[i] * slopes[f][i];
      const std::size_t c = free_[f];
      b[f] -=
          kNoise * kNoise / (kPrior * kPrior) * (records_[c].value - start_[c].expected) / range(c);
      a[f][f] *= 1 + damping;
    }
    const auto step = solve(a, b);
    auto records = records_;
    for (std::size_t f = 0; f < n; ++f) {
      const std::size_t c = free_[f];
      const double limited = std::clamp(step[f], -0.25, 0.25);
      records[c].value =
          std::clamp(records[c].value + limited * range(c), records[c].low, records[c].high);
    }
    return records;
  }

  /// What a row's error tells beyond its family's: rows of a family err together, so a family
  /// counts once, and errors are as large as they turn out to be.
  double row_variance(const std::vector<double>& errors) const {
    double squares = 0;
    std::set<std::string> families;
    for (std::size_t i = 0; i < errors.size(); ++i) {
      if (weights_[i] <= 0) continue;
      squares += weights_[i] * huber_weight(errors[i]) * errors[i] * errors[i];
      families.insert(table_.rows()[i].family);
    }
    if (families.empty()) return kNoise * kNoise;
    return std::max(kNoise * kNoise, squares / static_cast<double>(families.size()));
  }

  /// Families of one stack and cluster err together, too: the design effect by which a sample of
  /// such groups knows less than its size says (Kish 1965, "Survey Sampling", section 5.4), such
  /// that 80 % of left-out runs lie inside their intervals.
  static constexpr double kDesignEffect = 3;

  /// From the inverse of the normal matrix: the part of a constant that the rows leave open.
  void set_sigmas(const std::vector<std::vector<double>>& slopes,
                  const std::vector<double>& errors) {
    auto a = normal_matrix(slopes, errors);
    const double rows = kNoise * kNoise / (kDesignEffect * row_variance(errors));
    const double prior = kNoise * kNoise / (kPrior * kPrior);
    for (std::size_t f = 0; f < a.size(); ++f)
      for (std::size_t g = 0; g < a.size(); ++g)
        a[f][g] = f == g ? (a[f][f] - prior) * rows + prior : a[f][g] * rows;
    for (std::size_t f = 0; f < free_.size(); ++f) {
      std::vector<double> unit(free_.size(), 0);
      unit[f] = 1;
      const double variance = solve(a, unit)[f] * kNoise * kNoise;
      ConstantRecord& record = records_[free_[f]];
      record.relative_sigma =
          std::sqrt(std::max(0.0, variance)) * range(free_[f]) / std::max(1e-9, record.value);
    }
  }

  const PreparedTable& table_;
  const FitOptions& options_;
  const ForEach& for_each_;
  const std::vector<ConstantRecord>& start_;
  std::vector<ConstantRecord> records_;
  std::vector<double> weights_;
  std::vector<std::size_t> free_;
};

/// Family-averaged size of the errors of the rows that `chosen` picks.
ErrorSummary errors_of(const PreparedTable& table, const Constants& constants,
                       const std::vector<bool>& chosen, const ForEach& for_each) {
  auto rows = table.rows();
  auto predictions = table.predict(constants, for_each);
  std::vector<PublishedRow> kept_rows;
  std::vector<RowPrediction> kept;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (!chosen[i]) continue;
    kept_rows.push_back(rows[i]);
    kept_rows.back().suite = "all";
    kept.push_back(predictions[i]);
  }
  const auto suites = summarize(kept_rows, kept);
  return suites.empty() ? ErrorSummary{} : suites.front().step_time;
}

}  // namespace

std::vector<LeftOutGroup> leave_one_out(const PreparedTable& table,
                                        const std::vector<ConstantRecord>& fitted, LeaveOut by,
                                        const ForEach& for_each) {
  std::map<std::string, std::vector<bool>> groups;
  const auto& rows = table.rows();
  for (std::size_t i = 0; i < rows.size(); ++i)
    groups.try_emplace(group_of(rows[i], by), rows.size(), false).first->second[i] = true;
  std::vector<LeftOutGroup> results;
  for (const auto& [name, members] : groups) {
    FitOptions options{.max_rounds = kRefitRounds};
    options.row_used.resize(rows.size());
    for (std::size_t i = 0; i < rows.size(); ++i) options.row_used[i] = !members[i];
    const Fit fit = fit_constants(table, at_expected(fitted), options, for_each);
    const auto with = errors_of(table, constants_of(fitted), members, for_each);
    const auto without = errors_of(table, constants_of(fit.constants), members, for_each);
    results.push_back({.group = name,
                       .rows = with.rows,
                       .families = with.families,
                       .fitted = with.mean_absolute,
                       .left_out = without.mean_absolute});
    for (std::size_t i = 0; i < rows.size(); ++i)
      if (members[i])
        results.back().predictions.emplace_back(i, table.predict_row(i, fit.constants));
  }
  return results;
}

std::vector<Ablation> ablate(const PreparedTable& table, const std::vector<ConstantRecord>& fitted,
                             const ForEach& for_each) {
  std::vector<Ablation> results;
  for (std::size_t c = 0; c < fitted.size(); ++c) {
    auto start = fitted;
    start[c].value = start[c].neutral;
    FitOptions options{.max_rounds = kRefitRounds,
                       .constant_free = std::vector<bool>(fitted.size(), true)};
    options.constant_free[c] = false;
    const Fit fit = fit_constants(table, start, options, for_each);
    results.push_back(
        {.constant = fitted[c].name,
         .suites = summarize(table.rows(), table.predict(constants_of(fit.constants), for_each))});
  }
  return results;
}

Fit fit_constants(const PreparedTable& table, const std::vector<ConstantRecord>& start,
                  const FitOptions& options, const ForEach& for_each) {
  return Fitter(table, start, options, for_each).run();
}

}  // namespace meshplan::sim
