#include "reports/memory_timeline_report.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "core/units.hpp"
#include "program/trace/chrome_trace.hpp"

using namespace meshplan;
using namespace meshplan::reports;
using Catch::Matchers::Contains;
using sim::MemoryClass;

namespace {

sim::MemoryUse use(double activations, double transient) {
  sim::MemoryUse bytes;
  bytes[MemoryClass::Weights] = 2 * kGib;
  bytes[MemoryClass::Activations] = activations * kGib;
  bytes[MemoryClass::Transient] = transient * kGib;
  return bytes;
}

/// Fills up to 3 + 1 GiB at 10 ms, is empty at 20 ms.
sim::MemoryTimeline hill(int stage, int rank) {
  sim::MemoryTimeline timeline{.stage = stage, .rank = rank};
  timeline.samples = {{0, use(1, 0)}, {0.010, use(3, 1)}, {0.011, use(2, 0)}, {0.020, use(0, 0)}};
  timeline.end_s = 0.020;
  timeline.peak = timeline.samples[1];
  timeline.during = "backward 0, layer 3";
  timeline.planned_bytes = 6 * kGib;
  return timeline;
}

}  // namespace

TEST_CASE("memory over the step is shown stage by stage", "[reports][memory]") {
  const std::string text = to_text({hill(1, 2), hill(0, 0), hill(0, 1)});
  // 10 ms of 3 GiB, 1 ms of 6, 9 ms of 4.
  CHECK_THAT(text, Contains("0  2.0 GiB      3.0 GiB    1.0 GiB  6.0 GiB     6.0 GiB  3.6 GiB   "
                            "10.0  backward 0, layer 3"));
  CHECK_THAT(text, Contains("'@' = 4.0 GiB"));
  CHECK(text.find("\n      0  ") < text.find("\n      1  "));  // by stage, each once
  // A quarter of 4 GiB in the first half, 4 of 4 where it begins to fall, then a half.
  CHECK_THAT(text, Contains("      0  " + std::string(36, ':') + "@@@@" + std::string(32, '+')) ||
                       Contains("::::@@@"));
}

TEST_CASE("a drawing of memory has a panel per stage, its peaks and the capacity",
          "[reports][memory]") {
  const std::string svg = to_svg({hill(0, 0), hill(1, 1)}, {8 * kGib, 8 * kGib}, "a < b & c");
  CHECK_THAT(svg, Contains("a &lt; b &amp; c") && Contains("stage 0") && Contains("stage 1") &&
                      Contains("6.0 GiB at 10.0 ms, backward 0, layer 3") && Contains("capacity") &&
                      Contains("</svg>"));
  CHECK_THAT(to_svg({hill(0, 0)}, {80 * kGib}, ""), !Contains("capacity"));
}

TEST_CASE("a drawing of memory shows each stage's own capacity", "[reports][memory]") {
  const auto dashed = [](const std::vector<double>& capacity) {
    const std::string svg = to_svg({hill(0, 0), hill(1, 1)}, capacity, "");
    std::vector<double> heights;
    for (std::size_t i = svg.find("stroke-dasharray"); i != std::string::npos;
         i = svg.find("stroke-dasharray", i + 1))
      heights.push_back(std::stod(svg.substr(svg.rfind("y1=\"", i) + 4)));
    return heights;
  };
  const auto alike = dashed({8 * kGib, 8 * kGib}), smaller = dashed({8 * kGib, 7 * kGib});
  REQUIRE(alike.size() == 2);
  REQUIRE(smaller.size() == 2);
  CHECK(smaller[0] == alike[0]);
  CHECK(smaller[1] > alike[1]);  // further down
}

TEST_CASE("a long title fits", "[reports][memory]") {
  const auto size = [](std::size_t letters) {
    const std::string svg = to_svg({hill(0, 0)}, {8 * kGib}, std::string(letters, 'x'));
    return std::stod(
        svg.substr(svg.find("<text") + svg.substr(svg.find("<text")).find("font-size=\"") + 11));
  };
  CHECK(size(40) == 15);
  CHECK(size(200) < 8);
}

TEST_CASE("memory is a counter beside a rank's lanes", "[reports][memory]") {
  const program::Trace trace;
  const auto events = nlohmann::json::parse(
      program::to_chrome_trace(trace, {sim::counter_track(hill(0, 3))}))["traceEvents"];
  REQUIRE(events.size() == 4);
  CHECK(events[1]["ph"] == "C");
  CHECK(events[1]["pid"] == 3);
  CHECK(events[1]["ts"] == Approx(10000));
  CHECK(events[1]["args"]["activations"] == Approx(3 * 1024));
  CHECK(events[1]["args"]["transient"] == Approx(1024));
  CHECK(events[1]["args"]["all else"] == Approx(2 * 1024));
}
