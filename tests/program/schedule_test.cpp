#include "program/schedule.hpp"

#include <algorithm>
#include <catch2/catch.hpp>

namespace meshplan::program {
namespace {

/// "F0 F1 B0": one stage, or the order of one stage.
std::string text_of(const std::vector<Task>& tasks) {
  std::string text;
  for (const Task& task : tasks) {
    const char* letter = task.kind == TaskKind::Forward         ? "F"
                         : task.kind == TaskKind::BackwardFull  ? "B"
                         : task.kind == TaskKind::BackwardInput ? "I"
                                                                : "W";
    text += (text.empty() ? "" : " ") + std::string(letter) + std::to_string(task.microbatch);
  }
  return text;
}

std::vector<Task> tasks_of(const std::string& text) {
  std::vector<Task> tasks;
  for (std::size_t i = 0; i < text.size(); i += 3) {
    const TaskKind kind = text[i] == 'F'   ? TaskKind::Forward
                          : text[i] == 'B' ? TaskKind::BackwardFull
                          : text[i] == 'I' ? TaskKind::BackwardInput
                                           : TaskKind::BackwardWeight;
    tasks.push_back({.kind = kind, .microbatch = text[i + 1] - '0'});
  }
  return tasks;
}

/// Slots until all stages are done, when a forward takes 1 and a backward 2 and messages nothing.
int makespan(const Schedule& schedule, int num_microbatches) {
  const auto stages = schedule.tasks.size();
  const auto microbatches = static_cast<std::size_t>(num_microbatches);
  constexpr int kUnknown = -1;
  std::vector<std::vector<int>> forward(stages, std::vector<int>(microbatches, kUnknown));
  auto backward = forward;
  std::vector<std::size_t> next(stages, 0);
  std::vector<int> clock(stages, 0);
  for (bool progressed = true; progressed;) {
    progressed = false;
    for (std::size_t s = 0; s < stages; ++s)
      for (; next[s] < schedule.tasks[s].size(); ++next[s], progressed = true) {
        const Task& task = schedule.tasks[s][next[s]];
        const auto m = static_cast<std::size_t>(task.microbatch);
        const bool is_forward = task.kind == TaskKind::Forward;
        int ready = 0;
        if (is_forward && s > 0) ready = forward[s - 1][m];
        if (!is_forward) ready = s + 1 < stages ? backward[s + 1][m] : forward[s][m];
        if (ready == kUnknown) break;
        clock[s] = std::max(clock[s], ready) + (is_forward ? 1 : 2);
        (is_forward ? forward : backward)[s][m] = clock[s];
      }
  }
  return *std::ranges::max_element(clock);
}

bool mentions(const std::vector<std::string>& errors, const std::string& text) {
  return std::ranges::any_of(errors, [&](const auto& e) { return e.find(text) != e.npos; });
}

constexpr ScheduleKind kKinds[] = {ScheduleKind::GPipe, ScheduleKind::OneFOneB};

}  // namespace

TEST_CASE("1F1B of four stages and eight micro-batches is the published table",
          "[program][schedule]") {
  // Narayanan et al. 2021, figure 4 (top), rows read left to right.
  const Schedule schedule = one_f_one_b(4, 8);
  CHECK(text_of(schedule.tasks[0]) == "F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 B5 B6 B7");
  CHECK(text_of(schedule.tasks[1]) == "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 F6 B4 F7 B5 B6 B7");
  CHECK(text_of(schedule.tasks[2]) == "F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 F6 B5 F7 B6 B7");
  CHECK(text_of(schedule.tasks[3]) == "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7");
}

TEST_CASE("GPipe runs all forwards before the first backward on every stage",
          "[program][schedule]") {
  for (const auto& tasks : gpipe(3, 4).tasks) CHECK(text_of(tasks) == "F0 F1 F2 F3 B0 B1 B2 B3");
}

TEST_CASE("1F1B holds min(m, pp - stage) micro-batches, GPipe all of them", "[program][schedule]") {
  for (int pp = 1; pp <= 6; ++pp)
    for (int m = 1; m <= 9; ++m)
      for (int stage = 0; stage < pp; ++stage) {
        CAPTURE(pp, m, stage);
        CHECK(max_in_flight(one_f_one_b(pp, m), stage) == std::min(m, pp - stage));
        CHECK(max_in_flight(gpipe(pp, m), stage) == m);
      }
}

TEST_CASE("1F1B warms up with min(m, pp - 1 - stage) forwards before it alternates",
          "[program][schedule]") {
  for (int pp = 1; pp <= 6; ++pp)
    for (int m = 1; m <= 9; ++m)
      for (int stage = 0; stage < pp; ++stage) {
        CAPTURE(pp, m, stage);
        const auto schedule = one_f_one_b(pp, m);
        const auto& tasks = schedule.tasks[static_cast<std::size_t>(stage)];
        const auto first = std::ranges::find(tasks, TaskKind::BackwardFull, &Task::kind);
        const auto forwards = static_cast<int>(first - tasks.begin());
        // With fewer micro-batches than stages nothing is left to alternate.
        CHECK(forwards == std::min(m, pp - 1 - stage) + (m > pp - 1 - stage ? 1 : 0));
      }
}

TEST_CASE("Both schedules have a bubble of (pp - 1) / m of the ideal time", "[program][schedule]") {
  // Narayanan et al. 2021, section 2.2.1: t_bubble = (p - 1)(t_f + t_b), t_ideal = m (t_f + t_b).
  for (const ScheduleKind kind : kKinds)
    for (int pp = 1; pp <= 5; ++pp)
      for (int m = pp; m <= 8; ++m) {
        CAPTURE(pp, m);
        CHECK(makespan(make_schedule(kind, pp, m), m) == 3 * (m + pp - 1));
      }
}

TEST_CASE("Generated schedules are valid, with fewer micro-batches than stages too",
          "[program][schedule]") {
  for (const ScheduleKind kind : kKinds)
    for (int pp = 1; pp <= 6; ++pp)
      for (int m = 1; m <= 9; ++m)
        CHECK(schedule_errors(make_schedule(kind, pp, m), m) == std::vector<std::string>{});
}

TEST_CASE("A missing or repeated task is reported with stage, micro-batch and count",
          "[program][schedule]") {
  Schedule missing = one_f_one_b(2, 3);
  missing.tasks[1].pop_back();
  CHECK(mentions(schedule_errors(missing, 3),
                 "stage 1: backward of micro-batch 2 (chunk 0) runs 0 times"));

  Schedule repeated = gpipe(2, 3);
  repeated.tasks[0].push_back({.kind = TaskKind::BackwardFull, .microbatch = 1});
  CHECK(mentions(schedule_errors(repeated, 3),
                 "stage 0: backward of micro-batch 1 (chunk 0) runs 2 times"));

  Schedule unforwarded = gpipe(1, 2);
  unforwarded.tasks[0].erase(unforwarded.tasks[0].begin());
  CHECK(
      mentions(schedule_errors(unforwarded, 2), "forward of micro-batch 0 (chunk 0) runs 0 times"));
}

TEST_CASE("A micro-batch or chunk that does not exist is reported", "[program][schedule]") {
  CHECK(mentions(schedule_errors({{tasks_of("F0 B0 F3 B3")}}, 2),
                 "micro-batch 3 of chunk 0 does not exist"));
  CHECK(
      mentions(schedule_errors({{{{.chunk = 1}}}}, 1), "micro-batch 0 of chunk 1 does not exist"));
}

TEST_CASE("A backward before its own forward is reported", "[program][schedule]") {
  CHECK(mentions(schedule_errors({{tasks_of("F0 B1 B0 F1")}}, 2),
                 "stage 0 waits forever at its task 1"));
}

TEST_CASE("A circular wait between stages is reported on every stage it stops",
          "[program][schedule]") {
  // Stage 0 wants micro-batch 0 back before it sends 1; stage 1 wants both before it gives any
  // back.
  const Schedule circular{{tasks_of("F0 B0 F1 B1"), tasks_of("F0 F1 B0 B1")}};
  const auto errors = schedule_errors(circular, 2);
  REQUIRE(errors.size() == 2);
  CHECK(mentions(errors, "stage 0 waits forever at its task 1 (micro-batch 0, chunk 0)"));
  CHECK(mentions(errors, "stage 1 waits forever at its task 1 (micro-batch 1, chunk 0)"));
}

TEST_CASE("A backward split into input and weight gradient is valid in this order only",
          "[program][schedule]") {
  CHECK(schedule_errors({{tasks_of("F0 F1 I0 I1 W0 W1")}}, 2) == std::vector<std::string>{});
  CHECK(mentions(schedule_errors({{tasks_of("F0 W0 I0")}}, 1), "waits forever at its task 1"));
  CHECK(max_in_flight({{tasks_of("F0 I0 F1 W0 I1 W1")}}, 0) ==
        2);  // held until its weight gradient
}

TEST_CASE("Interleaved chunks wait for the stage that holds the layers before them",
          "[program][schedule]") {
  // Two stages, two chunks: layers run over (0,0) (1,0) (0,1) (1,1).
  const auto f = [](int chunk) { return Task{.kind = TaskKind::Forward, .chunk = chunk}; };
  const auto b = [](int chunk) { return Task{.kind = TaskKind::BackwardFull, .chunk = chunk}; };
  const std::vector<Task> right = {f(0), f(1), b(1), b(0)};
  CHECK(schedule_errors({{right, right}}, 1, 2) == std::vector<std::string>{});
  CHECK(mentions(schedule_errors({{{f(1), f(0), b(1), b(0)}, right}}, 1, 2),
                 "stage 0 waits forever at its task 0"));
}

}  // namespace meshplan::program
