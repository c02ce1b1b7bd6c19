#include "sim/engine/engine.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <optional>
#include <vector>

#include "core/error.hpp"
#include "core/index.hpp"
#include "engine/layer_passes.hpp"
#include "engine/player.hpp"
#include "program/cost/cost.hpp"
#include "program/operation_numbers.hpp"
#include "program/schedule/generators.hpp"
#include "sim/engine/memory.hpp"
#include "sim/prices/pricing.hpp"

namespace meshplan::sim {
namespace {

using program::Program;
using program::Span;

void check_input(const std::vector<Program>& stages, const Cluster& cluster) {
  require_invariant(!stages.empty(), "a simulation needs at least one program");
  const auto& parallel = stages.front().plan.parallel;
  if (static_cast<int>(stages.size()) != parallel.pp)
    throw InvariantError(fmt::format("{} programs for pp = {}", stages.size(), parallel.pp));
  if (parallel.world_size() != cluster.num_ranks())
    throw ConfigError(
        fmt::format("the plan ({}) has {} ranks, but cluster '{}' has {} ({} nodes x {})",
                    to_string(parallel), parallel.world_size(), cluster.name, cluster.num_ranks(),
                    cluster.num_nodes, cluster.devices_per_node));
  for (const Program& program : stages)
    require_invariant(!program.instances.empty(), "a program has operations");
}

/// Times of the last step, from when the one before ended.
class LastStep {
 public:
  LastStep(const Play& play, const Outcome& outcome, const program::Mesh& mesh)
      : play_(play), outcome_(outcome), mesh_(mesh) {
    const auto& ends = outcome.step_ends;
    if (ends.size() > 1) begin_ = ends[ends.size() - 2];
  }

  std::vector<Span> spans() const {
    std::vector<Span> spans;
    spans.reserve(outcome_.last.start.size());
    for (std::size_t r = 0; r < play_.ranks.size(); ++r) {
      const Program& program = program_of(r);
      for (std::size_t i = 0; i < program.instances.size(); ++i) {
        Span span = program::make_span(program, program.instances[i], mesh_, play_.ranks[r].rank);
        span.start_s = start(r, i);
        span.end_s = end(r, i);
        spans.push_back(std::move(span));
      }
    }
    return spans;
  }

  /// A part of the step that does to some micro-batches what was done to as many before.
  struct Window {
    double begin = 0;
    double end = 0;
    int microbatches = 0;
    double seconds() const { return end - begin; }
  };

  /// The shortest such part, near the end: at its end every lane of every rank is where it was at
  /// its begin, so many micro-batches on. What follows from equal states is equal, so further ones
  /// would only repeat it. Ranks that wait for each other in a ring of n come round after up to n
  /// micro-batches (Baccelli et al., "Synchronization and Linearity", 1992, section 3.7).
  std::optional<Window> repeating(const Repetition& wanted) const {
    const int period = wanted.period;
    const std::vector<double> begins = begins_of_microbatches();
    const int groups = static_cast<int>(begins.size()) / period;  // a last one may not be whole
    for (int length = 1; 2 * length < groups; ++length)
      for (int last = groups - 1; last > length; --last) {
        const Window window{begins[at((last - length) * period)], begins[at(last * period)],
                            length * period};
        if (!(window.end > window.begin) || !repeats(window)) continue;
        if (repeated_in_schedule(window, *wanted.plan)) return window;
      }
    return std::nullopt;
  }

