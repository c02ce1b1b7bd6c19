#include "program/schedule/schedule.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <random>
#include <tuple>

#include "core/error.hpp"
#include "program/schedule/csv.hpp"
#include "program/schedule/generators.hpp"
#include "schedule/zero_bubble.hpp"

namespace meshplan::program {
namespace {

std::string text_of(const Task& task, bool with_chunk) {
  const char* letter = task.kind == TaskKind::Forward         ? "F"
                       : task.kind == TaskKind::BackwardFull  ? "B"
                       : task.kind == TaskKind::BackwardInput ? "I"
                                                              : "W";
  return letter + std::to_string(task.microbatch) +
         (with_chunk ? std::string(1, static_cast<char>('a' + task.chunk)) : "");
}

/// "F0 F1 B0": one stage, or the order of one stage. With chunks: "F0a F0b", overlapped "F1a+B0b".
std::string text_of(const std::vector<Task>& tasks, bool with_chunk = false) {
  std::string text;
  for (const Task& task : tasks) {
    const TaskParts parts = parts_of(task);
    text += (text.empty() ? "" : " ") + text_of(parts.front(), with_chunk);
    if (parts.size() > 1) text += "+" + text_of(parts.back(), with_chunk);
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

/// Slots that a task of a whole rank takes; each of `vpp` chunks takes its part.
struct Durations {
  int forward = 1;
  int input = 1;
  int weight = 1;
};

/// Slots from the first begin to the last end over all stages, when messages take nothing. Written
/// apart from the validator: a table of end times by (what, virtual stage, micro-batch).
int makespan(const Schedule& schedule, const Durations& takes = {}) {
  std::map<std::tuple<char, int, int>, int> ends;  // F: forward, I: input gradient
  std::vector<std::size_t> next(schedule.tasks.size(), 0);
  std::vector<int> clock(schedule.tasks.size(), 0);
  const int last = schedule.num_virtual_stages() - 1;
  for (bool progressed = true; progressed;) {
    progressed = false;
    for (std::size_t s = 0; s < schedule.tasks.size(); ++s)
      for (; next[s] < schedule.tasks[s].size(); ++next[s], progressed = true) {
        int ready = 0, length = 0;
        bool known = true;
        const auto parts = parts_of(schedule.tasks[s][next[s]]);
        const auto stage_of = [&](const Task& part) {
          return virtual_stage(schedule.placement, schedule.num_stages(),
                               {static_cast<int>(s), part.chunk});
        };
        for (const Task& part : parts) {
          const int v = stage_of(part);
          const bool is_forward = part.kind == TaskKind::Forward;
          const bool needs = is_forward ? v > 0 : gives_input_gradient(part);
          const auto source = is_forward  ? std::tuple('F', v - 1, part.microbatch)
                              : v == last ? std::tuple('F', v, part.microbatch)
                                          : std::tuple('I', v + 1, part.microbatch);
          known = known && (!needs || ends.contains(source));
          if (needs && known) ready = std::max(ready, ends[source]);
          length += is_forward ? takes.forward : 0;
          length += gives_input_gradient(part) ? takes.input : 0;
          length += gives_weight_gradient(part) ? takes.weight : 0;
        }
        if (!known) break;
        clock[s] = std::max(clock[s], ready) + length;
        for (const Task& part : parts) {
          if (part.kind == TaskKind::Forward)
            ends[{'F', stage_of(part), part.microbatch}] = clock[s];
          if (gives_input_gradient(part)) ends[{'I', stage_of(part), part.microbatch}] = clock[s];
        }
      }
  }
  return *std::ranges::max_element(clock);
}

bool mentions(const std::vector<std::string>& errors, const std::string& text) {
  return std::ranges::any_of(errors, [&](const auto& e) { return e.find(text) != e.npos; });
}

constexpr ScheduleKind kKinds[] = {ScheduleKind::GPipe, ScheduleKind::OneFOneB};

/// Every kind at every small size, with fewer micro-batches than stages too.
std::vector<std::pair<Schedule, int>> all_schedules() {
  std::vector<std::pair<Schedule, int>> all;
  for (int pp = 1; pp <= 6; ++pp)
    for (int m = 1; m <= 14; ++m) {
      for (const ScheduleKind kind :
           {ScheduleKind::GPipe, ScheduleKind::OneFOneB, ScheduleKind::ZbH1, ScheduleKind::ZbV,
            ScheduleKind::DualPipeV})
        all.emplace_back(make_schedule(kind, pp, m), m);
      for (const ScheduleKind kind : {ScheduleKind::Interleaved, ScheduleKind::OverlappedOneFOneB})
        for (int vpp = 1; vpp <= 4; ++vpp) all.emplace_back(make_schedule(kind, pp, m, vpp), m);
    }
  return all;
}

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
        CHECK(makespan(make_schedule(kind, pp, m)) == 3 * (m + pp - 1));
      }
}

TEST_CASE("Generated schedules are valid, with fewer micro-batches than stages too",
          "[program][schedule]") {
  for (const auto& [schedule, m] : all_schedules()) {
    CAPTURE(to_csv(schedule), m);
    CHECK(schedule_errors(schedule, m) == std::vector<std::string>{});
  }
}

TEST_CASE("What a generated schedule repeats three times it repeats any number of times",
          "[program][schedule]") {
  struct Generated {
    ScheduleKind kind;
    int chunks;
  };
  for (const auto& [kind, chunks] : {Generated{ScheduleKind::OneFOneB, 1},
                                     {ScheduleKind::Interleaved, 2},
                                     {ScheduleKind::Interleaved, 3},
                                     {ScheduleKind::OverlappedOneFOneB, 1},
                                     {ScheduleKind::OverlappedOneFOneB, 2},
                                     {ScheduleKind::ZbH1, 1},
                                     {ScheduleKind::ZbV, 2},
                                     {ScheduleKind::DualPipeV, 2}})
    for (int pp = 1; pp <= 4; ++pp) {
      int found = 0;
      for (int microbatches = 1; microbatches <= 4 * pp + 6; ++microbatches)
        for (int more = 1; more <= 2 * pp; ++more) {
          const Schedule own = make_schedule(kind, pp, microbatches, chunks);
          const auto longer = [&](int times) {
            return make_schedule(kind, pp, microbatches + times * more, chunks);
          };
          const std::vector<Schedule> few{longer(1), longer(2), longer(3)};
          const Schedule many = longer(11);
          for (int stage = 0; stage < pp; ++stage) {
            const std::vector<Task>& tasks = own.tasks[static_cast<std::size_t>(stage)];
            const auto repeats = [&](const Schedule& schedule, int first, int end) {
              return only_repeats(schedule.tasks[static_cast<std::size_t>(stage)], tasks, first,
                                  end, more);
            };
            const auto length = static_cast<int>(
                few[0].tasks[static_cast<std::size_t>(stage)].size() - tasks.size());
            for (int first = 0; first + length <= static_cast<int>(tasks.size()); ++first) {
              const int end = first + length;
              if (!std::ranges::all_of(few,
                                       [&](const Schedule& s) { return repeats(s, first, end); }))
                continue;
              ++found;
              CAPTURE(static_cast<int>(kind), pp, chunks, microbatches, more, stage, first, end);
              REQUIRE(repeats(many, first, end));
            }
          }
        }
      CHECK(found > 0);
    }
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

TEST_CASE("A schedule that is far too short is refused in little memory", "[program][schedule]") {
  const Schedule schedule = parse_schedule_csv("1000000F1000000", "mine.csv");
  const auto errors = schedule_errors(schedule, 1000001);
  REQUIRE(errors.size() == 1);
  CHECK_THAT(errors.front(), Catch::Contains("stage 0: 1 tasks, but 1000001 micro-batches of "
                                             "1000001 chunks need at least 1000002000001"));
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
  const auto errors = [](std::vector<Task> first, std::vector<Task> second) {
    return schedule_errors({.tasks = {std::move(first), std::move(second)}, .num_chunks = 2}, 1);
  };
  CHECK(errors(right, right) == std::vector<std::string>{});
  CHECK(mentions(errors({f(1), f(0), b(1), b(0)}, right), "stage 0 waits forever at its task 0"));
}

// ---------------------------------------------------------------- chunks and split backwards

TEST_CASE("Chunks are placed in a loop or a V", "[program][schedule]") {
  // Narayanan et al. 2021, section 2.2.2: device 1 has layers 1, 2, 9, 10. Qi et al. 2023,
  // section 6: the first and the last chunk are on the first device.
  for (int r = 0; r < 4; ++r) {
    CHECK(virtual_stage(ChunkPlacement::Loop, 4, {r, 1}) == 4 + r);
    CHECK(virtual_stage(ChunkPlacement::V, 4, {r, 0}) == r);
    CHECK(virtual_stage(ChunkPlacement::V, 4, {r, 1}) == 7 - r);
  }
  for (const auto placement : {ChunkPlacement::Loop, ChunkPlacement::V})
    for (int v = 0; v < 12; ++v) CHECK(virtual_stage(placement, 4, place_of(placement, 4, v)) == v);
}

TEST_CASE("Interleaved 1F1B of four stages and two chunks is the published table",
          "[program][schedule]") {
  // Narayanan et al. 2021, figure 4 (bottom): first and last row, read left to right.
  const Schedule schedule = interleaved(4, 8, 2);
  CHECK(text_of(schedule.tasks[0], true) ==
        "F0a F1a F2a F3a F0b F1b F2b F3b F4a F5a F6a B0b F7a B1b F4b B2b F5b B3b F6b B0a F7b B1a "
        "B2a B3a B4b B5b B6b B7b B4a B5a B6a B7a");
  CHECK(text_of(schedule.tasks[3], true) ==
        "F0a F1a F2a F3a F0b B0b F1b B1b F2b B2b F3b B3b F4a B0a F5a B1a F6a B2a F7a B3a F4b B4b "
        "F5b B5b F6b B6b F7b B7b B4a B5a B6a B7a");
}

TEST_CASE("Interleaving divides the bubble by the number of chunks", "[program][schedule]") {
  // Narayanan et al. 2021, section 2.2.2: (p - 1)(t_f + t_b) / v. A chunk's forward takes 1 slot
  // and its backward 2, so a rank's whole micro-batch takes 3 vpp.
  for (int pp = 1; pp <= 5; ++pp)
    for (int vpp = 1; vpp <= 4; ++vpp)
      for (int m = pp; m <= 4 * pp; m += pp) {
        CAPTURE(pp, vpp, m);
        CHECK(makespan(interleaved(pp, m, vpp)) == 3 * vpp * m + 3 * (pp - 1));
      }
}

TEST_CASE("A last group that is not whole costs no more than its empty places",
          "[program][schedule]") {
  // Between a pipeline of whole groups and one in which every missing micro-batch leaves its time
  // in all chunks but one idle.
  for (int pp = 2; pp <= 5; ++pp)
    for (int vpp = 2; vpp <= 4; ++vpp)
      for (int m = pp + 1; m <= 4 * pp; ++m) {
        CAPTURE(pp, vpp, m);
        const int bubble = makespan(interleaved(pp, m, vpp)) - 3 * vpp * m;
        const int missing = (pp - m % pp) % pp;
        CHECK(bubble >= 3 * (pp - 1));
        CHECK(bubble <= 3 * (pp - 1) + 3 * (vpp - 1) * missing);
      }
}

TEST_CASE("Interleaved 1F1B holds (vpp - 1) pp + 2 (pp - 1 - stage) + 1 chunks at most",
          "[program][schedule]") {
  // The warm-up of Narayanan et al. 2021, section 2.2.2, and the forward after it; in all 1 +
  // (pp - 1) / (pp vpp) times what 1F1B holds on the first stage (Korthikanti et al. 2022,
  // section 4.2.3).
  for (int pp = 2; pp <= 5; ++pp)
    for (int vpp = 2; vpp <= 4; ++vpp)
      for (int stage = 0; stage < pp; ++stage) {
        CAPTURE(pp, vpp, stage);
        const Schedule schedule = interleaved(pp, 4 * pp, vpp);
        CHECK(max_in_flight(schedule, stage) == (vpp - 1) * pp + 2 * (pp - 1 - stage) + 1);
        CHECK(max_in_flight(schedule, 0) == pp * vpp + pp - 1);
      }
}

TEST_CASE("1F1B in pairs is the order worked out by hand", "[program][schedule]") {
  const Schedule alone = overlapped_one_f_one_b(1, 3, 1);
  CHECK(text_of(alone.tasks[0]) == "F0 F1+B0 F2+B1 B2");
  const Schedule two = overlapped_one_f_one_b(2, 4, 1);
  CHECK(text_of(two.tasks[0]) == "F0 F1 F2 F3+B0 B1 B2 B3");
  CHECK(text_of(two.tasks[1]) == "F0 F1+B0 F2+B1 F3+B2 B3");
  const Schedule chunks = overlapped_one_f_one_b(2, 4, 2);
  CHECK(text_of(chunks.tasks[0], true) ==
        "F0a F1a F0b F1b F2a F3a+B0b F2b+B1b F3b+B0a B1a B2b B3b B2a B3a");
  CHECK(text_of(chunks.tasks[1], true) ==
        "F0a F1a F0b F1b+B0b F2a+B1b F3a+B0a F2b+B1a F3b+B2b B3b B2a B3a");
}

TEST_CASE("1F1B in pairs holds one chunk more than interleaved 1F1B, and twice 1F1B's",
          "[program][schedule]") {
  for (int pp = 1; pp <= 5; ++pp)
    for (int vpp = 1; vpp <= 4; ++vpp)
      for (int stage = 0; stage < pp; ++stage) {
        CAPTURE(pp, vpp, stage);
        const Schedule schedule = overlapped_one_f_one_b(pp, 4 * pp, vpp);
        const int held = max_in_flight(schedule, stage);
        CHECK(held == (vpp - 1) * pp + 2 * (pp - 1 - stage) + 2);
        if (vpp > 1) CHECK(held == max_in_flight(interleaved(pp, 4 * pp, vpp), stage) + 1);
        if (vpp == 1) CHECK(held == 2 * max_in_flight(one_f_one_b(pp, 4 * pp), stage));
      }
}

TEST_CASE("1F1B in pairs has the bubble of interleaved 1F1B where pairs save nothing",
          "[program][schedule]") {
  for (int pp = 1; pp <= 5; ++pp)
    for (int vpp = 1; vpp <= 4; ++vpp)
      for (int m = 2 * pp; m <= 4 * pp; m += pp) {
        CAPTURE(pp, vpp, m);
        CHECK(makespan(overlapped_one_f_one_b(pp, m, vpp)) == 3 * vpp * m + 3 * (pp - 1));
      }
}

TEST_CASE("ZB-H1 of four stages puts weight gradients off by the stage's number",
          "[program][schedule]") {
  // Qi et al. 2023, figure 3 (top): the first and the last row.
  const Schedule schedule = zb_h1(4, 6);
  CHECK(text_of(schedule.tasks[0]) == "F0 F1 F2 F3 I0 W0 F4 I1 W1 F5 I2 W2 I3 W3 I4 W4 I5 W5");
  CHECK(text_of(schedule.tasks[3]) == "F0 I0 F1 I1 F2 I2 F3 I3 W0 F4 I4 W1 F5 I5 W2 W3 W4 W5");
}

TEST_CASE("ZB-H1 has a bubble of (pp - 1)(F + B - W) and 1F1B's memory", "[program][schedule]") {
  // Qi et al. 2023, table 2 (B: input gradient). W as long as F or B; a longer one cannot hide.
  for (int pp = 2; pp <= 6; ++pp)
    for (int m = 2 * pp; m <= 3 * pp; ++m) {
      CAPTURE(pp, m);
      CHECK(makespan(zb_h1(pp, m)) == 3 * m + (pp - 1) * (1 + 1 - 1));
      for (int stage = 0; stage < pp; ++stage) CHECK(max_in_flight(zb_h1(pp, m), stage) <= pp);
    }
  CHECK(makespan(zb_h1(4, 12), {.forward = 2, .input = 2, .weight = 1}) ==
        5 * 12 + 3 * (2 + 2 - 1));
}

TEST_CASE("ZB-V of two stages is the order worked out by hand", "[program][schedule]") {
  const Schedule schedule = zb_v(2, 4);
  CHECK(text_of(schedule.tasks[0], true) ==
        "F0a F1a F2a F0b I0b W0b F1b I1b W1b F3a I0a W0a F2b I2b W2b I1a W1a F3b I3b W3b I2a W2a "
        "I3a W3a");
  CHECK(text_of(schedule.tasks[1], true) ==
        "F0a F0b F1a F1b I0b W0b F2a I0a W0a F2b I1b W1b F3a I1a W1a F3b I2b W2b I2a I3b I3a W2a "
        "W3b W3a");
}

TEST_CASE("ZB-V has no bubble inside and at most 2 pp chunks in flight", "[program][schedule]") {
  // Qi et al. 2023, section 6: with F = B = W the pipeline is full, but for the pp - 1 slots in
  // which it fills; a rank holds what 1F1B's first one does, p micro-batches = 2 p chunks.
  for (int pp = 2; pp <= 6; ++pp)
    for (int m = 2 * pp; m <= 3 * pp; ++m) {
      CAPTURE(pp, m);
      CHECK(makespan(zb_v(pp, m)) == 6 * m + pp - 1);
      for (int stage = 0; stage < pp; ++stage) CHECK(max_in_flight(zb_v(pp, m), stage) <= 2 * pp);
    }
}

TEST_CASE("DualPipe-V overlaps forwards with backwards in its steady state",
          "[program][schedule]") {
  // DualPipe's repository, dualpipev.py, steps 1 to 8 for two ranks and five micro-batches.
  const Schedule schedule = dualpipe_v(2, 5);
  CHECK(text_of(schedule.tasks[0], true) ==
        "F0a F1a F2a F0b I0b W0b F1b F3a+B1b F2b+B0a F4a+B2b F3b+B1a B3b F4b+B2a B4b I3a W3a I4a "
        "W4a");
  CHECK(text_of(schedule.tasks[1], true) ==
        "F0a F0b F1a F1b F2a B0b F2b+B0a F3a+B1b F3b+B1a F4a+B2b F4b+B2a B3b B3a I4b I4a W4b W4a");
}

TEST_CASE("DualPipe-V's bubble is that of its repository's table", "[program][schedule]") {
  // README of DualPipe: (PP / 2 - 1)(F&B + B - 3 W) and PP + 1 activations on PP / 2 devices. Here
  // pp devices and F = I = W = 1, so B = 2 and an overlapped pair takes 3.
  for (int pp = 2; pp <= 6; ++pp)
    for (int m = 2 * pp; m <= 3 * pp; ++m) {
      CAPTURE(pp, m);
      CHECK(makespan(dualpipe_v(pp, m)) == 6 * m + (pp - 1) * (3 + 2 - 3));
      for (int stage = 0; stage < pp; ++stage)
        CHECK(max_in_flight(dualpipe_v(pp, m), stage) <= 2 * pp + 1);
    }
}

TEST_CASE("The validator rejects every schedule with one task dropped, doubled or moved",
          "[program][schedule]") {
  std::mt19937 random(7);  // NOLINT: the same mutations every time
  int moved = 0, rejected = 0;
  for (const auto& [valid, m] : all_schedules()) {
    if (valid.num_stages() < 2 || m % 5 != 0) continue;
    const auto pick = [&](std::size_t size) {
      return static_cast<std::ptrdiff_t>(
          std::uniform_int_distribution<std::size_t>(0, size - 1)(random));
    };
    Schedule broken = valid;
    auto& tasks = broken.tasks[static_cast<std::size_t>(pick(valid.tasks.size()))];
    const std::ptrdiff_t place = pick(tasks.size());
    tasks.erase(tasks.begin() + place);
    CHECK_FALSE(schedule_errors(broken, m).empty());

    broken = valid;
    auto& doubled = broken.tasks[static_cast<std::size_t>(pick(valid.tasks.size()))];
    doubled.push_back(doubled[static_cast<std::size_t>(pick(doubled.size()))]);
    CHECK_FALSE(schedule_errors(broken, m).empty());

    // A last backward put first has no forward behind it.
    broken = valid;
    auto& rotated = broken.tasks.front();
    std::ranges::rotate(rotated, rotated.end() - 1);
    ++moved;
    rejected += schedule_errors(broken, m).empty() ? 0 : 1;
  }
  CHECK(moved > 50);
  CHECK(rejected == moved);
}

// ---------------------------------------------------------------- CSV

TEST_CASE("A schedule is written in PyTorch's form", "[program][schedule]") {
  CHECK(to_csv(one_f_one_b(2, 2)) == "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
  CHECK(to_csv(zb_v(1, 1)) == "0F0,1F0,1I0,1W0,0I0,0W0\n");
  const std::string dual = to_csv(dualpipe_v(2, 5));
  CHECK(dual.find("(0F3;3B1)OVERLAP_F_B,(3F2;0B0)OVERLAP_F_B") != dual.npos);
}

TEST_CASE("Every schedule survives a round trip through CSV", "[program][schedule]") {
  for (const auto& [schedule, m] : all_schedules()) {
    if (schedule.num_stages() == 1 && schedule.placement == ChunkPlacement::V) continue;  // a loop
    CHECK(parse_schedule_csv(to_csv(schedule), "schedule.csv") == schedule);
  }
}

TEST_CASE("Idle cells and PyTorch's communication actions are skipped", "[program][schedule]") {
  const std::string text =
      "0UNSHARD,0F0,0SEND_F0,0F1,,0RECV_B0,0B0,0B1,0REDUCE_GRAD\r\n"
      ", 1F0 ,1B0,1F1,1B1,0RESHARD\n\n";
  CHECK(parse_schedule_csv(text, "x.csv") == one_f_one_b(2, 2));
}

TEST_CASE("A bad cell is named with its line and place", "[program][schedule]") {
  const auto expect = [](const std::string& text, const std::string& part) {
    CHECK_THROWS_WITH(parse_schedule_csv(text, "x.csv"), Catch::Contains(part));
    CHECK_THROWS_AS(parse_schedule_csv(text, "x.csv"), ConfigError);
  };
  expect("0F0,0X0\n", "x.csv: line 1, cell 2: '0X0' is not a stage, one of F, B, I or W");
  expect("0F0\n1F0,1F\n", "line 2, cell 2: '1F'");
  expect("F0\n", "line 1, cell 1: 'F0'");
  expect("0F99999999999\n", "'0F99999999999'");
  expect("0F0,(0F1;0F0)OVERLAP_F_B\n", "does not overlap one forward with one full backward");
  expect("(0F1;0B0)OVERLAP\n", "is not a forward with a backward");
  expect("(0F1;0B0\n", "is not a forward with a backward");
  expect(" \n", "no line holds a task");
  expect("0F0,1F0\n2F0\n", "rank 0 runs virtual stage 1");
}

}  // namespace meshplan::program
