#include "sim/engine/breakdown.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <string>

#include "core/error.hpp"
#include "program/trace/meetings.hpp"

namespace meshplan::sim {
namespace {

using program::Lane;
using program::Phase;
using program::Span;
using program::Trace;

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

/// What moves activations between device and host while layers run.
bool copies_activations(const Span& span) {
  return (span.lane == Lane::FromHost || span.lane == Lane::ToHost) && span.microbatch.has_value();
}

Category category_of_compute(const Span& span) {
  return span.lane == Lane::Host ? Category::Host : category_of(span.phase);
}

/// The axis that a communication belongs to. With sequence parallelism the gathers and scatters of
/// the tp group are its work; what is still all-reduced there is tensor parallelism's.
Category category_of_group(const Span& span, const program::ParallelConfig& parallel) {
  const std::string& group = span.group;
  if (program::exchanges_with_experts(span.lane))
    return Category::Ep;  // ep, parts of it by node, and etp
  if (group == "tp")
    return parallel.sp && !contains(span.name, "all_reduce") ? Category::Sp : Category::Tp;
  if (group == "tp-pp") return parallel.pp > 1 ? Category::Pp : Category::Tp;
  if (group == "cp") return Category::Cp;
  if (group == "pp" || group == "embedding") return Category::Pp;
  return Category::Dp;
}

/// Does the group have members on several stages, so that waiting for the last one is the
/// pipeline's?
bool crosses_stages(const Span& span) {
  return span.group == "pp" || span.group == "tp-pp" || span.group == "world" ||
         span.group == "embedding";
}

/// Spans of each (rank, step).
std::map<std::pair<int, int>, RankSpans> sorted_by_rank(const Trace& trace) {
  const program::Meetings meetings(trace);
  const auto& parallel = trace.plan.parallel;
  std::map<std::pair<int, int>, RankSpans> ranks;
  for (std::size_t i = 0; i < trace.spans.size(); ++i) {
    const Span& span = trace.spans[i];
    const SpanKind kind = kind_of(span, parallel);
    const double ready = kind.crosses_stages ? meetings.of(i).all_arrived_s : span.start_s;
    ranks[{span.rank, span.step}].add(kind, span.start_s, span.end_s, ready,
                                      parallel.pp > 1 && span.microbatch.has_value());
  }
  return ranks;
}

}  // namespace

Category category_of(program::Phase phase) {
  switch (phase) {
    case Phase::Forward:
      return Category::Forward;
    case Phase::Recompute:
      return Category::Recompute;
    case Phase::InputGrad:
    case Phase::WeightGrad:
      return Category::Backward;
    case Phase::Reduce:
    case Phase::Optimizer:
      return Category::Optimizer;
  }
  throw InvariantError("phase without a category");
}

SpanKind kind_of(const Span& span, const program::ParallelConfig& parallel) {
  if (copies_activations(span)) return {.category = Category::Host, .communicates = true};
  if (!program::communicates(span)) return {.category = category_of_compute(span)};
  return {.category = category_of_group(span, parallel),
          .communicates = true,
          .crosses_stages = crosses_stages(span)};
}

void RankSpans::add(const SpanKind& kind, double start, double end, double ready,
                    bool of_pipeline) {
  last_end_ = std::max(last_end_, end);
  if (!kind.communicates && of_pipeline) {
    pipeline_begin_ = std::min(pipeline_begin_, start);
    pipeline_end_ = std::max(pipeline_end_, end);
  }
  const bool goes_on = !kind.communicates && last_computation_ < pieces_.size() &&
                       pieces_[last_computation_].end == start &&
                       pieces_[last_computation_].category == kind.category;
  if (goes_on) {  // what computes on looks like one piece
    pieces_[last_computation_].end = end;
    return;
  }
  if (!kind.communicates) last_computation_ = pieces_.size();
  pieces_.push_back({.start = start,
                     .end = end,
                     .ready = ready,
                     .category = kind.category,
                     .computes = !kind.communicates});
}

/// In stages that do the same two may end at once but for rounding: then their categories decide.
bool RankSpans::ends_before(const Piece& a, const Piece& b) {
  constexpr double kAtOnce = 1e-9;  // seconds
  if (std::abs(a.end - b.end) > kAtOnce) return a.end < b.end;
  return a.category < b.category;
}

/// Category of the time between two neighbouring boundaries.
Category RankSpans::category_at(double time, const std::vector<const Piece*>& active) const {
  const Piece* awaited = nullptr;
  const Piece* host = nullptr;
  for (const Piece* piece : active) {
    if (piece->computes && piece->category != Category::Host) return piece->category;
    if (piece->computes) host = piece;
    // Several are in progress: the one that ends first is the one that was waited for.
    else if (awaited == nullptr || ends_before(*piece, *awaited))
      awaited = piece;
  }
  if (host != nullptr) return Category::Host;
  if (awaited != nullptr) return time < awaited->ready ? Category::Bubble : awaited->category;
  return time >= pipeline_begin_ && time < pipeline_end_ ? Category::Bubble : Category::Other;
}

Breakdown RankSpans::seconds_between(double begin, double end) {
  std::ranges::sort(pieces_, {}, &Piece::start);
  Breakdown seconds;
  std::vector<const Piece*> active;
  std::size_t next = 0;
  for (double time = begin; time < end;) {
    while (next < pieces_.size() && pieces_[next].start <= time) active.push_back(&pieces_[next++]);
    std::erase_if(active, [&](const Piece* piece) { return piece->end <= time; });
    double until = end;  // when the category may change
    const auto note = [&](double change) {
      if (change > time) until = std::min(until, change);
    };
    if (next < pieces_.size()) note(pieces_[next].start);
    for (const Piece* piece : active) {
      note(piece->end);
      if (!piece->computes) note(piece->ready);
    }
    note(pipeline_begin_);
    note(pipeline_end_);
    seconds[category_at(time, active)] += until - time;
    time = until;
  }
  return seconds;
}

std::string_view name_of(Category category) {
  switch (category) {
    case Category::Forward:
      return "forward";
    case Category::Backward:
      return "backward";
    case Category::Recompute:
      return "recompute";
    case Category::Tp:
      return "tp";
    case Category::Sp:
      return "sp";
    case Category::Cp:
      return "cp";
    case Category::Ep:
      return "ep";
    case Category::Pp:
      return "pp";
    case Category::Dp:
      return "dp";
    case Category::Bubble:
      return "bubble";
    case Category::Optimizer:
      return "optimizer";
    case Category::Host:
      return "host";
    case Category::Other:
      return "other";
  }
  throw InvariantError("category without a name");
}

double Breakdown::total() const {
  return std::accumulate(seconds.begin(), seconds.end(), 0.0);
}

std::map<std::pair<int, int>, StepWindow> step_windows(const Trace& trace) {
  std::map<std::pair<int, int>, StepWindow> windows;
  std::map<int, double> step_ends;  // of each step, over all ranks
  for (const Span& span : trace.spans) {
    double& end = windows[{span.rank, span.step}].end_s;
    end = std::max(end, span.end_s);
    step_ends[span.step] = std::max(step_ends[span.step], span.end_s);
  }
  const double period = trace.step_times_s.empty() ? 0 : trace.step_times_s.back();
  for (auto& [key, window] : windows) {
    if (!trace.measured && period > 0)
      window.begin_s = window.end_s - period;
    else
      window.end_s = step_ends[key.second];
  }
  return windows;
}

std::vector<RankBreakdown> breakdown(const Trace& trace) {
  auto ranks = sorted_by_rank(trace);
  const auto windows = step_windows(trace);
  std::set<int> steps;
  for (const auto& [key, window] : windows) steps.insert(key.second);
  std::vector<RankBreakdown> result;
  const double num_steps = static_cast<double>(std::max<std::size_t>(1, steps.size()));
  for (auto& [key, own] : ranks) {
    const StepWindow& window = windows.at(key);
    const Breakdown step = own.seconds_between(window.begin_s, window.end_s);
    if (result.empty() || result.back().rank != key.first) result.push_back({.rank = key.first});
    for (std::size_t c = 0; c < step.seconds.size(); ++c)
      result.back().seconds.seconds[c] += step.seconds[c] / num_steps;
  }
  return result;
}

Breakdown mean_of(const std::vector<RankBreakdown>& ranks) {
  double all = 0;
  for (const RankBreakdown& rank : ranks) all += rank.stands_for;
  Breakdown mean;
  for (const RankBreakdown& rank : ranks)
    for (std::size_t c = 0; c < mean.seconds.size(); ++c)
      mean.seconds[c] += rank.seconds.seconds[c] * rank.stands_for / all;
  return mean;
}

}  // namespace meshplan::sim
