#include "tune/tuner.hpp"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <utility>

#include "core/error.hpp"
#include "core/paths.hpp"
#include "output/output.hpp"
#include "output/progress.hpp"
#include "planner/explain/priced_plan.hpp"
#include "planner/tune/rebalance.hpp"
#include "process/exit_codes.hpp"
#include "process/files.hpp"
#include "process/gzip.hpp"
#include "process/interrupt.hpp"
#include "process/kept_output.hpp"
#include "process/threads.hpp"
#include "program/checks/check.hpp"
#include "program/plan_file/plan_file.hpp"
#include "program/trace/trace_blocks.hpp"
#include "ranks/timed_run.hpp"
#include "runtime/train/preflight.hpp"
#include "sim/engine/breakdown.hpp"

namespace meshplan::cli {
namespace {

using planner::TuneCandidate;
using planner::TuneStop;

constexpr int kTracedSteps = 2;   // of a plan's first run
constexpr int kFewestRanked = 8;  // plans that a search is asked for

/// What the ranks are to do, whatever cluster it was found for.
program::Plan without_cluster(program::Plan plan) {
  plan.cluster_name.clear();
  plan.cluster_hash.clear();
  plan.cluster_json.clear();
  plan.prediction.reset();
  return plan;
}

/// Far enough away for any limit to be a time.
std::chrono::steady_clock::duration whole_ticks(double seconds) {
  constexpr double kYear = 365 * 86400.0;
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(
      std::chrono::duration<double>(std::min(seconds, kYear)));
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

Tuner::Tuner(TuneWork work, TuneFolder& folder)
    : work_(std::move(work)),
      folder_(folder),
      candidates_(folder.file().candidates),
      refined_(work_.search.cluster) {
  report_.policy = work_.policy;
  // Where nothing ran, the machine was in the way, not the plans.
  if (std::ranges::none_of(candidates_, &TuneCandidate::has_run))
    for (TuneCandidate& candidate : candidates_) candidate.failure.reset();
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    runs_done_ += candidates_[i].rounds.size();
    if (candidates_[i].has_run() && is_there(folder_.trace_file(i)))
      traces_[i] =
          program::parse_trace(unpacked_blocks(folder_.trace_file(i)), folder_.trace_file(i));
  }
  report_.runs_taken_over = static_cast<int>(runs_done_);
}

std::optional<planner::InfeasibleResult> Tuner::run() {
  const InterruptRequest interrupt({SIGINT, SIGTERM, SIGHUP});
  planner::SearchOutcome found = search(work_.search.cluster, true);
  if (auto* infeasible = std::get_if<planner::InfeasibleResult>(&found))
    return std::move(*infeasible);
  runtime::check_data(candidates_.front().plan, work_.data, false);
  if (!traces_.empty()) learn();
  predict();
  Progress progress("runs of plans", work_.terminal);
  while (true) {
    const planner::TuneDecision decision =
        planner::decide(candidates_, work_.policy, folder_.file().seconds_used);
    if (decision.measure.empty()) {
      conclude(decision.stop);
      return std::nullopt;
    }
    const std::size_t traced = traces_.size();
    const std::optional<TuneStop> stop = run_turn(decision.measure, interrupt, progress);
    if (stop == TuneStop::Interrupted) {
      conclude(*stop);
      return std::nullopt;
    }
    if (traces_.size() == traced) continue;
    if (stop)
      refine();  // what is found now would not be run any more
    else
      learn();
    predict();
  }
}

std::optional<TuneStop> Tuner::run_turn(const std::vector<std::size_t>& indexes,
                                        const InterruptRequest& interrupt, Progress& progress) {
  const auto most = static_cast<std::size_t>(work_.policy.top) *
                    static_cast<std::size_t>(work_.policy.least_rounds);
  const int turn = last_turn() + 1;
  for (const std::size_t index : indexes) {
    if (interrupt.made()) return TuneStop::Interrupted;
    if (seconds_left() <= 0) return TuneStop::TimeUsed;
    const RunEnd end = measure(index, turn);
    if (end == RunEnd::Interrupted) return TuneStop::Interrupted;
    if (end == RunEnd::OutOfTime) return TuneStop::TimeUsed;
    const std::size_t done = ++runs_done_;
    progress.update(done, std::max(most, done + 1));
  }
  return std::nullopt;
}

double Tuner::seconds_left() const {
  return work_.policy.most_seconds - folder_.file().seconds_used;
}

void Tuner::learn() {
  refine();
  search(refined_, false);
  take_up_rebalanced();
}

planner::SearchOutcome Tuner::search(const sim::Cluster& cluster, bool first) {
  const ElapsedTime elapsed("searching plans", work_.terminal);
  planner::SearchRequest request = work_.search;
  request.cluster = cluster;
  // Later there are to be as many again beside those that were measured. The first search does not
  // depend on these, so that a tune that goes on finds what it found.
  request.top = std::max(work_.policy.top, kFewestRanked);
  if (!first) request.top += static_cast<int>(traces_.size());
  request.alternatives = first;
  const planner::ParallelFor parallel_for = on_threads(work_.threads);
  planner::SearchOutcome outcome =
      planner::search(request, planner::cost_model(request), parallel_for);
  if (const auto* result = std::get_if<planner::SearchResult>(&outcome))
    for (const planner::RankedPlan& ranked : result->ranked) take_up(ranked.plan, std::nullopt);
  if (auto* infeasible = std::get_if<planner::InfeasibleResult>(&outcome); infeasible && first)
    infeasible->suggestions = planner::suggest(request, parallel_for);
  return outcome;
}

void Tuner::take_up(const program::Plan& plan, std::optional<int> rebalanced_from) {
  const bool known = std::ranges::any_of(candidates_, [&](const TuneCandidate& candidate) {
    return planner::runs_the_same(candidate.plan, plan);
  });
  if (!known)
    candidates_.push_back({.plan = without_cluster(plan), .rebalanced_from = rebalanced_from});
}

void Tuner::take_up_rebalanced() {
  if (!work_.search.constraints.layers_per_stage.empty()) return;
  const auto choice = planner::choose(candidates_, work_.policy);
  if (!choice) return;
  const double near_s = planner::kFarSlower * planner::median_s(candidates_[choice->fastest]);
  for (const auto& [index, trace] : traces_) {
    if (!candidates_[index].has_run() || planner::median_s(candidates_[index]) > near_s) continue;
    const auto moved = planner::rebalanced(candidates_[index].plan, planner::stage_times(trace));
    if (!moved || !program::check(*moved).empty()) continue;
    const planner::PricedPlan priced = planner::price(on(*moved, refined_), refined_);
    if (priced.step.fits(work_.search.memory_reserve)) take_up(*moved, static_cast<int>(index));
  }
}

/// On both clusters. A plan that turns out too long to be played cannot be run, either.
void Tuner::predict() {
  const ElapsedTime elapsed("predicting plans", work_.terminal);
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    TuneCandidate& candidate = candidates_[i];
    try {
      const auto priced = [&](const sim::Cluster& cluster) {
        return planner::price(on(candidate.plan, cluster), cluster);
      };
      if (!before_.contains(i)) before_[i] = priced(work_.search.cluster).step;
      const planner::PricedPlan after = priced(refined_);
      candidate.prediction = {.before_s = before_[i].step_time_s,
                              .after_s = after.step.step_time_s,
                              .terms = after.terms};
    } catch (const ConfigError& error) {
      candidate.failure = error.what();
    }
  }
}

/// From the cluster as it was, by all traces: what was learned does not depend on their order. On a
/// noisy machine traces may correct it for the worse, which those that are left out tell.
void Tuner::refine() {
  std::vector<program::Trace> traces;
  std::vector<sim::Breakdown> predicted, measured;
  for (const auto& [index, trace] : traces_) {
    traces.push_back(trace);
    measured.push_back(sim::mean_of(sim::breakdown(trace)));
    if (!before_.contains(index))
      before_[index] =
          planner::price(on(candidates_[index].plan, work_.search.cluster), work_.search.cluster)
              .step;
    predicted.push_back(before_[index].seconds);
  }
  report_.terms = planner::terms_off(predicted, measured);
  try {
    sim::Refinement refinement = sim::refine(work_.search.cluster, traces);
    report_.operators = refinement.operators;
    report_.collectives = refinement.collectives;
    report_.held_out_before = refinement.held_out_before;
    report_.held_out_after = refinement.held_out_after;
    report_.correction_used =
        !refinement.held_out_before || *refinement.held_out_after <= *refinement.held_out_before;
    refined_ = report_.correction_used ? std::move(refinement.cluster) : work_.search.cluster;
    folder_.keep_refined(refined_);
  } catch (const ConfigError& error) {
    output(stderr, "meshplan: warning: {}; the cluster is left as it was\n", error.what());
  }
}

Tuner::RunEnd Tuner::measure(std::size_t index, int turn) {
  TuneCandidate& candidate = candidates_[index];
  const program::Plan plan = on(candidate.plan, work_.search.cluster);
  write_file(folder_.plan_file(index), program::to_json(plan));
  const bool traces = !traces_.contains(index);
  const std::string trace_file =
      traces ? folder_.trace_file(index) : folder_.scratch_file("trace.json");
  const auto start = std::chrono::steady_clock::now();
  std::string cause;
  try {
    if (work_.search.cluster.device.kind == sim::DeviceKind::Cpu && !work_.hosts.hosts &&
        !work_.hosts.hostfile)
      runtime::check_memory(plan, plan.parallel.world_size(), false);
    const KeptOutput said(folder_.scratch_file("output.txt"));
    const int code = run_timed({.plan_file = folder_.plan_file(index),
                                .data = work_.data,
                                .steps = work_.steps,
                                .traced_steps = traces ? kTracedSteps : 0,
                                .trace_file = trace_file,
                                .device_flags = work_.device_flags,
                                .ends_at = start + whole_ticks(seconds_left())},
                               plan, work_.hosts);
    if (code == kInterrupted) return RunEnd::Interrupted;
    if (code == runtime::kTimeIsOver) {
      report_.cut_short = index;
      folder_.file().seconds_used += seconds_since(start);
      folder_.save();
      return RunEnd::OutOfTime;
    }
    if (code != kDone) {
      cause = first_cause(said.text());
      if (cause.empty()) cause = fmt::format("the run ended with exit code {}", code);
    }
  } catch (const IoError& error) {
    cause = error.what();
  }
  if (cause.empty()) {
    program::Trace trace = program::parse_trace(unpacked_blocks(trace_file), trace_file);
    candidate.rounds.push_back(
        {.turn = turn, .step_times_s = counted_step_times(trace), .machine = trace.machine});
    if (traces) traces_[index] = std::move(trace);
  } else {
    candidate.failure = cause;
    traces_.erase(index);
  }
  folder_.file().seconds_used += seconds_since(start);
  folder_.save();
  return cause.empty() ? RunEnd::Done : RunEnd::Failed;
}

void Tuner::conclude(TuneStop stop) {
  report_.candidates = candidates_;
  report_.stop = stop;
  report_.seconds_used = folder_.file().seconds_used;
  folder_.save();
}

int Tuner::last_turn() const {
  int last = -1;
  for (const TuneCandidate& candidate : candidates_)
    for (const planner::TuneRound& round : candidate.rounds) last = std::max(last, round.turn);
  return last;
}

program::Plan Tuner::on(const program::Plan& plan, const sim::Cluster& cluster) const {
  program::Plan placed = plan;
  placed.cluster_name = cluster.name;
  placed.cluster_json = sim::to_json(cluster);
  return placed;
}

std::optional<program::Plan> Tuner::best() const {
  const auto choice = planner::choose(candidates_, work_.policy);
  if (!choice) return std::nullopt;
  program::Plan plan = on(candidates_[choice->index].plan, refined_);
  const planner::PricedPlan priced = planner::price(plan, refined_);
  plan.prediction = {.step_time_s = priced.step.step_time_s,
                     .peak_memory_bytes = priced.step.peak_memory_bytes,
                     .mfu = priced.step.mfu,
                     .reasons = {"measured by meshplan tune: " +
                                 reports::measured_text(candidates_[choice->index])}};
  return plan;
}

}  // namespace meshplan::cli
