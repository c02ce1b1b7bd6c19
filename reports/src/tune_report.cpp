#include "reports/tune_report.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <limits>
#include <numeric>
#include <tuple>

#include "core/error.hpp"
#include "core/json_fields.hpp"
#include "core/statistics.hpp"
#include "planner/search/reasons.hpp"
#include "planner/search/space.hpp"
#include "program/plan_file/plan_file.hpp"
#include "reports/table.hpp"

namespace meshplan::reports {
namespace {

using planner::format_seconds;
using planner::TuneCandidate;
using planner::TuneStop;

constexpr std::size_t kMostTerms = 6;

/// What can be said of the whole, worked out once.
struct TuneFindings {
  std::vector<std::size_t> order;  // of the table
  std::optional<planner::TuneChoice> choice;
  planner::TuneCalibration calibration;
  double sigma = 0;
  std::vector<std::size_t> open;    // not measured, and might be faster
  std::vector<std::size_t> hidden;  // not measured, and might be faster by less than the noise
};

TuneFindings findings_of(const TuneReport& report) {
  const std::vector<TuneCandidate>& candidates = report.candidates;
  TuneFindings found{.order = std::vector<std::size_t>(candidates.size()),
                     .choice = planner::choose(candidates, report.policy),
                     .calibration = planner::calibration_of(candidates),
                     .sigma = planner::round_sigma(candidates),
                     .open = planner::might_be_faster(candidates, report.policy),
                     .hidden = planner::hidden_by_noise(candidates, report.policy)};
  std::iota(found.order.begin(), found.order.end(), std::size_t{0});
  std::ranges::stable_sort(found.order, {}, [&](std::size_t i) {
    const TuneCandidate& candidate = candidates[i];
    const int group = candidate.has_run() ? 0 : candidate.failure ? 2 : 1;
    return std::tuple(
        group, candidate.has_run() ? planner::median_s(candidate) : candidate.prediction.after_s);
  });
  return found;
}

/// "1 round", "3 rounds"
std::string counted(std::ptrdiff_t number, std::string_view what) {
  return fmt::format("{} {}{}", number, what, number == 1 ? "" : "s");
}

/// Its line in the table, from 1.
std::size_t place_of(const TuneFindings& found, std::size_t candidate) {
  return static_cast<std::size_t>(std::ranges::find(found.order, candidate) - found.order.begin()) +
         1;
}

std::string_view state_of(const TuneCandidate& candidate) {
  return candidate.failure ? "failed" : candidate.has_run() ? "measured" : "not measured";
}

std::string remarks(const TuneReport& report, const TuneFindings& found, std::size_t i) {
  const TuneCandidate& candidate = report.candidates[i];
  std::string text(state_of(candidate));
  const auto rounds = std::ssize(candidate.rounds);
  if (candidate.has_run() && rounds < report.policy.least_rounds)
    text += fmt::format(", {} of {} rounds", rounds, report.policy.least_rounds);
  if (report.cut_short == i) text += ", its last run ended by the limit of time";
  if (found.choice && found.choice->index == i) text += ", chosen";
  if (i == 0) text += "; the search's choice";
  if (candidate.rebalanced_from)
    text += fmt::format("; stages of #{} rebalanced",
                        place_of(found, static_cast<std::size_t>(*candidate.rebalanced_from)));
  return text;
}

Table table_of(const TuneReport& report, const TuneFindings& found) {
  Table table{.columns = {{"#"},
                          {"plan", Align::Left},
                          {"predicted"},
                          {"calibrated"},
                          {"measured"},
                          {"p10 to p90"},
                          {"state", Align::Left}}};
  for (std::size_t line = 0; line < found.order.size(); ++line) {
    const std::size_t i = found.order[line];
    const TuneCandidate& candidate = report.candidates[i];
    std::string measured = "-", spread = "-";
    if (candidate.has_run()) {
      const Spread seconds = spread_of(planner::step_times_s(candidate));
      measured = format_seconds(seconds.median);
      spread = fmt::format("{} to {}", format_seconds(seconds.p10), format_seconds(seconds.p90));
    }
    table.rows.push_back({std::to_string(line + 1), reports::describe(candidate),
                          format_seconds(candidate.prediction.before_s),
                          format_seconds(found.calibration.factor * candidate.prediction.after_s),
                          measured, spread, remarks(report, found, i)});
  }
  return table;
}

/// What the time was not enough for, where nothing was measured in it.
std::string not_tried(const TuneReport& report) {
  const auto waiting = std::ranges::count_if(report.candidates, [](const TuneCandidate& candidate) {
    return candidate.rounds.empty() && !candidate.failure;
  });
  return waiting == 0 ? std::string() : fmt::format("; {} not measured", counted(waiting, "plan"));
}

std::string reason_of(const TuneReport& report, const TuneFindings& found) {
  const auto& candidates = report.candidates;
  const std::string open =
      found.open.empty() || !found.choice
          ? std::string()
          : fmt::format("; {} of the plans not measured may be faster, {} the most likely",
                        found.open.size(), reports::describe(candidates[found.open.front()]));
  switch (report.stop) {
    case TuneStop::Settled: {
      double least_s = std::numeric_limits<double>::infinity();
      for (const TuneCandidate& candidate : candidates)
        if (!candidate.has_run() && !candidate.failure)
          least_s = std::min(least_s, planner::optimistic_s(candidate, candidates));
      return fmt::format(
          "another measurement cannot change the choice: what is not measured is expected to take "
          "at least {}{}",
          format_seconds(least_s),
          found.hidden.empty()
              ? std::string()
              : fmt::format("; {} of them may be faster by less than the noise, which more "
                            "--rounds or a quieter machine would tell",
                            found.hidden.size()));
    }
    case TuneStop::AllMeasured:
      return "every plan that the search ranks was measured";
    case TuneStop::TopReached:
      return fmt::format("--top {} is reached{}", report.policy.top, open);
    case TuneStop::TimeUsed:
      return fmt::format("--most-seconds {:g} are used{}", report.policy.most_seconds,
                         found.choice ? open : not_tried(report));
    case TuneStop::AllFailed:
      return "no plan could be run";
    case TuneStop::Interrupted:
      return fmt::format("a signal interrupted it{}", open);
  }
  throw InvariantError("an unknown reason to stop");
}

double slower_than(const TuneCandidate& a, const TuneCandidate& b) {
  return planner::median_s(a) / planner::median_s(b) - 1;
}

std::string choice_lines(const TuneReport& report, const TuneFindings& found) {
  const auto& candidates = report.candidates;
  if (!found.choice) return "chosen   nothing: no plan was measured\n";
  const TuneCandidate& chosen = candidates[found.choice->index];
  std::string text = fmt::format("chosen   #{} {}: {}\n", place_of(found, found.choice->index),
                                 reports::describe(chosen), measured_text(chosen));
  std::vector<std::string> ties;
  for (const std::size_t i : found.choice->ties)
    if (i != found.choice->index)
      ties.push_back(fmt::format("#{} ({})", place_of(found, i),
                                 signed_percent(slower_than(candidates[i], chosen))));
  if (!ties.empty())
    text += fmt::format(
        "         a tie with {}: the noise does not tell them apart, and the choice is the "
        "simplest to run\n",
        fmt::join(ties, ", "));
  if (candidates.front().failure)
    text += fmt::format("untuned  the search alone would have chosen {}, which failed\n",
                        reports::describe(candidates.front()));
  else if (!candidates.front().has_run())
    text += fmt::format("untuned  the search alone would have chosen {}, which was not measured\n",
                        reports::describe(candidates.front()));
  else if (found.choice->index == 0)
    text += "untuned  the search alone would have chosen the same\n";
  else
    text += fmt::format("untuned  the search alone would have chosen {}: {}, {} of the choice's\n",
                        reports::describe(candidates.front()),
                        format_seconds(planner::median_s(candidates.front())),
                        signed_percent(slower_than(candidates.front(), chosen)));
  return text;
}

std::string noise_line(const TuneReport& report, const TuneFindings& found) {
  TuneCandidate full;
  full.rounds.resize(static_cast<std::size_t>(report.policy.least_rounds));
  return fmt::format(
      "noise    rounds of one plan differ by {} (standard deviation); plans of {} are told "
      "apart from {} on\n",
      percent(found.sigma), counted(report.policy.least_rounds, "round"),
      percent(planner::told_apart(full, full, found.sigma)));
}

std::string learned_lines(const TuneReport& report) {
  const auto errors = planner::prediction_errors(report.candidates);
  if (!errors) return "";
  std::string text = fmt::format(
      "learned  step times of {} were predicted {} off, calibrated {} ({} operators and {} "
      "collectives corrected)\n",
      counted(errors->plans, "measured plan"), percent(errors->before), percent(errors->after),
      report.operators, report.collectives);
  if (report.held_out_before)
    text += fmt::format("         plans left out of the correction: {} off before, {} after{}\n",
                        percent(*report.held_out_before), percent(*report.held_out_after),
                        report.correction_used ? "" : "; so it is not used");
  if (report.terms.empty()) return text;
  Table table{
      .columns = {
          {"where a step's time goes", Align::Left}, {"predicted"}, {"measured"}, {"off by"}}};
  for (std::size_t i = 0; i < std::min(kMostTerms, report.terms.size()); ++i) {
    const planner::TermError& term = report.terms[i];
    table.rows.push_back({std::string(term.name), format_seconds(term.predicted_s),
                          format_seconds(term.measured_s), planner::signed_seconds(term.off_s())});
  }
  return text + "\n" + to_text(table, 2);
}

std::string failures(const TuneReport& report, const TuneFindings& found) {
  std::string text;
  for (const std::size_t i : found.order)
    if (const auto& failure = report.candidates[i].failure)
      text += fmt::format("failed   #{} {}: {}\n", place_of(found, i),
                          reports::describe(report.candidates[i]), *failure);
  return text;
}

Json row_json(const TuneReport& report, const TuneFindings& found, std::size_t i) {
  const TuneCandidate& candidate = report.candidates[i];
  Json row{{"plan", reports::describe(candidate)},
           {"state", state_of(candidate)},
           {"chosen", found.choice && found.choice->index == i},
           {"tie", found.choice && std::ranges::count(found.choice->ties, i) > 0},
           {"choice_of_search", i == 0},
           {"rebalanced_from",
            candidate.rebalanced_from
                ? Json(reports::describe(
                      report.candidates[static_cast<std::size_t>(*candidate.rebalanced_from)]))
                : Json(nullptr)},
           {"predicted_step_time_s", candidate.prediction.before_s},
           {"calibrated_step_time_s", found.calibration.factor * candidate.prediction.after_s},
           {"rounds", candidate.rounds.size()},
           {"cut_short", report.cut_short == i},
           {"failure", candidate.failure ? Json(*candidate.failure) : Json(nullptr)}};
  if (candidate.has_run()) {
    const std::vector<double> seconds = planner::step_times_s(candidate);
    const Spread spread = spread_of(seconds);
    row["measured_step_time_s"] = spread.median;
    row["p10_s"] = spread.p10;
    row["p90_s"] = spread.p90;
    row["steps"] = seconds.size();
  }
  row["settings"] = Json::parse(program::to_json(candidate.plan));
  for (const char* repeated : {"model", "workload", "cluster", "cluster_name", "cluster_hash",
                               "model_hash", "prediction", "schema_version"})
    row["settings"].erase(repeated);
  return row;
}

}  // namespace

std::string describe(const TuneCandidate& candidate) {
  std::string text = planner::describe(planner::candidate_of(candidate.plan));
  if (!candidate.plan.layers_per_stage.empty())
    text += fmt::format(" ({})", fmt::join(candidate.plan.layers_per_stage, ","));
  return text;
}

std::string measured_text(const TuneCandidate& candidate) {
  require_invariant(candidate.has_run(), "only what has run is called measured");
  const std::vector<double> seconds = planner::step_times_s(candidate);
  const Spread spread = spread_of(seconds);
  return fmt::format("{}, median of {} in {}, p10 to p90 {} to {}", format_seconds(spread.median),
                     counted(std::ssize(seconds), "step"),
                     counted(std::ssize(candidate.rounds), "round"), format_seconds(spread.p10),
                     format_seconds(spread.p90));
}

std::string to_text(const TuneReport& report) {
  const TuneFindings found = findings_of(report);
  std::string text;
  if (report.stop == TuneStop::Interrupted)
    text += "incomplete: the same command goes on from here\n\n";
  text += to_text(table_of(report, found)) + "\n" + choice_lines(report, found);
  text += fmt::format("stopped  {}\n", reason_of(report, found));
  if (found.choice) text += noise_line(report, found);
  text += failures(report, found) + learned_lines(report);
  return text + fmt::format("\n{:.0f} s of running plans{}\n", report.seconds_used,
                            report.runs_taken_over == 0
                                ? std::string()
                                : fmt::format("; {} taken over from before",
                                              counted(report.runs_taken_over, "run")));
}

std::string to_json(const TuneReport& report) {
  const TuneFindings found = findings_of(report);
  const auto& candidates = report.candidates;
  Json root{{"schema_version", 1},
            {"complete", report.stop != TuneStop::Interrupted},
            {"stopped", name_of(report.stop)},
            {"stopped_because", reason_of(report, found)},
            {"seconds_used", report.seconds_used},
            {"runs_taken_over", report.runs_taken_over},
            {"plans", Json::array()}};
  for (const std::size_t i : found.order) root["plans"].push_back(row_json(report, found, i));
  root["chosen"] =
      found.choice ? Json(reports::describe(candidates[found.choice->index])) : Json(nullptr);
  root["might_be_faster"] = Json::array();
  if (found.choice)
    for (const std::size_t i : found.open)
      root["might_be_faster"].push_back(reports::describe(candidates[i]));
  root["hidden_by_noise"] = Json::array();
  for (const std::size_t i : found.hidden)
    root["hidden_by_noise"].push_back(reports::describe(candidates[i]));
  const bool both = found.choice && candidates.front().has_run();
  root["untuned_slower_by"] =
      both ? Json(slower_than(candidates.front(), candidates[found.choice->index])) : Json(nullptr);
  root["round_sigma"] = found.sigma;
  Json learned{{"operators_corrected", report.operators},
               {"collectives_corrected", report.collectives},
               {"common_factor", found.calibration.factor}};
  if (const auto errors = planner::prediction_errors(candidates)) {
    learned["error_before"] = errors->before;
    learned["error_after"] = errors->after;
  }
  if (report.held_out_before) {
    learned["held_out_error_before"] = *report.held_out_before;
    learned["held_out_error_after"] = *report.held_out_after;
    learned["correction_used"] = report.correction_used;
  }
  learned["terms"] = Json::array();
  for (const planner::TermError& term : report.terms)
    learned["terms"].push_back(
        {{"name", term.name}, {"predicted_s", term.predicted_s}, {"measured_s", term.measured_s}});
  root["learned"] = std::move(learned);
  return root.dump(2) + "\n";
}

}  // namespace meshplan::reports
