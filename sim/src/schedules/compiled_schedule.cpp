#include "schedules/compiled_schedule.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>

#include "core/error.hpp"
#include "core/index.hpp"

namespace meshplan::sim {
namespace {

using program::Task;
using program::TaskKind;

// Durations of a chunk, in the order of SolverChunk.
enum Duration { Forward, BackwardFirst, Backward, Input, WeightFirst, Weight };
constexpr int kDurations = 6;

// How a chunk's input comes from another stage; Here = it does not.
enum Delay { Here, ForwardSent, BackwardSent };
constexpr int kDelays = 3;

constexpr std::int32_t kNothing = 0;  // slot that is always 0
constexpr std::int32_t kNobody = 1;   // slot that nobody reads
constexpr std::int32_t kFirstSlot = 2;

Duration duration_of(TaskKind kind, bool first) {
  switch (kind) {
    case TaskKind::Forward:
      return Forward;
    case TaskKind::BackwardFull:
      return first ? BackwardFirst : Backward;
    case TaskKind::BackwardInput:
      return Input;
    case TaskKind::BackwardWeight:
      return first ? WeightFirst : Weight;
    case TaskKind::Overlapped:
      break;
  }
  throw InvariantError("overlapped tasks are not compiled");
}

}  // namespace

CompiledSchedule::CompiledSchedule(program::Schedule schedule) : schedule_(std::move(schedule)) {
  for (const auto& tasks : schedule_.tasks)
    for (const Task& task : tasks) {
      num_microbatches_ =
          std::max({num_microbatches_, task.microbatch + 1, task.backward_microbatch + 1});
      if (task.kind == TaskKind::Overlapped) mix_ = TaskMix::OverlappedFull;
    }
  if (program::splits_backward(schedule_))
    mix_ = overlaps(mix_) ? TaskMix::Overlapped : TaskMix::Split;
  loads_.resize(schedule_.tasks.size());
}

// ------------------------------------------------------------ time

std::int32_t CompiledSchedule::slot(bool forward, int virtual_stage, int microbatch) const {
  const int half = forward ? 0 : schedule_.num_virtual_stages() * num_microbatches_;
  return kFirstSlot + half + virtual_stage * num_microbatches_ + microbatch;
}

CompiledSchedule::Step CompiledSchedule::step_of(int stage, const Task& task,
                                                 std::vector<bool>& has_gradients) const {
  const int stages = schedule_.num_stages();
  const int own = program::virtual_stage(schedule_.placement, stages, {stage, task.chunk});
  const bool forward = task.kind == TaskKind::Forward;
  const bool gradient = program::gives_weight_gradient(task);
  const bool first = !has_gradients[at(task.chunk)];
  const int place = stage * schedule_.num_chunks + task.chunk;
  if (gradient) has_gradients[at(task.chunk)] = true;
  Step step{.source = kNothing,
            .result = kNobody,
            .duration = place * kDurations + duration_of(task.kind, first),
            .delay = place * kDelays + Here,
            .gradient = gradient ? 1 + place : 0,
            .stage = stage};
  if (forward || program::gives_input_gradient(task))
    step.result = slot(forward, own, task.microbatch);
  const int source = forward ? own - 1 : program::gives_input_gradient(task) ? own + 1 : -1;
  if (source < 0 || source >= schedule_.num_virtual_stages()) return step;
  step.source = slot(forward, source, task.microbatch);
  const int from = program::place_of(schedule_.placement, stages, source).stage;
  if (from != stage) step.delay += forward ? ForwardSent : BackwardSent;
  return step;
}

/// The order in which a recurrence over tasks can be evaluated: a stage after another, each as far
/// as it gets.
void CompiledSchedule::compile_steps() {
  const std::size_t stages = schedule_.tasks.size();
  ends_.assign(at(slot(false, schedule_.num_virtual_stages(), 0)), 0);
  std::vector<bool> known(ends_.size(), false);
  known[kNothing] = true;
  std::vector<std::size_t> next(stages, 0);
  std::vector<std::vector<bool>> has_gradients(stages,
                                               std::vector<bool>(at(schedule_.num_chunks), false));
  counts_.assign(stages, std::vector<int>(at(schedule_.num_chunks * kDurations), 0));
  for (bool progress = true; progress;) {
    progress = false;
    for (std::size_t s = 0; s < stages; ++s)
      while (next[s] < schedule_.tasks[s].size()) {
        auto gradients = has_gradients[s];
        const Step step = step_of(static_cast<int>(s), schedule_.tasks[s][next[s]], gradients);
        if (!known[at(step.source)]) break;
        has_gradients[s] = std::move(gradients);
        known[at(step.result)] = true;
        ++counts_[s][at(step.duration) - s * counts_[s].size()];
        steps_.push_back(step);
        ++next[s];
        progress = true;
      }
  }
  for (std::size_t s = 0; s < stages; ++s)
    require_invariant(next[s] == schedule_.tasks[s].size(), "a schedule ends");
}

bool CompiledSchedule::runs_alone(const SolverInput& input) const {
  if (overlaps(mix_) || input.receiver_copies || input.wake > 0) return false;
  const auto reduces = [](const SolverChunk& chunk) { return chunk.reduction > 0; };
  for (const SolverStage& stage : input.stages)
    if (std::ranges::any_of(stage.chunks, reduces)) return false;
  if (input.host_cores <= 0) return true;
  std::map<int, double> wanted;
  for (const SolverStage& stage : input.stages) wanted[stage.host] += stage.cores;
  return std::ranges::all_of(wanted,
                             [&](const auto& host) { return host.second <= input.host_cores; });
}

void CompiledSchedule::solve(const SolverInput& input, SolverOutput& out) {
  if (!runs_alone(input)) {
    out = solve_tasks(schedule_, input);
    return;
  }
  if (steps_.empty()) compile_steps();
  const std::size_t stages = input.stages.size(), chunks = at(schedule_.num_chunks);
  durations_.resize(stages * chunks * kDurations);
  delays_.resize(stages * chunks * kDelays);
  gradients_.assign(1 + stages * chunks, 0);
  out.end.resize(stages);
  out.busy.assign(stages, 0);
  out.last_gradient_begin.resize(stages);
  // By the virtual stage before a chunk, or by the one behind.
  const auto sent = [&](std::size_t stage, std::size_t chunk, int step) {
    const int here = static_cast<int>(stage), pp = schedule_.num_stages();
    const int other =
        step + program::virtual_stage(schedule_.placement, pp, {here, static_cast<int>(chunk)});
    if (other < 0 || other >= schedule_.num_virtual_stages()) return 0.0;
    return input.transfer_between(program::place_of(schedule_.placement, pp, other).stage, here);
  };
  for (std::size_t s = 0; s < stages; ++s) {
    out.end[s] = input.stages[s].ready;
    out.last_gradient_begin[s].resize(chunks);
    for (std::size_t c = 0; c < chunks; ++c) {
      const SolverChunk& chunk = input.stages[s].chunks[c];
      const std::array<double, kDurations> seconds{chunk.forward,      chunk.backward_first,
                                                   chunk.backward,     chunk.input,
                                                   chunk.weight_first, chunk.weight};
      std::ranges::copy(
          seconds, durations_.begin() + static_cast<std::ptrdiff_t>((s * chunks + c) * kDurations));
      for (std::size_t d = 0; d < kDurations; ++d)
        out.busy[s] += counts_[s][c * kDurations + d] * seconds[d];
      double* const delays = delays_.data() + (s * chunks + c) * kDelays;
      delays[Here] = 0;
      delays[ForwardSent] = sent(s, c, -1);
      double early = kNever;  // without a backward nothing arrives
      if (chunk.has_backward) early = chunk.prelude;
      delays[BackwardSent] = sent(s, c, 1) - early;
    }
  }
  double* const ends = ends_.data();
  double* const free = out.end.data();
  double* const gradients = gradients_.data();
  const double* const durations = durations_.data();
  const double* const delays = delays_.data();
  for (const Step& step : steps_) {
    const double begin = std::max(free[step.stage], ends[step.source] + delays[step.delay]);
    gradients[step.gradient] = begin;
    ends[step.result] = free[step.stage] = begin + durations[step.duration];
  }
  for (std::size_t s = 0; s < stages; ++s)
    for (std::size_t c = 0; c < chunks; ++c)
      out.last_gradient_begin[s][c] = gradients_[1 + s * chunks + c];
}

// ------------------------------------------------------------ memory

bool CompiledSchedule::CoversLoad::operator()(const Load& more, const Load& less) const {
  for (std::size_t c = 0; c < less.live.size(); ++c)
    if (more.live[c] < less.live[c]) return false;
  return (!less.between || less.between == more.between) &&
         (!less.arriving || less.arriving == more.arriving);
}

/// The chunk that a forward task of another stage hands its output to, if one does.
std::optional<int> CompiledSchedule::received_by(int stage, const Task& task) const {
  const bool first =
      program::virtual_stage(schedule_.placement, schedule_.num_stages(), {stage, task.chunk}) == 0;
  if (task.kind != TaskKind::Forward || first) return std::nullopt;
  return task.chunk;
}

CompiledSchedule::StageLoads CompiledSchedule::compile_stage(int stage) const {
  const program::StageSlots slots = program::stage_slots(schedule_, stage, num_microbatches_);
  StageLoads loads;
  loads.boundary_slots = std::max(1, slots.boundary.total());
  loads.transient_slots = slots.transient;
  // On one stage, and in a V, a chunk's output is kept from the task of the chunk before.
  const bool hands_over =
      schedule_.num_chunks > 1 &&
      (schedule_.num_stages() == 1 || schedule_.placement == program::ChunkPlacement::V);
  if (mix_ != TaskMix::Full || hands_over) {
    loads.counts = program::fullest_tasks(schedule_, stage, num_microbatches_);
    return loads;
  }
  Load load{.live = std::vector<int>(at(schedule_.num_chunks), 0)};
  const auto& tasks = schedule_.tasks[at(stage)];
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    const Task& task = tasks[i];
    load.arriving = i + 1 < tasks.size() ? received_by(stage, tasks[i + 1]) : std::nullopt;
    int& live = load.live[at(task.chunk)];
    if (task.kind == TaskKind::Forward) {
      ++live;
      load.between.reset();
      loads.fullest.add(load);
    } else {
      load.between = task.chunk;
      loads.fullest.add(load);
      --live;
    }
  }
  return loads;
}

