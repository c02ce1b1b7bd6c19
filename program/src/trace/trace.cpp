#include "program/trace/trace.hpp"

#include <fmt/format.h>

#include "core/index.hpp"
#include "core/json_list.hpp"
#include "core/limits.hpp"
#include "plan_file/plan_fields.hpp"
#include "program/cost/cost.hpp"
#include "program/plan_file/plan_file.hpp"
#include "program/trace/lane_names.hpp"
#include "program/trace/trace_blocks.hpp"

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

Span read_span(const Json& value, const std::string& file, std::size_t index) {
  const std::string path = fmt::format("spans[{}]", index);
  if (!value.is_object())
    throw ConfigError(fmt::format("{}: {}: expected an object, got {}", file, path, quoted(value)));
  return read_object<Span>(value, file, path);
}

std::size_t bytes_of(const Span& span) {
  constexpr std::size_t kInPlace = 15;  // of a string: shorter ones take no memory of their own
  const auto own = [](const std::string& text) {
    return text.size() > kInPlace ? text.size() + 16 : 0;
  };
  return sizeof(Span) + own(span.name) + own(span.group);
}

void require_room(std::size_t spans, std::size_t bytes, const std::string& file) {
  if (spans > static_cast<std::size_t>(limits::kRecordedOperations))
    throw ConfigError(fmt::format("{}: spans: more than {}, the limit; trace fewer steps or ranks",
                                  file, limits::kRecordedOperations));
  if (bytes > kMostSpansBytes)
    throw ConfigError(fmt::format(
        "{}: spans: {} of them take more than {} bytes of memory, the limit; trace fewer steps or "
        "ranks",
        file, spans, kMostSpansBytes));
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

Trace parse_trace(const TextBlocks& text, const std::string& file) {
  std::vector<Span> spans;
  std::size_t bytes = 0;
  const Json root =
      read_json_list(text, file, {.key = "spans", .use = [&](const Json& value, std::size_t index) {
                                    spans.push_back(read_span(value, file, index));
                                    bytes += bytes_of(spans.back());
                                    require_room(spans.size(), bytes, file);
                                  }});
  if (!root.is_object())
    throw ConfigError(fmt::format("{}: expected a JSON object, got {}", file, root.type_name()));
  TraceFile parsed = read_object<TraceFile>(root, file, "");
  parsed.trace.schema_version = parsed.schema_version;
  parsed.trace.plan = parse_plan(parsed.plan.value.dump(), file + ": plan");
  parsed.trace.spans = std::move(spans);
  check_spans(parsed.trace, file);
  return std::move(parsed.trace);
}

Trace parse_trace(std::string_view text, const std::string& file) {
  return parse_trace(one_block(text), file);
}

std::string to_json(const Trace& trace) {
  const TraceFile file{.schema_version = trace.schema_version,
                       .plan = {write_json(to_file(trace.plan))},
                       .trace = trace};
  return write_json(file).dump(1) + "\n";
}

}  // namespace meshplan::program
