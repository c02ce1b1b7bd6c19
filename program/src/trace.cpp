#include "program/trace.hpp"

#include <map>

#include "plan_fields.hpp"
#include "program/cost.hpp"

namespace meshplan {

template <>
struct EnumNames<program::Lane> {
  static constexpr std::array<std::pair<program::Lane, std::string_view>, program::kNumLanes>
      value = {{{program::Lane::Compute, "compute"},
                {program::Lane::Tp, "tp"},
                {program::Lane::PpForward, "pp_forward"},
                {program::Lane::PpBackward, "pp_backward"},
                {program::Lane::Dp, "dp"},
                {program::Lane::Host, "host"}}};
};
template <>
struct EnumNames<program::Phase> {
  static constexpr std::array<std::pair<program::Phase, std::string_view>, 6> value = {
      {{program::Phase::Forward, "forward"},
       {program::Phase::Recompute, "recompute"},
       {program::Phase::InputGrad, "input_grad"},
       {program::Phase::WeightGrad, "weight_grad"},
       {program::Phase::Reduce, "reduce"},
       {program::Phase::Optimizer, "optimizer"}}};
};

namespace program {

template <class Visitor>
void fields(Visitor& v, Span& s) {
  v.required("rank", s.rank, "world rank", at_least(0));
  v.optional("step", s.step, "step of the run");
  v.required("lane", s.lane, "lane of the rank");
  v.required("phase", s.phase, "what the operation is for");
  v.required("name", s.name, "operation");
  v.required("id", s.id, "operation id, equal in predicted and measured traces");
  v.optional("microbatch", s.microbatch, "micro-batch; -1 = none");
  v.optional("layer", s.layer, "model layer; -1 = none");
  v.optional("group", s.group, "process group of a communication");
  v.optional("peer", s.peer, "world rank of a point-to-point peer; -1 = none");
  v.required("start_s", s.start_s, "seconds since the step's common start");
  v.required("end_s", s.end_s, "seconds since the step's common start");
  v.optional("bytes", s.bytes, "moved, by this rank");
  v.optional("flops", s.flops, "executed");
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
  v.required("world_size", f.trace.world_size, "ranks", at_least(1));
  v.required("step_times_s", f.trace.step_times_s, "seconds of each untraced step", at_least(0));
  v.optional("tracing_overhead", f.trace.tracing_overhead, "traced / untraced step time - 1");
  v.optional("peak_memory_bytes", f.trace.peak_memory_bytes, "of the largest rank");
  v.optional("losses", f.trace.losses, "mean token loss of each step");
  v.required("spans", f.trace.spans, "what each lane of each rank did");
}

Json metadata(const char* kind, int rank, int lane, const std::string& name) {
  return Json{
      {"ph", "M"}, {"pid", rank}, {"tid", lane}, {"name", kind}, {"args", {{"name", name}}}};
}

// A send and its receive carry the same key on both sides.
std::string flow_key(const Span& span) {
  const bool send = span.name.starts_with("send");
  return fmt::format("{}>{}:{}:{}:{}", send ? span.rank : span.peer, send ? span.peer : span.rank,
                     span.name.substr(span.name.find('_') + 1), span.microbatch, span.step);
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
  if (instance.layer >= 0)
    span.layer = program.layers[static_cast<std::size_t>(instance.layer)].layer.value_or(-1);
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
  return std::move(parsed.trace);
}

std::string to_json(const Trace& trace) {
  const TraceFile file{.schema_version = trace.schema_version,
                       .plan = {write_json(to_file(trace.plan))},
                       .trace = trace};
  return write_json(file).dump(1) + "\n";
}

std::string to_chrome_trace(const Trace& trace) {
  Json events = Json::array();
  std::map<std::pair<int, int>, bool> named;
  std::map<std::string, int> flow_ids;
  for (const Span& span : trace.spans) {
    const int lane = static_cast<int>(span.lane);
    if (named.try_emplace({span.rank, lane}, true).second) {
      events.push_back(metadata(
          "process_name", span.rank, lane,
          fmt::format("rank {} {}", span.rank, trace.measured ? "measured" : "predicted")));
      events.push_back(
          metadata("thread_name", span.rank, lane, std::string(meshplan::name_of(span.lane))));
    }
    const double start_us = span.start_s * 1e6;
    const double duration_us = (span.end_s - span.start_s) * 1e6;
    Json args{
        {"phase", meshplan::name_of(span.phase)}, {"bytes", span.bytes}, {"flops", span.flops}};
    if (span.microbatch >= 0) args["microbatch"] = span.microbatch;
    if (span.layer >= 0) args["layer"] = span.layer;
    events.push_back(
        {{"ph", "X"},
         {"pid", span.rank},
         {"tid", lane},
         {"name", span.name},
         {"cat", span.group.empty() ? std::string(meshplan::name_of(span.phase)) : span.group},
         {"ts", start_us},
         {"dur", duration_us},
         {"args", std::move(args)}});
    if (span.peer < 0) continue;
    const bool send = span.name.starts_with("send");
    const auto id =
        flow_ids.try_emplace(flow_key(span), static_cast<int>(flow_ids.size())).first->second;
    Json flow{{"ph", send ? "s" : "f"},
              {"pid", span.rank},
              {"tid", lane},
              {"name", "pp"},
              {"cat", "pp"},
              {"id", id},
              {"ts", send ? start_us : start_us + duration_us}};
    if (!send) flow["bp"] = "e";
    events.push_back(std::move(flow));
  }
  return Json{{"traceEvents", std::move(events)}, {"displayTimeUnit", "ms"}}.dump() + "\n";
}

}  // namespace program
}  // namespace meshplan
