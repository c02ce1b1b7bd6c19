#include "schedules/task_solver.hpp"

#include <algorithm>
#include <cstdlib>

#include "core/error.hpp"
#include "core/index.hpp"

namespace meshplan::sim {
namespace {

using program::Schedule;
using program::Task;
using program::TaskKind;

class TaskSolver {
 public:
  TaskSolver(const Schedule& schedule, const SolverInput& input)
      : schedule_(schedule), input_(input), num_stages_(input.stages.size()) {
    for (const auto& tasks : schedule.tasks)
      for (const Task& task : tasks)
        num_microbatches_ =
            std::max({num_microbatches_, task.microbatch + 1, task.backward_microbatch + 1});
    forward_end_.assign(at(schedule.num_virtual_stages() * num_microbatches_), kNever);
    backward_end_.assign(forward_end_.size(), kNever);
    states_.resize(num_stages_);
    for (std::size_t s = 0; s < num_stages_; ++s) {
      states_[s].free = input.stages[s].ready;
      states_[s].has_gradients.assign(at(schedule.num_chunks), false);
      states_[s].last_gradient.assign(at(schedule.num_chunks), 0);
      for (std::size_t i = 0; i < schedule.tasks[s].size(); ++i)
        for (const Task& part : program::parts_of(schedule.tasks[s][i]))
          if (program::gives_weight_gradient(part)) states_[s].last_gradient[at(part.chunk)] = i;
    }
    output_.begin.resize(num_stages_);
    output_.end.assign(num_stages_, 0);
    output_.busy.assign(num_stages_, 0);
    output_.last_gradient_begin.assign(num_stages_,
                                       std::vector<double>(at(schedule.num_chunks), 0));
  }

  SolverOutput run() {
    const bool shared = input_.host_cores > 0 && exceeds_cores();
    if (shared)
      run_shared();
    else
      run_alone();
    return std::move(output_);
  }

 private:
  struct State {
    std::size_t next = 0;                    // into the stage's tasks
    std::vector<std::size_t> last_gradient;  // the last one that adds to gradients, by chunk
    double free = 0;                         // when the stage can go on
    double left = 0;                         // seconds of work, shared mode
    bool working = false;                    // shared mode
    std::vector<bool> has_gradients;         // by chunk
  };

  double& end_of(std::vector<double>& ends, int virtual_stage, int microbatch) {
    return ends[at(virtual_stage * num_microbatches_ + microbatch)];
  }
  int number_of(std::size_t stage, const Task& part) const {
    return program::virtual_stage(schedule_.placement, schedule_.num_stages(),
                                  {static_cast<int>(stage), part.chunk});
  }
  const SolverChunk& chunk_of(std::size_t stage, const Task& part) const {
    return input_.stages[stage].chunks[at(part.chunk)];
  }

  bool exceeds_cores() const {
    for (const SolverStage& stage : input_.stages) {
      double wanted = 0;
      for (const SolverStage& other : input_.stages)
        if (other.host == stage.host) wanted += other.cores;
      if (wanted > input_.host_cores) return true;
    }
    return false;
  }

  bool is_forward(const Task& task) const { return task.kind == TaskKind::Forward; }

  /// The virtual stage that a part waits for; -1 if for none but its own.
  int source_of(std::size_t stage, const Task& part) const {
    const int own = number_of(stage, part);
    if (is_forward(part)) return own - 1;
    const bool waits = program::gives_input_gradient(part) && chunk_of(stage, part).has_backward;
    return waits && own + 1 < schedule_.num_virtual_stages() ? own + 1 : -1;
  }

  /// When what a part needs has arrived; 0 if it needs nothing, kNever if that has no end yet.
  double ready_at(std::size_t stage, const Task& part) {
    const int source = source_of(stage, part);
    if (source < 0) return 0;
    const double sent =
        end_of(is_forward(part) ? forward_end_ : backward_end_, source, part.microbatch);
    return sent == kNever ? kNever : arrival(stage, part, source, sent);
  }

  /// When the stage can compute, with all that the task needs.
  double begin_of(std::size_t stage, const Task& task) {
    double begin = states_[stage].free;
    for (const Task& part : program::parts_of(task)) begin = std::max(begin, ready_at(stage, part));
    return begin;
  }

  double arrival(std::size_t stage, const Task& part, int source, double sent) const {
    const int own = static_cast<int>(stage);
    const int from = program::place_of(schedule_.placement, schedule_.num_stages(), source).stage;
    if (from == own) return sent;
    const double transfer = input_.transfer_between(from, own);
    const double prelude = is_forward(part) ? 0 : chunk_of(stage, part).prelude;
    if (input_.receiver_copies)
      return std::max(states_[stage].free, sent - prelude) + transfer + input_.wake;
    return sent + transfer - prelude;
  }

  double duration(std::size_t stage, const Task& task) const {
    double seconds = 0, saves = 0;
    const program::TaskParts parts = program::parts_of(task);
    for (const Task& part : parts) {
      const SolverChunk& chunk = chunk_of(stage, part);
      const bool first = !states_[stage].has_gradients[at(part.chunk)];
      saves += chunk.overlap_saves / 2;
      if (is_forward(part))
        seconds += chunk.forward;
      else if (part.kind == TaskKind::BackwardInput)
        seconds += chunk.input;
      else if (part.kind == TaskKind::BackwardWeight)
        seconds += first ? chunk.weight_first : chunk.weight;
      else
        seconds += first ? chunk.backward_first : chunk.backward;
      if (program::gives_weight_gradient(part) &&
          states_[stage].next == states_[stage].last_gradient[at(part.chunk)])
        seconds += chunk.reduction;
    }
    return parts.size() > 1 ? seconds - saves : seconds;
  }