  /// @param period  of the step's operations
  /// @param besides  seconds that the step takes besides them: nothing is in progress meanwhile
  /// @param repeated  what is added to it, so many times
  std::vector<RankBreakdown> breakdown(double period, double besides, const Window& repeated,
                                       int times) const {
    const std::vector<double> ready = all_arrived();
    std::vector<RankBreakdown> ranks;
    for (std::size_t r = 0; r < play_.ranks.size(); ++r) {
      const Program& program = program_of(r);
      const SimulatedRank& rank = play_.ranks[r];
      const bool pipeline = mesh_.config().pp > 1;
      const program::OperationNumbers numbers(program);
      std::vector<std::optional<SpanKind>> kinds(at(numbers.count()));  // by operation
      RankSpans spans;
      spans.reserve(program.instances.size());
      for (std::size_t i = 0; i < program.instances.size(); ++i) {
        const program::OperationInstance& instance = program.instances[i];
        if (instance.operation.pass) {
          const Work& work = play_.works[at(rank.target[i])];
          for (const LayerPass::Piece& piece : play_.passes[at(*work.pass)].pieces)
            spans.add(piece.kind, start(r, i) + piece.start, start(r, i) + piece.end,
                      start(r, i) + piece.start, pipeline);
          continue;
        }
        std::optional<SpanKind>& kind = kinds[at(numbers.of(instance.operation))];
        if (!kind)
          kind = kind_of(program::make_span(program, instance, mesh_, rank.rank), mesh_.config());
        const int target = rank.target[i];
        const bool waits = kind->crosses_stages && target < 0;
        spans.add(*kind, start(r, i), end(r, i), waits ? ready[at(~target)] : start(r, i),
                  pipeline && instance.microbatch.has_value());
      }
      const double last = spans.last_end();
      ranks.push_back({.rank = rank.rank,
                       .stands_for = rank.stands_for,
                       .seconds = spans.seconds_between(last - period, last)});
      ranks.back().seconds[Category::Other] += besides;
      if (times == 0) continue;
      const Breakdown more = spans.seconds_between(repeated.begin, repeated.end);
      for (std::size_t c = 0; c < more.seconds.size(); ++c)
        ranks.back().seconds.seconds[c] += times * more.seconds[c];
    }
    return ranks;
  }

 private:
  const Program& program_of(std::size_t r) const {
    return *play_.stages[at(play_.ranks[r].stage)].program;
  }
  double start(std::size_t r, std::size_t i) const {
    return outcome_.last.start[outcome_.offset[r] + i] - begin_;
  }
  double end(std::size_t r, std::size_t i) const {
    return outcome_.last.end[outcome_.offset[r] + i] - begin_;
  }

  /// On the first stage.
  std::vector<double> begins_of_microbatches() const {
    const int all = play_.stages.front().program->plan.num_microbatches();
    std::vector<double> begins(at(all), -1);
    for (std::size_t r = 0; r < play_.ranks.size(); ++r) {
      if (play_.ranks[r].stage != 0) continue;
      const std::vector<program::OperationInstance>& instances = program_of(r).instances;
      for (std::size_t i = 0; i < instances.size(); ++i) {
        if (!instances[i].microbatch || !instances[i].layer) continue;
        double& begin = begins[at(*instances[i].microbatch)];
        if (begin < 0) begin = start(r, i);
      }
      break;
    }
    return begins;
  }

  bool repeats(const Window& window) const {
    for (std::size_t r = 0; r < play_.ranks.size(); ++r) {
      const auto& lanes = play_.stages[at(play_.ranks[r].stage)].lane_order;
      for (std::size_t lane = 0; lane < lanes.size(); ++lane)
        if (!repeats(r, lanes[lane], window) && !rests_in_passes(r, lanes[lane], lane, window))
          return false;
    }
    return true;
  }

  /// The task that a rank's computation is in, or before.
  int task_at(std::size_t r, double time) const {
    const auto& lane = play_.stages[at(play_.ranks[r].stage)].lane_order[kCompute];
    const auto head =
        std::ranges::partition_point(lane, [&](int i) { return end(r, at(i)) <= time; });
    return head == lane.end() ? -1 : program_of(r).instances[at(*head)].task.value_or(-1);
  }

  /// Has the schedule of more micro-batches, on every rank, the tasks up to the end of the window,
  /// then those of the window again and again, then the others? What is so a few times is so any
  /// number of times (schedule_test).
  bool repeated_in_schedule(const Window& window, const program::Plan& longer) const {
    constexpr int kTimes = 3;
    const int own = play_.stages.front().program->plan.num_microbatches();
    const int times =
        std::clamp((longer.num_microbatches() - own) / window.microbatches, 1, kTimes);
    const program::Schedule schedule =
        program::make_schedule(longer.schedule, longer.parallel.pp,
                               own + times * window.microbatches, longer.parallel.vpp);
    for (std::size_t r = 0; r < play_.ranks.size(); ++r)
      if (!program::only_repeats(schedule.tasks[at(play_.ranks[r].stage)], program_of(r).tasks,
                                 task_at(r, window.begin), task_at(r, window.end),
                                 window.microbatches))
        return false;
    return true;
  }

