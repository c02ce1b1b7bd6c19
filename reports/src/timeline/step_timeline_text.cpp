#include "reports/timeline/step_timeline_text.hpp"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <map>
#include <tuple>
#include <vector>

#include "core/error.hpp"
#include "core/units.hpp"
#include "program/plan/mesh.hpp"
#include "reports/table.hpp"
#include "sim/engine/breakdown.hpp"

namespace meshplan::reports {
namespace {

using program::Lane;
using program::Phase;
using program::Span;
using program::Trace;

/// What a cell shows. Of what is in progress at once the first of these counts.
struct Cell {
  char letter;
  int color;  // SGR
};
constexpr std::array kCells = {Cell{'F', 34}, Cell{'R', 36}, Cell{'B', 32}, Cell{'W', 33},
                               Cell{'O', 35}, Cell{'h', 37}, Cell{'c', 31}, Cell{'.', 90}};
constexpr std::size_t kHost = 5, kCommunication = 6, kIdle = 7;

using Slices = std::vector<std::array<double, kCells.size()>>;

std::size_t cell_of(const Span& span, bool splits_backward) {
  if (!span.group.empty()) return kCommunication;
  if (span.lane != Lane::Compute) return kHost;  // data, and copies of offloaded state
  switch (span.phase) {
    case Phase::Forward:
      return 0;
    case Phase::Recompute:
      return 1;
    case Phase::InputGrad:
      return 2;
    case Phase::WeightGrad:
      return splits_backward ? 3 : 2;
    case Phase::Reduce:
    case Phase::Optimizer:
      return 4;
  }
  throw InvariantError("phase without a letter");
}

/// Adds [begin, end] of the step to the slices that it lies in. Times in columns.
void add(Slices& slices, std::size_t cell, double begin, double end) {
  for (double at = std::max(0.0, begin); at < end;) {
    const auto column = std::min(static_cast<std::size_t>(at), slices.size() - 1);
    const double until =
        column + 1 == slices.size() ? end : std::min(end, static_cast<double>(column + 1));
    slices[column][cell] += until - at;
    at = until;
  }
}

/// Where the time of a rank's step goes, slice by slice.
Slices slices_of(const std::vector<const Span*>& spans, const sim::StepWindow& window,
                 std::size_t columns, bool splits_backward) {
  const double scale = static_cast<double>(columns) / (window.end_s - window.begin_s);
  std::vector<std::tuple<double, std::size_t, int>> changes;  // time, cell, spans more
  for (const Span* span : spans) {
    const double begin = (span->start_s - window.begin_s) * scale;
    const double end = (span->end_s - window.begin_s) * scale;
    if (!(end > begin)) continue;
    const std::size_t cell = cell_of(*span, splits_backward);
    changes.emplace_back(begin, cell, 1);
    changes.emplace_back(end, cell, -1);
  }
  std::ranges::sort(changes);
  Slices slices(columns);
  std::array<int, kCells.size()> active{};
  double at = 0;
  for (const auto& [time, cell, more] : changes) {
    const auto now = std::ranges::find_if(active, [](int number) { return number > 0; });
    add(slices, std::min<std::size_t>(static_cast<std::size_t>(now - active.begin()), kIdle), at,
        std::min(time, static_cast<double>(columns)));
    active[cell] += more;
    at = std::max(at, time);
  }
  add(slices, kIdle, at, static_cast<double>(columns));
  return slices;
}

std::string row_text(const Slices& slices, bool colors) {
  std::string text;
  int color = 0;
  for (const auto& slice : slices) {
    const auto most = std::ranges::max_element(slice);
    const Cell& cell = kCells[static_cast<std::size_t>(most - slice.begin())];
    if (colors && cell.color != color) text += fmt::format("\x1b[{}m", cell.color);
    color = cell.color;
    text += cell.letter;
  }
  return text + (colors ? "\x1b[0m" : "");
}

/// Of the rank's time the part in which it computes.
double busy_share(const Slices& slices) {
  double busy = 0;
  for (const auto& slice : slices)
    for (std::size_t cell = 0; cell < kHost; ++cell) busy += slice[cell];
  return busy / static_cast<double>(slices.size());
}

}  // namespace

std::string step_timeline_text(const Trace& trace, const StepTimelineOptions& options) {
  if (trace.spans.empty()) throw ConfigError("a trace without operations has no timeline");
  require_invariant(options.columns > 0, "a timeline has columns");
  const program::Mesh mesh = program::mesh_of(trace.plan);
  std::map<int, int> rank_of_stage;
  int step = trace.spans.front().step;
  for (const Span& span : trace.spans) {
    step = std::min(step, span.step);
    const int stage = mesh.coordinates(span.rank).pp;
    const auto [found, is_new] = rank_of_stage.try_emplace(stage, span.rank);
    if (!is_new) found->second = std::min(found->second, span.rank);
  }
  const auto windows = sim::step_windows(trace);
  const bool splits = program::splits_backward(program::schedule_of(trace.plan));
  std::string text;
  double longest = 0;
  for (const auto& [stage, rank] : rank_of_stage) {
    const auto window = windows.find({rank, step});
    if (window == windows.end() || !(window->second.end_s > window->second.begin_s)) continue;
    longest = std::max(longest, window->second.end_s - window->second.begin_s);
    std::vector<const Span*> spans;
    for (const Span& span : trace.spans)
      if (span.rank == rank && span.step == step) spans.push_back(&span);
    const Slices slices =
        slices_of(spans, window->second, static_cast<std::size_t>(options.columns), splits);
    text += fmt::format("stage {:<3} {} {:>7}\n", stage, row_text(slices, options.colors),
                        percent(busy_share(slices)));
  }
  return fmt::format("{} step of {:.2f} ms; a column is {:.3g} ms; at the end: computing\n",
                     trace.measured ? "measured" : "predicted", longest * kMilliseconds,
                     longest * kMilliseconds / options.columns) +
         text +
         "F forward  R recompute  B backward  W weight half  O optimizer  c communication  h host  "
         ". idle\n";
}

}  // namespace meshplan::reports