StageActivations CompiledSchedule::activations(int stage,
                                               std::span<const program::KeptBytes> per_chunk,
                                               int num_microbatches) {
  if (!loads_[at(stage)]) loads_[at(stage)] = compile_stage(stage);
  const StageLoads& loads = *loads_[at(stage)];
  StageActivations result{.boundary_slots = loads.boundary_slots,
                          .transient_slots = loads.transient_slots};
  const auto bytes = [&](int chunk, program::Keep keep) {
    return static_cast<double>(per_chunk[at(chunk)][static_cast<std::size_t>(keep)]);
  };
  double passing = 0;  // what a forward task keeps for itself
  for (int c = 0; c < schedule_.num_chunks; ++c)
    passing = std::max(passing, bytes(c, program::Keep::InForward));
  for (const Load& load : loads.fullest.all()) {
    // As many micro-batches as a backward task finds were kept when the last forward task ran.
    double sum = passing;
    if (load.between) sum = std::max(sum, bytes(*load.between, program::Keep::BetweenGrads));
    if (load.arriving) sum += bytes(*load.arriving, program::Keep::Arriving);
    for (int c = 0; c < schedule_.num_chunks; ++c)
      sum += (load.live[at(c)] == num_microbatches_ ? num_microbatches : load.live[at(c)]) *
             (bytes(c, program::Keep::UntilInputGrad) + bytes(c, program::Keep::UntilWeightGrad));
    result.bytes = std::max(result.bytes, sum);
  }
  for (const std::vector<program::KeptCounts>& counts : loads.counts) {
    std::int64_t sum = 0;
    for (std::size_t c = 0; c < counts.size(); ++c)
      for (std::size_t keep = 0; keep < program::kNumKeeps; ++keep)
        sum += counts[c][keep] * per_chunk[c][keep];
    result.bytes = std::max(result.bytes, static_cast<double>(sum));
  }
  return result;
}

}  // namespace meshplan::sim
