#include "sim/fit/validation.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <map>
#include <set>

#include "core/error.hpp"
#include "core/units.hpp"
#include "sim/anchors/adjustment.hpp"
#include "sim/stacks/run_terms.hpp"

namespace meshplan::sim {
namespace {

double kind_bytes(const RunMemory& memory, MemoryKind kind) {
  switch (kind) {
    case MemoryKind::Allocated:
      return memory.allocated();
    case MemoryKind::Reserved:
      return memory.reserved;
    case MemoryKind::Visible:
      return memory.visible;
  }
  throw InvariantError("unknown kind of memory");
}

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

/// Nearest-rank quantile of sorted values.
double quantile(const std::vector<double>& sorted, double q) {
  if (sorted.empty()) return 0;
  const auto rank = static_cast<std::size_t>(std::ceil(q * static_cast<double>(sorted.size())));
  return sorted[std::clamp<std::size_t>(rank, 1, sorted.size()) - 1];
}

ErrorSummary summary_of(const std::map<std::string, std::vector<double>>& by_family) {
  ErrorSummary summary;
  std::vector<double> absolute, signed_means;
  for (const auto& [family, errors] : by_family) {
    summary.rows += static_cast<int>(errors.size());
    std::vector<double> sizes;
    for (const double error : errors) {
      sizes.push_back(std::abs(error));
      summary.maximum = std::max(summary.maximum, std::abs(error));
    }
    absolute.push_back(mean(sizes));
    signed_means.push_back(mean(errors));
  }
  summary.families = static_cast<int>(by_family.size());
  summary.mean_absolute = mean(absolute);
  summary.bias = mean(signed_means);
  std::ranges::sort(absolute);
  summary.median = quantile(absolute, 0.5);
  summary.p90 = quantile(absolute, 0.9);
  return summary;
}

/// The same work on the same machines with the same software: only the configuration differs.
std::string work_key(const TrainingRun& run) {
  const auto& m = run.model;
  return fmt::format("{} {} {} {} {} {} {} {} {} {} {} {} {}", run.cluster, run.profile,
                     run.parallel.world_size(), run.global_batch_size, run.seq_len,
                     static_cast<int>(run.precision), m.num_layers, m.hidden_size, m.ffn_size,
                     m.vocab_size, m.num_heads, m.moe ? m.moe->num_experts : 0,
                     static_cast<int>(run.attention));
}

struct Timed {
  double measured = 0;
  double predicted = 0;
};

ChoiceSummary choices_of(const std::map<std::string, std::vector<Timed>>& groups) {
  ChoiceSummary summary;
  double ordered = 0, pairs = 0, regrets = 0;
  for (const auto& [key, runs] : groups) {
    if (runs.size() < 2) continue;
    ++summary.groups;
    const auto best = std::ranges::min_element(runs, {}, &Timed::measured);
    const auto chosen = std::ranges::min_element(runs, {}, &Timed::predicted);
    const double regret = chosen->measured / best->measured - 1;
    regrets += regret;
    summary.largest_regret = std::max(summary.largest_regret, regret);
    for (std::size_t i = 0; i < runs.size(); ++i)
      for (std::size_t j = 0; j < i; ++j) {
        ++pairs;
        const bool measured_less = runs[i].measured < runs[j].measured;
        ordered += measured_less == (runs[i].predicted < runs[j].predicted) ? 1 : 0;
      }
  }
  summary.mean_regret = summary.groups > 0 ? regrets / summary.groups : 0;
  summary.ordered_pairs = pairs > 0 ? ordered / pairs : 0;
  return summary;
}

}  // namespace

void one_by_one(std::size_t count, const std::function<void(std::size_t)>& body) {
  for (std::size_t i = 0; i < count; ++i) body(i);
}

PreparedTable::PreparedTable(std::vector<PublishedRow> rows, const ForEach& for_each)
    : rows_(std::move(rows)), runs_(rows_.size()), notes_(rows_.size()) {
  for_each(rows_.size(), [&](std::size_t i) {
    if (!rows_[i].error.empty()) {
      notes_[i] = rows_[i].error;
      return;
    }
    notes_[i] = rows_[i].note;
    try {
      runs_[i].emplace(rows_[i].run);
    } catch (const ConfigError& error) {
      notes_[i] = error.what();
    }
  });
}

namespace {

RowPrediction beside_measured(const PublishedRow& row, const RunPrediction& prediction,
                              const std::string& note) {
  RowPrediction own{.note = note};
  if (row.step_time_s) own.error = prediction.step_time_s / *row.step_time_s - 1;
  own.predicted_mem_gib = kind_bytes(prediction.memory, row.memory_kind) / kGib;
  if (row.peak_mem_gib) own.memory_error = *own.predicted_mem_gib / *row.peak_mem_gib - 1;
  own.prediction = prediction;
  return own;
}

}  // namespace

RowPrediction PreparedTable::predict_row(std::size_t row, const Constants& constants) const {
  if (!runs_[row]) return {.note = notes_[row]};
  return beside_measured(rows_[row], runs_[row]->predict(constants), notes_[row]);
}

RowPrediction PreparedTable::predict_row(std::size_t row,
                                         const std::vector<ConstantRecord>& fitted) const {
  if (!runs_[row]) return {.note = notes_[row]};
  return beside_measured(rows_[row], runs_[row]->predict(constants_of(fitted), sigmas_of(fitted)),
                         notes_[row]);
}

std::vector<PredictionTerm> PreparedTable::terms(std::size_t row,
                                                 const RowPrediction& prediction) const {
  if (!runs_[row] || !prediction.prediction) return {};
  return terms_of(*prediction.prediction, runs_[row]->run());
}

TimedShares PreparedTable::timed_shares(std::size_t row, const Constants& constants) const {
  return runs_[row] ? runs_[row]->timed_shares(constants) : TimedShares{};
}

int PreparedTable::adjust(const Adjustment& adjustment,
                          std::vector<RowPrediction>& predictions) const {
  int adjusted = 0;
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    if (!runs_[i] || !predictions[i].prediction) continue;
    const TrainingRun& run = runs_[i]->run();
    if (anchored_to(run) != adjustment.of()) continue;
    predictions[i] =
        beside_measured(rows_[i], adjustment.adjusted(*predictions[i].prediction, run), notes_[i]);
    ++adjusted;
  }
  return adjusted;
}

