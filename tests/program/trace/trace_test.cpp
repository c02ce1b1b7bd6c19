#include "program/trace/trace.hpp"

#include <catch2/catch.hpp>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "core/error.hpp"
#include "program/corruptions.hpp"
#include "program/inspect.hpp"
#include "program/plans.hpp"
#include "program/trace/chrome_trace.hpp"

namespace meshplan::program {
namespace {

using Catch::Contains;
using nlohmann::ordered_json;

Plan pipeline_plan() {
  Plan plan = test::make_plan(test::llama_style(), {.tp = 2, .pp = 2, .dp = 2}, 3);
  plan.model.num_layers = 2;
  return plan;
}

/// Plays the programs of a plan by hand: every operation takes a microsecond, starts when its lane
/// and what it waits for are done, and a receive ends after its send has started.
Trace unit_trace(const Plan& plan) {
  const std::vector<Program> programs = lower_all(plan);
  const Mesh mesh(plan.parallel, plan.rank_order);
  Trace trace{.source = "by hand", .plan = plan, .world_size = mesh.world_size()};
  trace.step_times_s = {1e-3};
  trace.losses = {5.5, 5.25};
  std::vector<std::vector<double>> ends(static_cast<std::size_t>(mesh.world_size()));
  std::vector<std::map<Lane, double>> lanes(ends.size());
  std::map<std::string, double> sent;
  bool progressed = true;
  while (progressed) {
    progressed = false;
    for (int rank = 0; rank < mesh.world_size(); ++rank) {
      const auto r = static_cast<std::size_t>(rank);
      const Program& program = programs[static_cast<std::size_t>(mesh.coordinates(rank).pp)];
      while (ends[r].size() < program.instances.size()) {
        const OperationInstance& instance = program.instances[ends[r].size()];
        Span span = make_span(program, instance, mesh, rank);
        span.start_s = lanes[r][span.lane];
        for (const int earlier : waits_of(program, instance))
          span.start_s = std::max(span.start_s, ends[r][static_cast<std::size_t>(earlier)]);
        span.end_s = span.start_s + 1e-6;
        if (span.peer) {
          const bool send = span.name.starts_with("send");
          const std::string message = std::to_string(send ? rank : *span.peer) +
                                      span.name.substr(4) + std::to_string(*span.microbatch);
          if (send) sent[message] = span.start_s;
          if (!send && !sent.contains(message)) break;
          if (!send) span.end_s = std::max(span.end_s, sent[message] + 1e-6);
        }
        lanes[r][span.lane] = span.end_s;
        ends[r].push_back(span.end_s);
        trace.spans.push_back(std::move(span));
        progressed = true;
      }
    }
  }
  return trace;
}

std::vector<ordered_json> events_of(const ordered_json& chrome, const std::string& kind) {
  std::vector<ordered_json> events;
  for (const ordered_json& event : chrome["traceEvents"])
    if (event["ph"] == kind) events.push_back(event);
  return events;
}

}  // namespace

TEST_CASE("Programs of all stages can be played to the end", "[program][trace]") {
  std::size_t expected = 0;
  for (const Program& program : lower_all(pipeline_plan()))
    expected += 4 * program.instances.size();
  CHECK(unit_trace(pipeline_plan()).spans.size() == expected);
}

TEST_CASE("A span says what its operation was, on which layer, with whom", "[program][trace]") {
  const Plan plan = pipeline_plan();
  const auto programs = lower_all(plan);
  const Mesh mesh(plan.parallel);  // rank = tp + 2 dp + 4 pp
  const auto span_of = [&](std::size_t stage, const char* name, int rank) {
    const auto found = test::instances_named(programs[stage], name);
    return make_span(programs[stage], programs[stage].instances[found.front()], mesh, rank);
  };
  const Span send = span_of(0, "send_forward", 3);
  CHECK(send.peer == 7);
  CHECK(send.group == "pp");
  CHECK(send.bytes == 16 * 64 * 4);
  CHECK(span_of(1, "send_backward", 6).peer == 2);
  const Span sum = span_of(1, "attention_out.all_reduce", 4);
  CHECK(sum.group == "tp");
  CHECK(sum.layer == 1);  // of the model, not of the stage
  CHECK_FALSE(sum.peer);
  const Span qkv = span_of(0, "qkv", 0);
  CHECK(qkv.group.empty());
  CHECK(qkv.flops == 2.0 * 16 * 64 * 64);
  CHECK(span_of(0, "gradients[", 0).group == "dp-cp");
}

TEST_CASE("Files spell what a span does not have as -1", "[program][trace]") {
  Trace trace = unit_trace(pipeline_plan());
  trace.spans.resize(1);
  trace.spans[0].layer.reset();
  trace.spans[0].peer = 0;
  const std::string text = to_json(trace);
  const auto span = ordered_json::parse(text)["spans"][0];
  CHECK(span["layer"] == -1);
  CHECK(span["peer"] == 0);
  const Trace read = parse_trace(text, "trace.json");
  CHECK_FALSE(read.spans[0].layer);
  CHECK(read.spans[0].peer == 0);
}

TEST_CASE("A trace reads back as it was written", "[program][trace]") {
  Trace original = unit_trace(pipeline_plan());
  original.measured = true;
  original.tracing_overhead = 0.01;
  original.peak_memory_bytes = 123456789;
  original.spans.front().step = 4;
  const std::string text = to_json(original);
  const Trace read = parse_trace(text, "trace.json");
  CHECK(to_json(read) == text);
  CHECK(read.measured);
  CHECK(read.losses == original.losses);
  CHECK(read.plan.parallel == original.plan.parallel);
  REQUIRE(read.spans.size() == original.spans.size());
  for (std::size_t i = 0; i < read.spans.size(); ++i) {
    const Span& a = read.spans[i];
    const Span& b = original.spans[i];
    REQUIRE(a.id == b.id);
    REQUIRE(a.start_s == b.start_s);  // bit for bit
    REQUIRE(a.end_s == b.end_s);
    REQUIRE(std::tie(a.name, a.rank, a.lane, a.phase, a.microbatch, a.layer, a.group, a.peer,
                     a.step, a.bytes, a.flops) == std::tie(b.name, b.rank, b.lane, b.phase,
                                                           b.microbatch, b.layer, b.group, b.peer,
                                                           b.step, b.bytes, b.flops));
  }
}

TEST_CASE("Errors of a trace file name the file, the path and the rule", "[program][trace]") {
  const auto valid = ordered_json::parse(to_json(unit_trace(pipeline_plan())));
  const auto error = [&](auto change) {
    ordered_json json = valid;
    change(json);
    try {
      parse_trace(json.dump(), "t.json");
    } catch (const ConfigError& caught) {
      return std::string(caught.what());
    }
    return std::string("accepted");
  };
  CHECK_THAT(error([](auto& j) { j["spans"][2]["lane"] = "ttp"; }),
             Contains("t.json: spans[2].lane: unknown value 'ttp'; did you mean 'tp'?"));
  CHECK_THAT(error([](auto& j) { j["spans"][0].erase("id"); }),
             Contains("spans[0].id: required key is missing"));
  CHECK_THAT(error([](auto& j) { j["plan"]["parallel"]["tp"] = 3; }), Contains("t.json: plan: "));
  CHECK_THAT(error([](auto& j) { j["spans"][1]["rank"] = 8; }),
             Contains("spans[1]") && Contains("world_size = 8"));
  CHECK_THAT(error([](auto& j) { j["spans"][3]["end_s"] = -1.0; }),
             Contains("spans[3]") && Contains("before it starts"));
}

TEST_CASE("Slices of one lane in the Chrome form do not overlap", "[program][trace]") {
  const auto chrome = ordered_json::parse(to_chrome_trace(unit_trace(pipeline_plan())));
  std::map<std::pair<int, int>, std::vector<std::pair<double, double>>> lanes;
  for (const ordered_json& event : events_of(chrome, "X"))
    lanes[{event["pid"], event["tid"]}].emplace_back(
        event["ts"].get<double>(), event["ts"].get<double>() + event["dur"].get<double>());
  CHECK(lanes.size() >= 8 * 4);
  for (auto& [lane, slices] : lanes) {
    std::ranges::sort(slices);
    for (std::size_t i = 1; i < slices.size(); ++i)
      REQUIRE(slices[i].first >= slices[i - 1].second - 1e-9);
  }
}

TEST_CASE("Every arrow has one start and one finish, inside their slices", "[program][trace]") {
  const Trace trace = unit_trace(pipeline_plan());
  const auto chrome = ordered_json::parse(to_chrome_trace(trace));
  std::map<int, ordered_json> starts;
  std::map<int, ordered_json> finishes;
  const auto is_message = [](const ordered_json& event) { return event["cat"] == "pp"; };
  for (const auto& event : events_of(chrome, "s"))
    if (is_message(event)) CHECK(starts.emplace(event["id"], event).second);
  for (const auto& event : events_of(chrome, "f"))
    if (is_message(event)) CHECK(finishes.emplace(event["id"], event).second);
  // 4 pipelines, 3 micro-batches, one boundary, both directions.
  CHECK(starts.size() == 24);
  CHECK(finishes.size() == 24);
  const auto slices = events_of(chrome, "X");
  for (const auto& [id, start] : starts) {
    REQUIRE(finishes.contains(id));
    const ordered_json& finish = finishes[id];
    CHECK(start["ts"].get<double>() <= finish["ts"].get<double>());
    // Lanes are numbered as Lane is: a receive is on the lane after its send's.
    CHECK(start["tid"].get<int>() + 1 == finish["tid"].get<int>());
    CHECK(std::abs(start["pid"].get<int>() - finish["pid"].get<int>()) == 4);  // the next stage
    CHECK(finish["bp"] == "e");
    CHECK(std::ranges::any_of(slices, [&](const ordered_json& slice) {
      const double end = slice["ts"].get<double>() + slice["dur"].get<double>();
      return slice["pid"] == finish["pid"] && slice["tid"] == finish["tid"] &&
             slice["name"].get<std::string>().starts_with("recv") && slice["ts"] <= finish["ts"] &&
             finish["ts"].get<double>() < end;
    }));
  }
}

TEST_CASE("Processes are ranks, threads are lanes, each named once", "[program][trace]") {
  const auto chrome = ordered_json::parse(to_chrome_trace(unit_trace(pipeline_plan())));
  std::map<std::string, std::set<std::pair<int, int>>> named;
  std::map<int, std::string> processes;
  for (const auto& event : events_of(chrome, "M")) {
    CHECK(named[event["name"]].emplace(event["pid"], event["tid"]).second);
    if (event["name"] == "process_name") {
      CHECK_FALSE(processes.contains(event["pid"]));
      processes[event["pid"]] = event["args"]["name"];
    }
  }
  CHECK(processes.size() == 8);
  CHECK(processes[3] == "rank 3 predicted");
  for (const auto& event : events_of(chrome, "X"))
    REQUIRE(named["thread_name"].contains({event["pid"], event["tid"]}));
}

TEST_CASE("Several traced steps follow one another in the Chrome form", "[program][trace]") {
  Trace trace;
  trace.spans = {{.step = 7, .name = "a", .start_s = 0, .end_s = 2e-6},
                 {.step = 3, .name = "b", .start_s = 1e-6, .end_s = 5e-6}};
  const auto slices = events_of(ordered_json::parse(to_chrome_trace(trace)), "X");
  REQUIRE(slices.size() == 2);
  CHECK(slices[0]["ts"].get<double>() == Approx(5.0));  // step 7 begins where step 3 ended
  CHECK(slices[1]["ts"].get<double>() == Approx(1.0));
}

TEST_CASE("A damaged trace file is refused or read, and nothing else happens", "[program][trace]") {
  Trace trace = unit_trace(pipeline_plan());
  trace.spans.resize(20);
  int refused = 0;
  for (const std::string& text : test::corruptions(to_json(trace), 200)) {
    try {
      to_chrome_trace(parse_trace(text, "trace.json"));
    } catch (const ConfigError&) {
      ++refused;
    }
  }
  CHECK(refused >= 200);  // every truncation at least
}

}  // namespace meshplan::program
