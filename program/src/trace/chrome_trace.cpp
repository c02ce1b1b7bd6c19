#include "program/trace/chrome_trace.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <set>

#include "core/json_fields.hpp"
#include "core/units.hpp"
#include "program/trace/lane_names.hpp"
#include "program/trace/meetings.hpp"
#include "trace/trace_layout.hpp"

namespace meshplan::program {
namespace {

/// Adds the events of one trace.
class ChromeWriter {
 public:
  /// @param first_pid  of rank 0
  /// @param place  among the processes of a rank
  ChromeWriter(Json& events, const Trace& trace, int first_pid, int place, int& flow_id)
      : events_(events),
        trace_(trace),
        first_pid_(first_pid),
        place_(place),
        starts_(step_starts(trace)),
        tracks_(trace, starts_),
        flow_id_(flow_id) {}

  void write(const std::vector<CounterTrack>& counters) {
    write_names();
    for (std::size_t i = 0; i < trace_.spans.size(); ++i) events_.push_back(slice(i));
    const Meetings meetings(trace_);
    for (const Meeting& meeting : meetings.all()) write_flows(meeting);
    for (const CounterTrack& track : counters) write_counter(track);
  }

 private:
  int pid_of(int rank) const { return first_pid_ + rank; }
  int tid_of(std::size_t i) const { return tracks_.thread_of(i); }
  double start_us(std::size_t i) const {
    const Span& span = trace_.spans[i];
    return (starts_.at(span.step) + span.start_s) * kMicroseconds;
  }
  double duration_us(std::size_t i) const {
    return (trace_.spans[i].end_s - trace_.spans[i].start_s) * kMicroseconds;
  }

  void write_name(const char* kind, int pid, std::optional<int> tid, Json args) {
    Json event{{"ph", "M"}, {"pid", pid}};
    if (tid) event["tid"] = *tid;
    event["name"] = kind;
    event["args"] = std::move(args);
    events_.push_back(std::move(event));
  }

  /// A rank is a process, a lane one of its threads.
  void write_names() {
    std::set<int> ranks;
    std::set<std::pair<int, int>> tids;
    for (std::size_t i = 0; i < trace_.spans.size(); ++i) {
      const Span& span = trace_.spans[i];
      const int pid = pid_of(span.rank), tid = tid_of(i), track = tracks_.of(i);
      if (ranks.insert(span.rank).second) {
        const std::string kind = trace_.measured ? "measured" : "predicted";
        write_name("process_name", pid, 0, {{"name", fmt::format("rank {} {}", span.rank, kind)}});
        write_name("process_sort_index", pid, 0, {{"sort_index", 2 * span.rank + place_}});
      }
      if (!tids.emplace(pid, tid).second) continue;
      const std::string lane(meshplan::name_of(span.lane));
      write_name("thread_name", pid, tid,
                 {{"name", track == 0 ? lane : fmt::format("{} {}", lane, track + 1)}});
      write_name("thread_sort_index", pid, tid,
                 {{"sort_index", static_cast<int>(span.lane) * kNumLanes + track}});
    }
  }

  Json slice(std::size_t i) const {
    const Span& span = trace_.spans[i];
    Json args{
        {"phase", meshplan::name_of(span.phase)}, {"bytes", span.bytes}, {"flops", span.flops}};
    if (span.microbatch) args["microbatch"] = *span.microbatch;
    if (span.layer) args["layer"] = *span.layer;
    return {{"ph", "X"},
            {"pid", pid_of(span.rank)},
            {"tid", tid_of(i)},
            {"name", span.name},
            {"cat", span.group.empty() ? std::string(meshplan::name_of(span.phase)) : span.group},
            {"ts", start_us(i)},
            {"dur", duration_us(i)},
            {"args", std::move(args)}};
  }

  /// One end of an arrow, from where its first slice starts to where its second one ends.
  void write_flow(std::size_t i, int id, bool begins) {
    // Viewers bind an end to the slice around it; a slice does not contain its own end.
    constexpr double kInsideUs = 1e-3;
    const Span& span = trace_.spans[i];
    const double end = start_us(i) + std::max(0.0, duration_us(i) - kInsideUs);
    Json event{{"ph", begins ? "s" : "f"},
               {"pid", pid_of(span.rank)},
               {"tid", tid_of(i)},
               {"name", span.group},
               {"cat", span.group},
               {"id", id},
               {"ts", begins ? start_us(i) : end}};
    if (!begins) event["bp"] = "e";
    events_.push_back(std::move(event));
  }

  /// From a send to its receive; from the last member of a collective, for whom all waited, to
  /// each.
  void write_flows(const Meeting& meeting) {
    const auto leads = [&](std::size_t i) {
      const Span& span = trace_.spans[i];
      return span.peer ? sends(span) : span.rank == meeting.last_rank;
    };
    const auto leader = std::ranges::find_if(meeting.spans, leads);
    if (leader == meeting.spans.end()) return;
    for (const std::size_t other : meeting.spans) {
      if (other == *leader) continue;
      write_flow(*leader, flow_id_, true);
      write_flow(other, flow_id_++, false);
    }
  }

  void write_counter(const CounterTrack& track) {
    for (const CounterTrack::Sample& sample : track.samples) {
      Json values = Json::object();
      for (std::size_t i = 0; i < track.series.size(); ++i)
        values[track.series[i]] = sample.values[i];
      events_.push_back({{"ph", "C"},
                         {"pid", pid_of(track.rank)},
                         {"name", track.name},
                         {"ts", sample.time_s * kMicroseconds},
                         {"args", std::move(values)}});
    }
  }

  Json& events_;
  const Trace& trace_;
  int first_pid_;
  int place_;
  std::map<int, double> starts_;
  Tracks tracks_;
  int& flow_id_;
};

std::string chrome_json(Json events) {
  return Json{{"traceEvents", std::move(events)}, {"displayTimeUnit", "ms"}}.dump(
             -1, ' ', false, Json::error_handler_t::replace) +
         "\n";
}

}  // namespace

std::string to_chrome_trace(const Trace& trace, const std::vector<CounterTrack>& counters) {
  Json events = Json::array();
  int flow_id = 0;
  ChromeWriter(events, trace, 0, 0, flow_id).write(counters);
  return chrome_json(std::move(events));
}

std::string to_chrome_trace(const Trace& predicted, const Trace& measured,
                            const std::vector<CounterTrack>& counters) {
  Json events = Json::array();
  int flow_id = 0;
  ChromeWriter(events, predicted, 0, 0, flow_id).write(counters);
  ChromeWriter(events, measured, predicted.world_size, 1, flow_id).write({});
  return chrome_json(std::move(events));
}

}  // namespace meshplan::program