const TrainingRun* PreparedTable::run(std::size_t row) const {
  return runs_[row] ? &runs_[row]->run() : nullptr;
}

std::vector<RowPrediction> PreparedTable::predict(const std::vector<ConstantRecord>& fitted,
                                                  const ForEach& for_each) const {
  std::vector<RowPrediction> predictions(rows_.size());
  for_each(rows_.size(), [&](std::size_t i) { predictions[i] = predict_row(i, fitted); });
  return predictions;
}

std::vector<RowPrediction> PreparedTable::predict(const Constants& constants,
                                                  const ForEach& for_each) const {
  std::vector<RowPrediction> predictions(rows_.size());
  for_each(rows_.size(), [&](std::size_t i) { predictions[i] = predict_row(i, constants); });
  return predictions;
}

IntervalSummary intervals_of(const std::vector<PublishedRow>& rows,
                             const std::vector<RowPrediction>& predictions) {
  IntervalSummary summary;
  std::vector<double> widths;
  double inside = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (!predictions[i].error) continue;
    const double half = predictions[i].prediction->half_width_80();
    inside += std::abs(std::log1p(*predictions[i].error)) <= std::log1p(half) ? 1 : 0;
    widths.push_back(half);
  }
  std::ranges::sort(widths);
  summary.rows = static_cast<int>(widths.size());
  summary.covered = widths.empty() ? 0 : inside / static_cast<double>(widths.size());
  summary.half_width = quantile(widths, 0.5);
  return summary;
}

std::optional<double> PreparedTable::log_error(std::size_t row, const Constants& constants) const {
  if (!runs_[row] || !rows_[row].step_time_s) return std::nullopt;
  return std::log(runs_[row]->predict(constants).step_time_s / *rows_[row].step_time_s);
}

std::vector<SuiteSummary> summarize(const std::vector<PublishedRow>& rows,
                                    const std::vector<RowPrediction>& predictions) {
  struct Collected {
    std::map<std::string, std::vector<double>> times, memories;
    std::map<std::string, std::vector<Timed>> works;
    std::vector<PublishedRow> rows;
    std::vector<RowPrediction> predictions;
    int unpredicted = 0, misfits = 0;
  };
  std::map<std::string, Collected> suites;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    Collected& suite = suites[rows[i].suite];
    const RowPrediction& row = predictions[i];
    if (!row.prediction) {
      ++suite.unpredicted;
      continue;
    }
    if (!row.prediction->memory.fits()) ++suite.misfits;
    suite.rows.push_back(rows[i]);
    suite.predictions.push_back(row);
    if (row.error) {
      suite.times[rows[i].family].push_back(*row.error);
      suite.works[work_key(rows[i].run)].push_back(
          {*rows[i].step_time_s, row.prediction->step_time_s});
    }
    if (row.memory_error) suite.memories[rows[i].family].push_back(*row.memory_error);
  }
  std::vector<SuiteSummary> summaries;
  for (const auto& [name, suite] : suites)
    summaries.push_back({.suite = name,
                         .step_time = summary_of(suite.times),
                         .memory = summary_of(suite.memories),
                         .choice = choices_of(suite.works),
                         .intervals = intervals_of(suite.rows, suite.predictions),
                         .unpredicted = suite.unpredicted,
                         .misfits = suite.misfits});
  return summaries;
}

std::string_view name_of(LeaveOut group) {
  switch (group) {
    case LeaveOut::Model:
      return "model";
    case LeaveOut::Cluster:
      return "cluster";
    case LeaveOut::Software:
      return "software";
  }
  throw InvariantError("unknown group");
}

std::string group_of(const PublishedRow& row, LeaveOut by) {
  const TrainingRun& run = row.run;
  if (by == LeaveOut::Cluster) return run.cluster;
  if (by == LeaveOut::Software) return parse_software(run.profile).name;
  return layer_shape_of(run.model);
}

}  // namespace meshplan::sim
