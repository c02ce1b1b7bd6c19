#include "program/trace/trace.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "core/index.hpp"
#include "core/limits.hpp"
#include "core/units.hpp"
#include "plan_file/plan_fields.hpp"
#include "program/cost/cost.hpp"
#include "program/plan_file/plan_file.hpp"
#include "program/trace/lane_names.hpp"

namespace meshplan::program {

template <class Visitor>
void fields(Visitor& v, Span& s) {
  v.required("rank", s.rank, "world rank", between(0, limits::kRanks));
  v.optional("step", s.step, "step of the run", at_least(0));
  v.required("lane", s.lane, "lane of the rank");
  v.required("phase", s.phase, "what the operation is for");
  v.required("name", s.name, "operation");
  v.required("id", s.id, "operation id, equal in predicted and measured traces");
  index_or_minus_one(v, "microbatch", s.microbatch, "micro-batch; -1 = none", at_least(-1));
  index_or_minus_one(v, "layer", s.layer, "model layer; -1 = none", at_least(-1));
  v.optional("group", s.group, "process group of a communication");
  index_or_minus_one(v, "peer", s.peer, "world rank of a point-to-point peer; -1 = none",
                     between(-1, limits::kRanks));
  const Bounds time = between(-limits::kSeconds, limits::kSeconds);
  v.required("start_s", s.start_s, "seconds since the step's common start", time);
  v.required("end_s", s.end_s, "seconds since the step's common start", time);
  v.optional("bytes", s.bytes, "moved, by this rank", between(0, limits::kBytes));
  v.optional("flops", s.flops, "executed", at_least(0));
}

template <class Visitor>
void fields(Visitor& v, MachineSpeed& m) {
  v.optional("reference_s", m.reference_s, "of the reference product, mean; 0 = not measured",
             between(0, limits::kSeconds));
  v.optional("reference_ranks", m.reference_ranks, "that ran it at once", at_least(1));
  v.optional("other_cores", m.other_cores, "that other processes kept busy", at_least(0));
  v.optional("cores", m.cores, "that the ranks may run on; 0 = not known", at_least(0));
  v.optional("ranks_on_host", m.ranks_on_host, "of the job, on the fullest machine", at_least(1));
}

namespace {

struct TraceFile {
  int schema_version = 1;
  RawJson plan;
  Trace trace;
};

template <class Visitor>
void fields(Visitor& v, TraceFile& f) {
  v.required("schema_version", f.schema_version, "version of this format", between(1, 1));
  v.required("measured", f.trace.measured, "false: predicted");
  v.optional("source", f.trace.source, "what made the trace");
  v.required("plan", f.plan, "the plan that was simulated or run (see the plan schema)");
  v.required("world_size", f.trace.world_size, "ranks", between(1, limits::kRanks));
  v.required("step_times_s", f.trace.step_times_s, "seconds of each untraced step",
             between(0, limits::kSeconds));
  v.optional("tracing_overhead", f.trace.tracing_overhead, "traced / untraced step time - 1");
  v.optional("peak_memory_bytes", f.trace.peak_memory_bytes, "of the largest rank",
             between(0, limits::kBytes));
  v.optional("losses", f.trace.losses, "mean token loss of each step");
  v.optional("machine", f.trace.machine, "how fast and busy it was (measured)");
  v.required("spans", f.trace.spans, "what each lane of each rank did");
}

// Every reader indexes by rank.
void check_spans(const Trace& trace, const std::string& file) {
  if (trace.world_size != trace.plan.parallel.world_size())
    throw ConfigError(fmt::format("{}: world_size: {}, but the plan has {} ranks ({})", file,
                                  trace.world_size, trace.plan.parallel.world_size(),
                                  to_string(trace.plan.parallel)));
  for (std::size_t i = 0; i < trace.spans.size(); ++i) {
    const Span& span = trace.spans[i];
    if (span.rank >= trace.world_size || span.peer >= trace.world_size)
      throw ConfigError(
          fmt::format("{}: spans[{}]: rank {} and peer {} must be less than "
                      "world_size = {}",
                      file, i, span.rank, span.peer.value_or(-1), trace.world_size));
    if (!(span.start_s <= span.end_s))
      throw ConfigError(fmt::format("{}: spans[{}]: {} ends at {} s, before it starts at {} s",
                                    file, i, span.name, span.end_s, span.start_s));
  }
}

// A message's send and its receive, whose span names a peer, carry the same key on both sides.
std::string flow_key(const Span& span) {
  const bool send = span.name.starts_with("send");
  return fmt::format("{}>{}:{}:{}", send ? span.rank : *span.peer, send ? *span.peer : span.rank,
                     span.name.substr(span.name.find('_') + 1), span.step);
}

// Names of processes and threads: a rank is a process, a lane one of its threads.
void append_names(Json& events, const Trace& trace) {
  std::set<int> ranks;
  std::set<std::pair<int, Lane>> lanes;
  const auto name = [&](const char* kind, const Span& span, const std::string& text) {
    events.push_back({{"ph", "M"},
                      {"pid", span.rank},
                      {"tid", static_cast<int>(span.lane)},
                      {"name", kind},
                      {"args", {{"name", text}}}});
  };
  for (const Span& span : trace.spans) {
    if (ranks.insert(span.rank).second)
      name("process_name", span,
           fmt::format("rank {} {}", span.rank, trace.measured ? "measured" : "predicted"));
    if (lanes.emplace(span.rank, span.lane).second)
      name("thread_name", span, std::string(meshplan::name_of(span.lane)));
  }
}

// Spans count from their own step's start; a viewer shows the steps one after another.
std::map<int, double> step_starts(const Trace& trace) {
  std::map<int, double> ends;
  for (const Span& span : trace.spans) {
    double& end = ends.try_emplace(span.step, 0.0).first->second;
    end = std::max(end, span.end_s);
  }
  std::map<int, double> starts;
  double start = 0;
  for (const auto& [step, end] : ends) {
    starts[step] = start;
    start += end;
  }
  return starts;
}

Json slice(const Span& span, double start_us, double duration_us) {
  Json args{{"phase", meshplan::name_of(span.phase)}, {"bytes", span.bytes}, {"flops", span.flops}};
  if (span.microbatch) args["microbatch"] = *span.microbatch;
  if (span.layer) args["layer"] = *span.layer;
  return {{"ph", "X"},
          {"pid", span.rank},
          {"tid", static_cast<int>(span.lane)},
          {"name", span.name},
          {"cat", span.group.empty() ? std::string(meshplan::name_of(span.phase)) : span.group},
          {"ts", start_us},
          {"dur", duration_us},
          {"args", std::move(args)}};
}

// One end of an arrow, from where a send starts to where its receive ends.
Json flow(const Span& span, int id, double start_us, double duration_us) {
  // Viewers bind an end to the slice around it; a slice does not contain its own end.
  constexpr double kInsideUs = 1e-3;
  const bool send = span.name.starts_with("send");
  Json event{{"ph", send ? "s" : "f"},
             {"pid", span.rank},
             {"tid", static_cast<int>(span.lane)},
             {"name", "pp"},
             {"cat", "pp"},
             {"id", id},
             {"ts", send ? start_us : start_us + std::max(0.0, duration_us - kInsideUs)}};
  if (!send) event["bp"] = "e";
  return event;
}

void append_counter(Json& events, const CounterTrack& track) {
  for (const CounterTrack::Sample& sample : track.samples) {
    Json values = Json::object();
    for (std::size_t i = 0; i < track.series.size(); ++i)
      values[track.series[i]] = sample.values[i];
    events.push_back({{"ph", "C"},
                      {"pid", track.rank},
                      {"name", track.name},
                      {"ts", sample.time_s * kMicroseconds},
                      {"args", std::move(values)}});
  }
}

}  // namespace

Span make_span(const Program& program, const OperationInstance& instance, const Mesh& mesh,
               int rank) {
  const Operation& operation = operation_of(program, instance);
  const OperationCost cost = operation_cost(program, instance);
  Span span{.rank = rank,
            .lane = operation.lane,
            .phase = operation.phase,
            .name = operation.name,
            .id = instance.id,
            .microbatch = instance.microbatch,
            .bytes = cost.bytes,
            .flops = cost.flops};
  if (instance.layer) span.layer = layer_of(program, instance).layer;
  if (const auto* collective = std::get_if<CollectiveOp>(&operation.work))
    span.group = name_of(collective->group);
  if (const auto* flat = std::get_if<FlatCollectiveOp>(&operation.work))
    span.group = name_of(flat->collective.group);
  if (const auto* peer = std::get_if<PeerOp>(&operation.work)) {
    Coordinates other = mesh.coordinates(rank);
    other.pp += peer->stage_offset;
    span.group = name_of(Group::Pp);
    span.peer = mesh.rank_of(other);
  }
  return span;
}

Trace parse_trace(std::string_view text, const std::string& file) {
  TraceFile parsed = read_json<TraceFile>(text, file);
  parsed.trace.schema_version = parsed.schema_version;
  parsed.trace.plan = parse_plan(parsed.plan.value.dump(), file + ": plan");
  check_spans(parsed.trace, file);
  return std::move(parsed.trace);
}

std::string to_json(const Trace& trace) {
  const TraceFile file{.schema_version = trace.schema_version,
                       .plan = {write_json(to_file(trace.plan))},
                       .trace = trace};
  return write_json(file).dump(1) + "\n";
}

std::string to_chrome_trace(const Trace& trace, const std::vector<CounterTrack>& counters) {
  Json events = Json::array();
  append_names(events, trace);
  const std::map<int, double> starts = step_starts(trace);
  std::map<std::pair<std::string, int>, int> flow_ids;
  std::map<std::pair<std::string, bool>, int> messages;
  for (const Span& span : trace.spans) {
    const double start_us = (starts.at(span.step) + span.start_s) * kMicroseconds;
    const double duration_us = (span.end_s - span.start_s) * kMicroseconds;
    events.push_back(slice(span, start_us, duration_us));
    if (!span.peer) continue;
    // The k-th of these messages that is sent is the k-th that is received.
    const std::string key = flow_key(span);
    const int number = messages[{key, span.name.starts_with("send")}]++;
    const auto entry = flow_ids.try_emplace({key, number}, static_cast<int>(flow_ids.size()));
    events.push_back(flow(span, entry.first->second, start_us, duration_us));
  }
  for (const CounterTrack& track : counters) append_counter(events, track);
  return Json{{"traceEvents", std::move(events)}, {"displayTimeUnit", "ms"}}.dump() + "\n";
}

}  // namespace meshplan::program
