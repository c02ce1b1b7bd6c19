// The page of `meshplan report`: what it holds, that it is one declaration, and that nothing in it
// ends the script that holds it.
#include "reports/html/page.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>

#include "core/error.hpp"
#include "html/packed_bars.hpp"
#include "html/page_json.hpp"
#include "html/plan_words.hpp"
#include "program/lower/lower.hpp"
#include "program/trace/lane_names.hpp"
#include "sim/stacks/cluster_preset.hpp"

namespace meshplan::reports {
namespace {

using Catch::Matchers::Contains;

program::Plan small_pipeline() {
  program::Plan plan;
  plan.model = models::load_preset("tiny-llama");
  plan.workload = {.seq_len = 128, .global_batch_size = 16};
  plan.parallel = {.tp = 2, .pp = 2, .dp = 2};
  return plan;
}

sim::Cluster small_gpus() {
  return sim::with_ranks(sim::load_cluster_preset("dgx-h100"), 8);
}

/// As if the prediction had come true, a tenth slower.
program::Trace run_of(const program::Plan& plan) {
  program::Trace trace = sim::simulate(program::lower_all(plan), small_gpus()).trace;
  trace.measured = true;
  trace.step_times_s = {1, 1.1 * trace.step_times_s.front(), 1.1 * trace.step_times_s.front()};
  for (program::Span& span : trace.spans) {
    span.start_s *= 1.1;
    span.end_s *= 1.1;
  }
  return trace;
}

/// Numbers of a packed row, as the page's script unpacks them.
std::vector<std::uint64_t> unpacked(const std::string& packed) {
  static constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::vector<std::uint8_t> bytes;
  std::uint32_t bits = 0;
  int held = 0;
  for (const char digit : packed) {
    if (digit == '=') break;
    bits = bits << 6 | static_cast<std::uint32_t>(kDigits.find(digit));
    held += 6;
    if (held < 8) continue;
    held -= 8;
    bytes.push_back(static_cast<std::uint8_t>(bits >> held));
  }
  std::vector<std::uint64_t> numbers;
  std::uint64_t number = 0;
  int shift = 0;
  for (const std::uint8_t byte : bytes) {
    number |= std::uint64_t{byte & 0x7fU} << shift;
    shift += 7;
    if (byte >= 0x80) continue;
    numbers.push_back(number);
    number = 0;
    shift = 0;
  }
  return numbers;
}

std::int64_t unzigzag(std::uint64_t number) {
  return static_cast<std::int64_t>(number >> 1) ^ -static_cast<std::int64_t>(number & 1);
}

std::size_t occurrences(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++count;
  return count;
}

}  // namespace

TEST_CASE("base64 has the digits of RFC 4648", "[reports][page]") {
  const auto of = [](std::string_view text) {
    return base64(std::vector<std::uint8_t>(text.begin(), text.end()));
  };
  CHECK(of("").empty());
  CHECK(of("f") == "Zg==");
  CHECK(of("fo") == "Zm8=");
  CHECK(of("foobar") == "Zm9vYmFy");
  CHECK(of("\xff\xfe") == "//4=");
}

TEST_CASE("bars are packed so that nothing of a span is lost", "[reports][page]") {
  const program::Trace trace = run_of(small_pipeline());
  const PackedBars packed = pack_bars(trace);
  std::size_t bars = 0;
  for (const BarRow& row : packed.rows) {
    std::vector<const program::Span*> spans;
    for (const program::Span& span : trace.spans)
      if (span.rank == row.rank && name_of(span.lane) == row.lane) spans.push_back(&span);
    std::ranges::stable_sort(spans, {}, &program::Span::start_s);
    const std::vector<std::uint64_t> numbers = unpacked(row.packed);
    REQUIRE(numbers.size() == 5 * spans.size());
    REQUIRE(row.bars == static_cast<int>(spans.size()));
    std::int64_t microbatch = 0, layer = 0, start = 0;
    for (std::size_t i = 0; i < spans.size(); ++i) {
      const program::Span& span = *spans[i];
      const BarOperation& operation = packed.operations[numbers[5 * i]];
      CHECK(operation.name == span.name);
      CHECK(operation.bytes == span.bytes);
      CHECK(operation.group == span.group);
      CHECK((microbatch += unzigzag(numbers[5 * i + 1])) == span.microbatch.value_or(-1));
      CHECK((layer += unzigzag(numbers[5 * i + 2])) == span.layer.value_or(-1));
      start += unzigzag(numbers[5 * i + 3]);
      CHECK(static_cast<double>(start) * 1e-9 == Approx(span.start_s).margin(1e-9));
      CHECK(static_cast<double>(numbers[5 * i + 4]) * 1e-9 ==
            Approx(span.end_s - span.start_s).margin(2e-9));
    }
    bars += spans.size();
  }
  CHECK(bars == trace.spans.size());
}

TEST_CASE("a page holds what simulate and explain say", "[reports][page]") {
  const program::Plan plan = small_pipeline();
  const Page page = page_of(plan, small_gpus(), {});
  const PageJson json = json_of(page);
  const double step = simulation_report(plan, small_gpus(), {.simulation = {.record_spans = false}})
                          .simulation.step_time_s;
  CHECK(json.simulation.value["step_time_s"] == step);
  CHECK(std::accumulate(json.parts.begin(), json.parts.end(), 0.0,
                        [](double sum, const auto& p) { return sum + p.seconds; }) == Approx(step));
  CHECK(json.title == "tiny-llama on dgx-h100");
  CHECK(json.mesh.coordinates.size() == 8);
  CHECK(json.memory.stages.size() == 2);
  REQUIRE(json.timelines.size() == 1);
  CHECK(json.timelines[0].microbatches == 8);
  CHECK(json.timelines[0].note.empty());
  CHECK_FALSE(json.comparison);
  CHECK_FALSE(json.search);
  // What is exposed on links is what the breakdown says.
  double exposed = 0, of_breakdown = 0;
  for (const TrafficJson& row : json.traffic) exposed += row.exposed_s;
  const sim::Breakdown mean = sim::mean_of(page.simulation.simulation.breakdown);
  for (const sim::Category category : {sim::Category::Tp, sim::Category::Sp, sim::Category::Cp,
                                       sim::Category::Ep, sim::Category::Pp, sim::Category::Dp})
    of_breakdown += mean[category];
  CHECK(exposed == Approx(of_breakdown));
}

TEST_CASE("the page's JSON is read by its own declaration, strictly", "[reports][page]") {
  Page page = page_of(small_pipeline(), small_gpus(), {}, run_of(small_pipeline()));
  page.search = PageSearch{.outcome = planner::InfeasibleResult{},
                           .cells = {{.tp = 1, .pp = 2, .plan = {}, .reason = "too large"}}};
  const std::string text = page_json(page);
  CHECK_NOTHROW(read_json<PageJson>(text, "page"));
  std::string wrong = text;
  wrong.replace(wrong.find("\"verdict\""), 9, "\"verdikt\"");
  CHECK_THROWS_WITH(read_json<PageJson>(wrong, "page"), Contains("verdikt") && Contains("verdict"));
  CHECK_THAT(page_schema(), Contains("\"rule_of_thumb\""));
}

TEST_CASE("no name ends the script that holds the page's data", "[reports][page]") {
  program::Plan plan = small_pipeline();
  const std::string ordinary = to_html(page_of(plan, small_gpus(), {}));
  plan.model.name = "</script><script>alert(1)</script><!--&<b>";
  sim::Cluster gpus = small_gpus();
  gpus.name = plan.model.name + "\xe2\x80\xa8\xe2\x80\xa9";  // which no reader lets through
  const std::string hostile = to_html(page_of(plan, gpus, {}));
  for (const char* tag : {"<script", "</script", "<b>", "<!--"})
    CHECK(occurrences(hostile, tag) == occurrences(ordinary, tag));
  const std::string data = hostile.substr(hostile.find("id=\"data\""));
  for (const char* line_end : {"\xe2\x80\xa8", "\xe2\x80\xa9"})  // in JavaScript
    CHECK(occurrences(data, line_end) == 0);
  CHECK_THAT(hostile, Contains("\\u003c/script\\u003e") && Contains("\\u2028\\u2029"));
}

TEST_CASE("the page without its data is plain ASCII and small", "[reports][page]") {
  const std::string html = to_html(page_of(small_pipeline(), small_gpus(), {.most_bars = 0}));
  CHECK(html.size() < 300'000);
  CHECK(std::ranges::all_of(html, [](char c) { return static_cast<unsigned char>(c) < 0x80; }));
  CHECK_THAT(html, Contains("<!doctype html>") && Contains("</html>"));
  CHECK(occurrences(html, "/*STYLES*/") + occurrences(html, "/*SCRIPTS*/") +
            occurrences(html, "<!--DATA-->") + occurrences(html, "<!--TEXT-->") ==
        0);
}

TEST_CASE("a step of too many operations is shown in part, or not", "[reports][page]") {
  program::Plan plan = small_pipeline();
  plan.workload.global_batch_size = 256;  // 128 micro-batches
  const Page whole = page_of(plan, small_gpus(), {});
  const auto all = std::ssize(whole.predicted.trace.spans);
  const Page part = page_of(plan, small_gpus(), {.most_bars = all / 4});
  CHECK(std::ssize(part.predicted.trace.spans) <= all / 4);
  CHECK(std::ssize(part.predicted.trace.spans) > all / 8);
  CHECK(part.predicted.microbatches < 128);
  CHECK_THAT(part.predicted.note, Contains("of the 128 micro-batches"));
  CHECK(part.simulation.simulation.step_time_s == whole.simulation.simulation.step_time_s);
  const Page none = page_of(plan, small_gpus(), {.most_bars = 10});
  CHECK(none.predicted.trace.spans.empty());
  CHECK(none.memory.empty());
  CHECK_THAT(none.predicted.note, Contains("No timeline"));
}

TEST_CASE("a run of the plan is laid beside it; any other is refused", "[reports][page]") {
  const program::Plan plan = small_pipeline();
  program::Trace trace = run_of(plan);
  const Page page = page_of(plan, small_gpus(), {}, trace);
  REQUIRE(page.comparison);
  CHECK(page.comparison->step_time_error == Approx(1 / 1.1 - 1));
  REQUIRE(page.measured);
  CHECK(page.measured->trace.spans.size() == trace.spans.size());
  CHECK_NOTHROW(require_run_of(plan, "plan.json", trace, "trace.json"));

  trace.plan.workload.global_batch_size = 32;
  CHECK_THROWS_WITH(require_run_of(plan, "plan.json", trace, "trace.json"),
                    Contains("trace.json: plan.workload.global_batch_size: 32, expected 16 as in "
                             "plan.json"));
  trace = run_of(plan);
  trace.measured = false;
  CHECK_THROWS_WITH(require_run_of(plan, "plan.json", trace, "trace.json"),
                    Contains("trace.json: measured: false, expected true"));
}

TEST_CASE("of a long run the page shows as many operations as it may", "[reports][page]") {
  const program::Plan plan = small_pipeline();
  program::Trace trace = run_of(plan);
  const std::size_t of_a_step = trace.spans.size();
  for (std::size_t i = 0; i < of_a_step; ++i) {
    program::Span span = trace.spans[i];
    span.step = 7;
    trace.spans.push_back(span);
  }
  const Page page = page_of(plan, small_gpus(), {}, trace);
  CHECK(page.measured->trace.spans.size() == of_a_step);
  CHECK_THAT(page.measured->note, Contains("first traced step"));
}

TEST_CASE("a plan is said in words", "[reports][page]") {
  program::Plan plan = small_pipeline();
  plan.zero_stage = 1;
  plan.recompute.kind = program::RecomputeKind::Full;
  std::string words;
  for (const std::string& sentence : plan_in_words(plan)) words += sentence + "\n";
  CHECK_THAT(words, Contains("8 ranks: 2 cut each layer's matrices") &&
                        Contains("2 stages share the layers") && Contains("8 micro-batches") &&
                        Contains("full recompute") && Contains("ZeRO-1"));
  plan.parallel = {};
  CHECK_THAT(plan_in_words(plan).front(), Contains("1 rank holds the whole model"));
  CHECK_THAT(plan_in_words(plan)[1], !Contains("run beside backwards"));
  plan.schedule = program::ScheduleKind::OverlappedOneFOneB;
  CHECK_THAT(plan_in_words(plan)[1], Contains("Forwards run beside backwards"));
}

}  // namespace meshplan::reports
