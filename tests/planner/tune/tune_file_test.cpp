#include "planner/tune/tune_file.hpp"

#include <catch2/catch.hpp>

#include "core/error.hpp"
#include "planner/tune/tuned_world.hpp"

namespace meshplan::planner {
namespace {

TuneFile measured_file() {
  TuneFile file{
      .request = {{"model", "small"}, {"gpus", "2"}}, .seconds_used = 12.5, .candidates = {}};
  for (int i = 0; i < 3; ++i) file.candidates.push_back(predicted_to_take(1 + i, i));
  file.candidates[0].rounds = {
      {.turn = 0,
       .step_times_s = {0.5, 0.25},
       .machine = program::MachineSpeed{.reference_s = 0.001, .cores = 2, .ranks_on_host = 2}},
      {.turn = 1, .step_times_s = {0.125}}};
  file.candidates[1].failure = "out of memory";
  file.candidates[2].rebalanced_from = 0;
  return file;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const auto place = text.find(from);
  REQUIRE(place != std::string::npos);
  return text.replace(place, from.size(), to);
}

}  // namespace

TEST_CASE("what a folder keeps is what is read again", "[planner][tune]") {
  const TuneFile file = measured_file();
  const TuneFile read = parse_tune_file(to_json(file), "tune.json");
  CHECK(read.request == file.request);
  CHECK(read.seconds_used == file.seconds_used);
  REQUIRE(read.candidates.size() == 3);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(read.candidates[i].rounds == file.candidates[i].rounds);
    CHECK(read.candidates[i].failure == file.candidates[i].failure);
    CHECK(read.candidates[i].rebalanced_from == file.candidates[i].rebalanced_from);
    CHECK(runs_the_same(read.candidates[i].plan, file.candidates[i].plan));
  }
  CHECK(to_json(read) == to_json(parse_tune_file(to_json(read), "again")));
}

TEST_CASE("a broken file is refused by path and value", "[planner][tune]") {
  const std::string good = to_json(measured_file());
  CHECK_THROWS_WITH(parse_tune_file(replaced(good, "\"turn\": 1", "\"tern\": 1"), "t.json"),
                    Catch::Contains("candidates[0].rounds[1]") && Catch::Contains("turn"));
  CHECK_THROWS_WITH(parse_tune_file(replaced(good, "0.125", "-0.125"), "t.json"),
                    Catch::Contains("rounds[1].step_times_s[0]") && Catch::Contains("-0.125"));
  CHECK_THROWS_WITH(
      parse_tune_file(replaced(good, "\"rebalanced_from\": 0", "\"rebalanced_from\": 2"), "t.json"),
      Catch::Contains("candidates[2].rebalanced_from: 2"));
  CHECK_THROWS_WITH(
      parse_tune_file(replaced(good, "\"schema_version\": 1", "\"schema_version\": 9"), "t.json"),
      Catch::Contains("schema_version"));
  CHECK_THROWS_AS(parse_tune_file("{", "t.json"), ConfigError);
}

TEST_CASE("another request is refused by what differs", "[planner][tune]") {
  const TuneFile file = measured_file();
  CHECK_NOTHROW(require_same_request(file, file.request, "t.json"));
  CHECK_THROWS_WITH(
      require_same_request(file, {{"model", "small"}, {"gpus", "4"}, {"tp", "2"}}, "t.json"),
      Catch::Contains("request.gpus: '2' there, '4' asked for") &&
          Catch::Contains("request.tp: '' there, '2' asked for") && !Catch::Contains("model:"));
}

TEST_CASE("an even division is the same plan, written out or not", "[planner][tune]") {
  program::Plan even = predicted_to_take(1, 0).plan;
  even.parallel.pp = 2;
  program::Plan written = even, uneven = even;
  written.layers_per_stage = {6, 6};
  uneven.layers_per_stage = {7, 5};
  CHECK(runs_the_same(even, written));
  CHECK_FALSE(runs_the_same(even, uneven));
}

}  // namespace meshplan::planner
