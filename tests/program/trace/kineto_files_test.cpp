// What readers of PyTorch's profiles rely on, by the source of HolisticTraceAnalysis (hta/common,
// hta/analyzers): kernels joined with their launches by `correlation`, streams on which nothing
// overlaps, names that tell communication and copies, steps that hold their kernels.
#include "program/trace/kineto_files.hpp"

#include <catch2/catch.hpp>
#include <map>
#include <nlohmann/json.hpp>

namespace meshplan::program {
namespace {

using nlohmann::ordered_json;

Span drawn(int rank, Lane lane, const char* name, const char* group, double start_s, double end_s,
           int step = 0) {
  return {.rank = rank,
          .step = step,
          .lane = lane,
          .name = name,
          .group = group,
          .start_s = start_s,
          .end_s = end_s};
}

/// Two ranks; two sums of one lane are in flight at once.
Trace two_ranks(int steps) {
  Trace trace{.world_size = 2, .spans = {}};
  for (int rank = 0; rank < 2; ++rank)
    for (int step = 0; step < steps; ++step) {
      trace.spans.push_back(drawn(rank, Lane::Compute, "qkv", "", -0.125, 0.5, step));
      trace.spans.push_back(drawn(rank, Lane::Dp, "sum", "dp-cp", 0.25, 1, step));
      trace.spans.push_back(drawn(rank, Lane::Dp, "sum2", "dp-cp", 0.5, 1.5, step));
      trace.spans.push_back(drawn(rank, Lane::ToHost, "copy", "", 0.5, 0.75, step));
    }
  return trace;
}

std::vector<ordered_json> of_category(const std::string& text, const std::string& category) {
  const ordered_json root = ordered_json::parse(text);
  std::vector<ordered_json> events;
  for (const ordered_json& event : root.at("traceEvents"))
    if (event.at("cat") == category) events.push_back(event);
  return events;
}

double start_of(const ordered_json& event) {
  return event.at("ts").get<double>();
}
double end_of(const ordered_json& event) {
  return start_of(event) + event.at("dur").get<double>();
}

}  // namespace

TEST_CASE("profiles are as their readers want them", "[trace][kineto]") {
  for (const int steps : {1, 3}) {
    const std::vector<KinetoFile> files = to_kineto_files(two_ranks(steps));
    REQUIRE(files.size() == 2);
    const int written = std::max(2, steps);  // a single one twice
    for (const auto& [rank, text] : files) {
      INFO(steps << " steps, rank " << rank);
      CHECK(text.find("\"rank\": " + std::to_string(rank)) != std::string::npos);
      CHECK(ordered_json::parse(text).at("distributedInfo").at("world_size") == 2);
      const auto profiled = of_category(text, "user_annotation");
      REQUIRE(static_cast<int>(profiled.size()) == written);
      CHECK(profiled.front().at("name") == "ProfilerStep#1");
      std::map<int, ordered_json> launches;
      for (const ordered_json& launch : of_category(text, "cuda_runtime"))
        CHECK(launches.emplace(launch.at("args").at("correlation").get<int>(), launch).second);
      auto kernels = of_category(text, "kernel");
      CHECK(static_cast<int>(kernels.size()) == 3 * written);
      const auto copies = of_category(text, "gpu_memcpy");
      CHECK(static_cast<int>(copies.size()) == written);
      for (const ordered_json& copy : copies)
        CHECK(copy.at("name").get<std::string>().starts_with("Memcpy DtoH"));
      kernels.insert(kernels.end(), copies.begin(), copies.end());
      CHECK(launches.size() == kernels.size());
      std::map<int, std::vector<ordered_json>> streams;
      for (const ordered_json& kernel : kernels) {
        CHECK(start_of(kernel) >= 0);
        const bool sums = kernel.at("args").contains("group");
        CHECK(kernel.at("name").get<std::string>().starts_with("nccl") == sums);
        CHECK(start_of(launches.at(kernel.at("args").at("correlation"))) <= start_of(kernel));
        CHECK(std::ranges::any_of(profiled, [&](const ordered_json& step) {
          return start_of(step) <= start_of(kernel) && end_of(kernel) <= end_of(step);
        }));
        streams[kernel.at("args").at("stream").get<int>()].push_back(kernel);
      }
      CHECK(streams.size() == 4);  // the sums overlap
      for (auto& [stream, of_stream] : streams) {
        std::ranges::sort(of_stream, {}, start_of);
        for (std::size_t i = 1; i < of_stream.size(); ++i)
          CHECK(end_of(of_stream[i - 1]) <= start_of(of_stream[i]));
      }
    }
  }
}

}  // namespace meshplan::program