  struct Run {
    double begin = 0;
    double forward_end = 0;
    double gradient_begin = 0;
    double end = 0;
    double work = 0;
  };

  /// A forward begins without the gradient of the backward that it is overlapped with. It ends
  /// first: a backward has about twice as many operations to take turns with.
  Run overlapped(std::size_t stage, const Task& task) {
    const program::TaskParts parts = program::parts_of(task);
    const double forward = chunk_of(stage, parts.front()).forward;
    Run run{.work = duration(stage, task)};
    run.begin = std::max(states_[stage].free, ready_at(stage, parts.front()));
    run.gradient_begin = std::max(run.begin + forward, ready_at(stage, parts.back()));
    run.end = run.gradient_begin + run.work - forward;
    const bool takes_turns = chunk_of(stage, parts.front()).overlap_saves > 0;
    run.forward_end = std::min(run.end, run.begin + (takes_turns ? 2 : 1) * forward);
    return run;
  }

  void note(std::size_t stage, const Task& task, const Run& run) {
    State& state = states_[stage];
    for (const Task& part : program::parts_of(task)) {
      const int own = number_of(stage, part);
      if (is_forward(part)) end_of(forward_end_, own, part.microbatch) = run.forward_end;
      if (program::gives_input_gradient(part))
        end_of(backward_end_, own, part.microbatch) = run.end;
      if (!program::gives_weight_gradient(part)) continue;
      output_.last_gradient_begin[stage][at(part.chunk)] = run.gradient_begin;
      state.has_gradients[at(part.chunk)] = true;
    }
    state.free = output_.end[stage] = run.end;
    output_.busy[stage] += run.work;
    output_.begin[stage].push_back(run.begin);
    ++state.next;
  }

  /// Every stage has its devices for itself: a recurrence over tasks.
  void run_alone() {
    for (bool progress = true; progress;) {
      progress = false;
      for (std::size_t s = 0; s < num_stages_; ++s) {
        const auto& tasks = schedule_.tasks[s];
        while (states_[s].next < tasks.size()) {
          const Task& task = tasks[states_[s].next];
          const double begin = begin_of(s, task);
          if (begin == kNever) break;
          const double work = duration(s, task);
          note(s, task,
               task.kind == TaskKind::Overlapped
                   ? overlapped(s, task)
                   : Run{begin, begin + work, begin, begin + work, work});
          progress = true;
        }
      }
    }
    for (std::size_t s = 0; s < num_stages_; ++s)
      require_invariant(states_[s].next == schedule_.tasks[s].size(), "a schedule ends");
  }

  /// Rate of a stage that works, now.
  double rate(std::size_t stage) const {
    double wanted = 0;
    for (std::size_t s = 0; s < num_stages_; ++s)
      if (states_[s].working && input_.stages[s].host == input_.stages[stage].host)
        wanted += input_.stages[s].cores;
    return wanted > input_.host_cores ? input_.host_cores / wanted : 1;
  }

  /// Stages share cores: from event to event, where an event is the begin or the end of a task.
  void run_shared() {
    double now = 0;
    std::vector<double> begun(num_stages_, 0);
    while (true) {
      double next = kNever;
      for (std::size_t s = 0; s < num_stages_; ++s) {
        State& state = states_[s];
        if (!state.working && state.next < schedule_.tasks[s].size()) {
          const Task& task = schedule_.tasks[s][state.next];
          const double begin = begin_of(s, task);
          if (begin > now) {
            next = std::min(next, begin);
          } else {
            state.working = true;
            state.left = duration(s, task);
            begun[s] = now;
          }
        }
      }
      for (std::size_t s = 0; s < num_stages_; ++s)
        if (states_[s].working) next = std::min(next, now + states_[s].left / rate(s));
      if (next == kNever) return;
      advance(now, next, begun);
      now = next;
    }
  }

  void advance(double now, double next, const std::vector<double>& begun) {
    constexpr double kRounding = 1e-12;
    std::vector<double> rates(num_stages_);
    for (std::size_t s = 0; s < num_stages_; ++s) rates[s] = rate(s);
    for (std::size_t s = 0; s < num_stages_; ++s) {
      State& state = states_[s];
      if (!state.working) continue;
      state.left -= (next - now) * rates[s];
      if (state.left > kRounding * next) continue;
      state.working = false;
      note(s, schedule_.tasks[s][state.next], {begun[s], next, begun[s], next, next - begun[s]});
    }
  }

  const Schedule& schedule_;
  const SolverInput& input_;
  std::size_t num_stages_;
  int num_microbatches_ = 0;
  std::vector<double> forward_end_;
  std::vector<double> backward_end_;
  std::vector<State> states_;
  SolverOutput output_;
};

}  // namespace

SolverOutput solve_tasks(const Schedule& schedule, const SolverInput& input) {
  return TaskSolver(schedule, input).run();
}

}  // namespace meshplan::sim
