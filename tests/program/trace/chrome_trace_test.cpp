// The rules that viewers have for Chrome's JSON, by Perfetto's documentation (other formats):
// slices of a track nest, arrows begin and end inside slices, and every process and thread has a
// name.
#include "program/trace/chrome_trace.hpp"

#include <catch2/catch.hpp>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "program/plans.hpp"

namespace meshplan::program {
namespace {

using nlohmann::ordered_json;
using Place = std::pair<int, int>;  // pid, tid

Span drawn(int rank, Lane lane, const char* name, const char* group, double start_us,
           double end_us) {
  return {.rank = rank,
          .lane = lane,
          .name = name,
          .id = 5,
          .group = group,
          .start_s = start_us * 1e-6,
          .end_s = end_us * 1e-6};
}

/// Two replicas; two sums of one lane are in flight at once, as on processor cores.
Trace two_replicas(bool measured) {
  Trace trace{.measured = measured, .world_size = 2, .spans = {}};
  trace.plan.parallel.dp = 2;
  for (int rank = 0; rank < 2; ++rank) {
    trace.spans.push_back(drawn(rank, Lane::Compute, "qkv", "", 0, 10));
    trace.spans.push_back(drawn(rank, Lane::Dp, "sum", "dp-cp", 4 + rank, 20));
    trace.spans.push_back(drawn(rank, Lane::Dp, "sum2", "dp-cp", 8, 30));
    trace.spans.back().id = 6;
  }
  return trace;
}

std::vector<ordered_json> of_kind(const std::string& chrome, const std::string& kind) {
  const ordered_json root = ordered_json::parse(chrome);
  std::vector<ordered_json> events;
  for (const ordered_json& event : root.at("traceEvents"))
    if (event.at("ph") == kind) events.push_back(event);
  return events;
}

Place place_of(const ordered_json& event) {
  return {event.at("pid").get<int>(), event.at("tid").get<int>()};
}

/// Complaints about a file; empty if it keeps the rules.
std::vector<std::string> broken_rules_of(const std::string& chrome) {
  std::vector<std::string> broken;
  std::map<Place, std::vector<std::pair<double, double>>> slices;
  for (const ordered_json& slice : of_kind(chrome, "X")) {
    const double ts = slice.at("ts").get<double>(), dur = slice.at("dur").get<double>();
    if (dur < 0) broken.push_back("negative duration");
    slices[place_of(slice)].emplace_back(ts, ts + dur);
  }
  for (auto& [place, own] : slices) {
    std::ranges::sort(own);
    for (std::size_t i = 1; i < own.size(); ++i)
      if (own[i].first < own[i - 1].second - 1e-6) broken.push_back("slices overlap");
  }
  std::set<Place> named, sorted;
  std::set<int> processes;
  for (const ordered_json& name : of_kind(chrome, "M")) {
    if (name.at("name") == "thread_name") named.insert(place_of(name));
    if (name.at("name") == "thread_sort_index") sorted.insert(place_of(name));
    if (name.at("name") == "process_name") processes.insert(name.at("pid").get<int>());
  }
  for (const auto& [place, own] : slices)
    if (!named.contains(place) || !sorted.contains(place) || !processes.contains(place.first))
      broken.push_back("a track without a name");
  std::map<int, int> ends;
  for (const char* kind : {"s", "f"})
    for (const ordered_json& flow : of_kind(chrome, kind)) {
      ends[flow.at("id").get<int>()] += kind[0] == 's' ? 1 : 100;
      const double ts = flow.at("ts").get<double>();
      if (std::ranges::none_of(slices[place_of(flow)], [&](const auto& slice) {
            return slice.first <= ts && ts <= slice.second;
          }))
        broken.push_back("an arrow outside of slices");
      if (kind[0] == 'f' && flow.at("bp") != "e") broken.push_back("an arrow's end without bp");
    }
  for (const auto& [id, count] : ends)
    if (count != 101) broken.push_back("an arrow without one of its ends");
  return broken;
}

}  // namespace

TEST_CASE("a written trace keeps the rules of viewers", "[program][trace]") {
  const std::string chrome = to_chrome_trace(two_replicas(true));
  CHECK(broken_rules_of(chrome).empty());
  CHECK(of_kind(chrome, "X").size() == 6);
  // From the last member of each sum to the other one.
  const auto begins = of_kind(chrome, "s");
  REQUIRE(begins.size() == 2);
  CHECK(begins[0].at("pid") == 1);  // came at 5, rank 0 at 4
  CHECK(begins[0].at("cat") == "dp-cp");
}

TEST_CASE("what overlaps on a lane has a further track", "[program][trace]") {
  std::set<int> tids;
  for (const ordered_json& slice : of_kind(to_chrome_trace(two_replicas(true)), "X"))
    if (slice.at("cat") == "dp-cp") tids.insert(slice.at("tid").get<int>());
  CHECK(tids == std::set<int>{static_cast<int>(Lane::Dp), static_cast<int>(Lane::Dp) + kNumLanes});
}

TEST_CASE("predicted and measured lie side by side", "[program][trace]") {
  CounterTrack memory{.rank = 1, .name = "memory, MiB", .series = {"weights"}, .samples = {}};
  memory.samples.push_back({.time_s = 0, .values = {12}});
  const std::string chrome = to_chrome_trace(two_replicas(false), two_replicas(true), {memory});
  CHECK(broken_rules_of(chrome).empty());
  std::map<int, std::string> processes;
  std::map<int, int> order;
  for (const ordered_json& name : of_kind(chrome, "M")) {
    const int pid = name.at("pid").get<int>();
    if (name.at("name") == "process_name")
      processes[pid] = name.at("args").at("name").get<std::string>();
    if (name.at("name") == "process_sort_index")
      order[name.at("args").at("sort_index").get<int>()] = pid;
  }
  CHECK(processes == std::map<int, std::string>{{0, "rank 0 predicted"},
                                                {1, "rank 1 predicted"},
                                                {2, "rank 0 measured"},
                                                {3, "rank 1 measured"}});
  std::vector<int> shown;
  for (const auto& [index, pid] : order) shown.push_back(pid);
  CHECK(shown == std::vector<int>{0, 2, 1, 3});
  REQUIRE(of_kind(chrome, "C").size() == 1);
  CHECK(of_kind(chrome, "C")[0].at("args").at("weights") == 12);
}

}  // namespace meshplan::program