  /// Is a lane at the end of the window where it was at its begin?
  bool repeats(std::size_t r, const std::vector<int>& lane, const Window& window) const {
    const auto head = [&](double time) {
      return std::ranges::partition_point(lane, [&](int i) { return end(r, at(i)) <= time; });
    };
    const auto before = head(window.begin), after = head(window.end);
    if (before == lane.end() || after == lane.end()) return before == after;
    const program::OperationInstance& first = program_of(r).instances[at(*before)];
    const program::OperationInstance& second = program_of(r).instances[at(*after)];
    if (!first.microbatch)  // an operation of the step's end must not have begun
      return before == after && start(r, at(*after)) >= window.end;
    constexpr double kSameTime = 1e-9;
    const auto same = [&](double a, double b) {
      return std::abs((b - window.end) - (a - window.begin)) <= kSameTime * window.seconds();
    };
    return second.microbatch == *first.microbatch + window.microbatches &&
           second.chunk == first.chunk && second.layer == first.layer &&
           (!first.layer || second.operation == first.operation) &&
           same(start(r, at(*before)), start(r, at(*after))) &&
           same(end(r, at(*before)), end(r, at(*after)));
  }

  /// Are a lane's operations of the window parts of layers' passes? Then it is idle wherever one of
  /// these ends.
  bool rests_in_passes(std::size_t r, const std::vector<int>& lane, std::size_t which,
                       const Window& window) const {
    if (play_.passes.empty() || !program::exchanges_within_stage(static_cast<program::Lane>(which)))
      return false;
    const auto next =
        std::ranges::partition_point(lane, [&](int i) { return end(r, at(i)) <= window.begin; });
    return next == lane.end() || start(r, at(*next)) >= window.end;
  }

  /// When the last member of each meeting had arrived.
  std::vector<double> all_arrived() const {
    std::vector<double> ready;
    ready.reserve(play_.meetings.size());
    for (const Meeting& meeting : play_.meetings) {
      double last = -std::numeric_limits<double>::infinity();
      for (int m = 0; m < meeting.num_members; ++m) {
        const Member& member = play_.members[meeting.members_begin + at(m)];
        last = std::max(last, start(at(member.rank), at(member.instance)));
      }
      ready.push_back(last);
    }
    return ready;
  }

  const Play& play_;
  const Outcome& outcome_;
  const program::Mesh& mesh_;
  double begin_ = 0;
};

}  // namespace

SimulationResult simulate(const std::vector<Program>& stages, const Cluster& cluster,
                          const SimulationOptions& options) {
  check_input(stages, cluster);
  const program::Plan& plan = stages.front().plan;
  const program::Mesh mesh = program::mesh_of(plan);
  Play play = build_play(stages, cluster, mesh, options);
  if (!play.inseparable_passes.empty())
    return {.must_list = program::ListedOperations{.passes = play.inseparable_passes}};
  const Outcome outcome =
      (cluster.communication.needs_host ? make_host_player(play, cluster, options)
                                        : make_lane_player(play, cluster, options))
          ->run();  // what else the player holds is gone with it
  if (const std::optional<int> disturbed = last_disturbed_task(play, outcome))
    return {.must_list = program::ListedOperations{.first_tasks = *disturbed + 1},
            .events = outcome.events};
  const LastStep last(play, outcome, mesh);
  const auto& ends = outcome.step_ends;
  const double period = ends.size() > 1 ? ends.back() - ends[ends.size() - 2] : ends.back();
  const Repetition& wanted = options.repetition;
  const LastStep::Window window = outcome.periodic && wanted.plan
                                      ? last.repeating(wanted).value_or(LastStep::Window{})
                                      : LastStep::Window{};
  const int missing = wanted.plan ? wanted.plan->num_microbatches() - plan.num_microbatches() : 0;
  const bool adds = window.microbatches > 0 && missing % window.microbatches == 0;
  const int times = adds ? missing / window.microbatches : 0;
  const double extended = period + times * window.seconds();
  SimulationResult result{.step_time_s = with_step_effects(cluster, extended),
                          .periodic = outcome.periodic,
                          .folded = std::ssize(play.ranks) < mesh.world_size(),
                          .repeats = window.microbatches,
                          .added = times * window.microbatches,
                          .steps_played = static_cast<int>(ends.size()),
                          .events = outcome.events,
                          .trace = {},
                          .memory = memory_report(stages, cluster),
                          .breakdown = {}};
  result.trace.source = "simulated";
  result.trace.plan = plan;
  result.trace.world_size = mesh.world_size();
  result.trace.step_times_s = {result.step_time_s};
  result.trace.peak_memory_bytes = result.memory.peak_bytes;
  if (options.record_spans) result.trace.spans = last.spans();
  if (options.break_down)
    result.breakdown = last.breakdown(period, result.step_time_s - extended, window, times);
  return result;
}

}  // namespace meshplan::sim
