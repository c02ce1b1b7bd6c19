#include "task_solver.hpp"

#include <algorithm>
#include <limits>

#include "core/error.hpp"

namespace meshplan::sim {
namespace {

using program::Schedule;
using program::Task;
using program::TaskKind;

constexpr double kNever = std::numeric_limits<double>::infinity();

std::size_t at(int i) {
  return static_cast<std::size_t>(i);
}

class TaskSolver {
 public:
  TaskSolver(const Schedule& schedule, const SolverInput& input)
      : schedule_(schedule), input_(input), num_stages_(input.stages.size()) {
    for (const auto& tasks : schedule.tasks)
      for (const Task& task : tasks)
        num_microbatches_ = std::max(num_microbatches_, task.microbatch + 1);
    forward_end_.assign(num_stages_ * at(num_microbatches_), kNever);
    backward_end_.assign(forward_end_.size(), kNever);
    states_.resize(num_stages_);
    for (std::size_t s = 0; s < num_stages_; ++s) states_[s].free = input.stages[s].ready;
    output_.end.assign(num_stages_, 0);
    output_.busy.assign(num_stages_, 0);
    output_.last_forward_end.assign(num_stages_, 0);
    output_.last_backward_begin.assign(num_stages_, 0);
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
    std::size_t next = 0;  // into the stage's tasks
    double free = 0;       // when the stage can go on
    double left = 0;       // seconds of work, shared mode
    bool working = false;  // shared mode
    int backwards = 0;
  };

  double& end_of(std::vector<double>& ends, std::size_t stage, int microbatch) {
    return ends[stage * at(num_microbatches_) + at(microbatch)];
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

  /// When the task's input leaves the neighbour; 0 if it needs none, kNever if that is not known
  /// yet.
  double input_sent(std::size_t stage, const Task& task) {
    if (is_forward(task)) return stage == 0 ? 0 : end_of(forward_end_, stage - 1, task.microbatch);
    return stage + 1 == num_stages_ ? 0 : end_of(backward_end_, stage + 1, task.microbatch);
  }
  bool receives(std::size_t stage, const Task& task) const {
    return is_forward(task) ? stage > 0 : stage + 1 < num_stages_;
  }

  /// When the stage can compute, given when its input was sent.
  double begin_of(std::size_t stage, const Task& task, double sent) const {
    const double free = states_[stage].free;
    if (!receives(stage, task)) return free;
    const double prelude = is_forward(task) ? 0 : input_.stages[stage].prelude;
    if (input_.receiver_copies)
      return std::max(free, sent - prelude) + input_.transfer + input_.wake;
    return std::max(free, sent + input_.transfer - prelude);
  }

  double duration(std::size_t stage, const Task& task) const {
    const SolverStage& own = input_.stages[stage];
    if (is_forward(task)) return own.forward;
    return states_[stage].backwards == 0 ? own.backward_first : own.backward;
  }

  void note(std::size_t stage, const Task& task, double begin, double end) {
    end_of(is_forward(task) ? forward_end_ : backward_end_, stage, task.microbatch) = end;
    State& state = states_[stage];
    state.free = output_.end[stage] = end;
    output_.busy[stage] += end - begin;
    ++state.next;
    if (is_forward(task))
      output_.last_forward_end[stage] = end;
    else
      output_.last_backward_begin[stage] = begin;
    if (!is_forward(task)) ++state.backwards;
  }

  /// Every stage has its devices for itself: a recurrence over tasks.
  void run_alone() {
    for (bool progress = true; progress;) {
      progress = false;
      for (std::size_t s = 0; s < num_stages_; ++s) {
        const auto& tasks = schedule_.tasks[s];
        while (states_[s].next < tasks.size()) {
          const Task& task = tasks[states_[s].next];
          const double sent = input_sent(s, task);
          if (sent == kNever) break;
          const double begin = begin_of(s, task, sent);
          note(s, task, begin, begin + duration(s, task));
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
          const double sent = input_sent(s, task);
          const double begin = sent == kNever ? kNever : begin_of(s, task, sent);
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
      note(s, schedule_.tasks[s][state.next], begun[s], next);
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
