#include "sim/fit/anchored_rows.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "core/error.hpp"
#include "sim/anchors/adjustment.hpp"

namespace meshplan::sim {
namespace {

/// A measured row beside its prediction.
struct Member {
  std::size_t row = 0;
  std::string suite;
  RunErrors errors;
  double log_error = 0;  // of measured over predicted
  double own = 0;
};

/// What all choices of anchors made of a row's prediction.
struct Tried {
  double choices = 0;
  double size = 0;    // sum of absolute errors
  double error = 0;   // sum of errors
  double inside = 0;  // choices
  double sigma = 0;   // sum of standard deviations
};

Tried operator+(const Tried& a, const Tried& b) {
  return {.choices = a.choices + b.choices,
          .size = a.size + b.size,
          .error = a.error + b.error,
          .inside = a.inside + b.inside,
          .sigma = a.sigma + b.sigma};
}

struct AnchoredGroup {
  std::vector<Member> members;
  Matrix shared;  // covariance
  std::vector<Tried> equal_layers, other_layers;
  std::map<std::string, double> largest_rise;  // by suite
};

double relative(double log_error) {
  return std::expm1(-log_error);  // predicted over measured, less one
}

bool inside(double log_error, double variance) {
  return std::abs(log_error) <= kDeviations80 * std::sqrt(variance);
}

AnchoredGroup group_of_members(std::vector<Member> members) {
  AnchoredGroup group{.members = std::move(members), .shared = {}};
  const std::size_t n = group.members.size();
  group.shared.assign(n, std::vector<double>(n, 0));
  group.equal_layers.resize(n);
  group.other_layers.resize(n);
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j <= i; ++j)
      group.shared[i][j] = group.shared[j][i] =
          shared_covariance(group.members[i].errors, group.members[j].errors);
  return group;
}

/// One choice of anchors.
class Choice {
 public:
  Choice(const AnchoredGroup& group, const std::vector<std::size_t>& anchors)
      : group_(group), anchors_(anchors) {
    AnchorErrors errors{.logs = {},
                        .shared = Matrix(anchors.size(), std::vector<double>(anchors.size(), 0)),
                        .own = {},
                        .configuration = {}};
    for (std::size_t a = 0; a < anchors.size(); ++a) {
      const Member& anchor = group.members[anchors[a]];
      errors.logs.push_back(anchor.log_error);
      errors.own.push_back(anchor.own);
      for (std::size_t b = 0; b < anchors.size(); ++b)
        errors.shared[a][b] = group.shared[anchors[a]][anchors[b]];
      std::size_t first = a;
      for (std::size_t b = a; b-- > 0;) first = same_run(anchors[a], anchors[b]) ? b : first;
      errors.configuration.push_back(static_cast<int>(first));
    }
    posterior_ = condition(errors);
  }

  /// Mean and variance of a member's log error.
  std::pair<double, double> of(std::size_t member) const {
    std::vector<double> covariances;
    double own = group_.members[member].own;
    for (std::size_t a = 0; a < anchors_.size(); ++a) {
      const bool same = same_run(member, anchors_[a]);
      covariances.push_back(group_.shared[member][anchors_[a]] + (same ? posterior_.own[a] : 0));
      if (same) own = posterior_.own[a] + kRepeatVariance;
    }
    double mean = 0, variance = group_.shared[member][member] + own;
    for (std::size_t a = 0; a < covariances.size(); ++a) {
      mean += covariances[a] * posterior_.weights[a];
      for (std::size_t b = 0; b < covariances.size(); ++b)
        variance -= covariances[a] * posterior_.inverse[a][b] * covariances[b];
    }
    return {mean, std::max(0.0, variance)};
  }

 private:
  bool same_run(std::size_t a, std::size_t b) const {
    return group_.members[a].errors.run == group_.members[b].errors.run;
  }

  const AnchoredGroup& group_;
  const std::vector<std::size_t>& anchors_;
  AnchorPosterior posterior_;
};

void try_choice(AnchoredGroup& group, const std::vector<std::size_t>& anchors) {
  const Choice choice(group, anchors);
  std::map<std::string, std::pair<double, int>> rises;  // sum of all rows of a suite, and how many
  for (std::size_t i = 0; i < group.members.size(); ++i) {
    if (std::ranges::find(anchors, i) != anchors.end()) continue;
    const Member& member = group.members[i];
    const auto [mean, variance] = choice.of(i);
    const double error = relative(member.log_error - mean);
    const bool equal = std::ranges::any_of(anchors, [&](std::size_t anchor) {
      return group.members[anchor].errors.layers == member.errors.layers;
    });
    Tried& tried = (equal ? group.equal_layers : group.other_layers)[i];
    ++tried.choices;
    tried.size += std::abs(error);
    tried.error += error;
    tried.inside += inside(member.log_error - mean, variance) ? 1 : 0;
    tried.sigma += std::sqrt(variance);
    auto& [rise, rows] = rises[member.suite];
    rise += std::abs(error) - std::abs(relative(member.log_error));
    ++rows;
  }
  for (const auto& [suite, sum] : rises) {
    const double rise = sum.first / sum.second;
    const auto [largest, first] = group.largest_rise.emplace(suite, rise);
    if (!first) largest->second = std::max(largest->second, rise);
  }
}

/// Every choice of so many of the members, in lexicographic order.
void try_all(AnchoredGroup& group, std::size_t num_anchors) {
  std::vector<std::size_t> anchors(num_anchors);
  for (std::size_t a = 0; a < num_anchors; ++a) anchors[a] = a;
  const std::size_t n = group.members.size();
  while (true) {
    try_choice(group, anchors);
    std::size_t last = num_anchors;
    while (last > 0 && anchors[last - 1] == n - num_anchors + last - 1) --last;
    if (last == 0) return;
    ++anchors[last - 1];
    for (std::size_t a = last; a < num_anchors; ++a) anchors[a] = anchors[a - 1] + 1;
  }
}

std::vector<AnchoredGroup> groups_of(const PreparedTable& table,
                                     const std::vector<RowPrediction>& predictions,
                                     std::size_t num_anchors) {
  std::map<std::tuple<std::string, std::string, std::string, std::string>, std::vector<Member>>
      found;
  for (std::size_t i = 0; i < predictions.size(); ++i) {
    const TrainingRun* run = table.run(i);
    if (run == nullptr || !predictions[i].error) continue;
    const AnchoredTo of = anchored_to(*run);
    Member member{.row = i,
                  .suite = table.rows()[i].suite,
                  .errors = errors_of(*predictions[i].prediction, *run),
                  .log_error = -std::log1p(*predictions[i].error)};
    member.own = own_variance(member.errors);
    found[{of.cluster, of.software, of.model, of.precision}].push_back(std::move(member));
  }
  std::vector<AnchoredGroup> groups;
  for (auto& [of, members] : found)
    if (members.size() > num_anchors) groups.push_back(group_of_members(std::move(members)));
  return groups;
}

double mean_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

double median_of(std::vector<double> values) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  return values[(values.size() - 1) / 2];
}

