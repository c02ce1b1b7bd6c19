#include "trace/trace_layout.hpp"

#include <algorithm>
#include <utility>

namespace meshplan::program {

std::map<int, double> step_starts(const Trace& trace) {
  struct Extent {
    double begin = 0;  // before the common start where a rank's clock says so
    double end = 0;
  };
  std::map<int, Extent> extents;
  for (const Span& span : trace.spans) {
    Extent& extent = extents[span.step];
    extent.begin = std::min(extent.begin, span.start_s);
    extent.end = std::max(extent.end, span.end_s);
  }
  std::map<int, double> starts;
  double start = 0;
  for (const auto& [step, extent] : extents) {
    starts[step] = start - extent.begin;
    start += extent.end - extent.begin;
  }
  return starts;
}

Tracks::Tracks(const Trace& trace, const std::map<int, double>& starts)
    : trace_(trace), track_of_(trace.spans.size(), 0) {
  std::vector<std::size_t> order(trace.spans.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  const auto start_of = [&](std::size_t i) {
    return starts.at(trace.spans[i].step) + trace.spans[i].start_s;
  };
  std::ranges::stable_sort(order, {}, start_of);
  std::map<std::pair<int, Lane>, std::vector<double>> ends;  // of each track of a lane
  for (const std::size_t i : order) {
    const Span& span = trace.spans[i];
    std::vector<double>& tracks = ends[{span.rank, span.lane}];
    const double start = start_of(i);
    const auto free = std::ranges::find_if(tracks, [&](double end) { return end <= start; });
    track_of_[i] = static_cast<int>(free - tracks.begin());
    const double end = starts.at(span.step) + span.end_s;
    if (free == tracks.end())
      tracks.push_back(end);
    else
      *free = end;
  }
}

}  // namespace meshplan::program