/// Values of rows, averaged within a family first.
class ByFamily {
 public:
  void add(const std::string& family, double value) { values_[family].push_back(value); }
  double mean() const {
    std::vector<double> means;
    for (const auto& [family, values] : values_) means.push_back(mean_of(values));
    return mean_of(means);
  }
  int families() const { return static_cast<int>(values_.size()); }

 private:
  std::map<std::string, std::vector<double>> values_;
};

/// Collects AnchoredErrors row by row.
class Collector {
 public:
  void add(const Member& member, const std::string& family, const Tried& tried) {
    if (tried.choices == 0) return;
    const double variance = member.errors.variance();
    before_.add(family, std::abs(relative(member.log_error)));
    bias_before_.add(family, relative(member.log_error));
    after_.add(family, tried.size / tried.choices);
    bias_after_.add(family, tried.error / tried.choices);
    covered_before_.push_back(inside(member.log_error, variance) ? 1 : 0);
    covered_after_.push_back(tried.inside / tried.choices);
    widths_before_.push_back(half_width_80(std::sqrt(variance)));
    widths_after_.push_back(half_width_80(tried.sigma / tried.choices));
  }
  AnchoredErrors take() const {
    return {.rows = static_cast<int>(covered_before_.size()),
            .families = before_.families(),
            .before = before_.mean(),
            .after = after_.mean(),
            .bias_before = bias_before_.mean(),
            .bias_after = bias_after_.mean(),
            .covered_before = mean_of(covered_before_),
            .covered_after = mean_of(covered_after_),
            .half_width_before = median_of(widths_before_),
            .half_width_after = median_of(widths_after_)};
  }

 private:
  ByFamily before_, after_, bias_before_, bias_after_;
  std::vector<double> covered_before_, covered_after_, widths_before_, widths_after_;
};

AnchoredSuite suite_of(const std::string& name, const std::vector<AnchoredGroup>& groups,
                       const std::vector<PublishedRow>& rows) {
  AnchoredSuite suite{.suite = name};
  Collector all, equal_layers, other_layers;
  std::optional<double> rise;
  for (const AnchoredGroup& group : groups) {
    const auto own_rise = group.largest_rise.find(name);
    if (own_rise == group.largest_rise.end()) continue;
    ++suite.groups;
    rise = std::max(rise.value_or(own_rise->second), own_rise->second);
    for (std::size_t i = 0; i < group.members.size(); ++i) {
      const Member& member = group.members[i];
      if (member.suite != name) continue;
      const std::string& family = rows[member.row].family;
      all.add(member, family, group.equal_layers[i] + group.other_layers[i]);
      equal_layers.add(member, family, group.equal_layers[i]);
      other_layers.add(member, family, group.other_layers[i]);
    }
  }
  suite.largest_rise = rise.value_or(0);
  suite.all = all.take();
  suite.equal_layers = equal_layers.take();
  suite.other_layers = other_layers.take();
  return suite;
}

}  // namespace

std::vector<AnchoredSuite> validate_anchors(const PreparedTable& table,
                                            const std::vector<RowPrediction>& predictions,
                                            int num_anchors, const ForEach& for_each) {
  require_invariant(num_anchors >= 1, "anchors are at least one");
  std::vector<AnchoredGroup> groups =
      groups_of(table, predictions, static_cast<std::size_t>(num_anchors));
  for_each(groups.size(),
           [&](std::size_t i) { try_all(groups[i], static_cast<std::size_t>(num_anchors)); });
  std::set<std::string> names;
  for (const AnchoredGroup& group : groups)
    for (const auto& [suite, rise] : group.largest_rise) names.insert(suite);
  std::vector<AnchoredSuite> suites;
  for (const std::string& name : names) suites.push_back(suite_of(name, groups, table.rows()));
  return suites;
}

}  // namespace meshplan::sim
