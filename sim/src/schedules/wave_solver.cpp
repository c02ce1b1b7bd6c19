#include "schedules/wave_solver.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/index.hpp"

namespace meshplan::sim {
namespace {

/// Differences of two times that rounding may leave between equal ones.
double rounding(double time) {
  constexpr double kRoundings = 8;
  return kRoundings * std::numeric_limits<double>::epsilon() * time;
}

void describe(program::ScheduleKind kind, const SolverInput& input, int num_microbatches,
              WavePipeline& pipeline) {
  const std::size_t stages = input.stages.size();
  pipeline.kind = kind;
  pipeline.num_microbatches = num_microbatches;
  pipeline.transfers = input.transfers;
  for (auto* seconds :
       {&pipeline.forward, &pipeline.backward_first, &pipeline.backward, &pipeline.gradient_delay})
    seconds->resize(stages);
  for (std::size_t s = 0; s < stages; ++s) {
    const SolverChunk& chunk = input.stages[s].chunks.front();
    const bool waits = s + 1 < stages && chunk.has_backward;
    pipeline.forward[s] = chunk.forward;
    pipeline.backward_first[s] = chunk.backward_first;
    pipeline.backward[s] = chunk.backward;
    pipeline.gradient_delay[s] = waits ? input.transfers[s] - chunk.prelude : -kNever;
  }
}

/// Is every stage ready when the first micro-batch arrives?
bool all_ready_in_time(const WavePipeline& pipeline, const SolverInput& input) {
  double arrival = input.stages.front().ready;
  for (std::size_t s = 0; s < input.stages.size(); ++s) {
    if (input.stages[s].ready > arrival) return false;
    if (s + 1 < input.stages.size()) arrival += pipeline.forward[s] + pipeline.transfers[s];
  }
  return true;
}

/// Rounds in which the slowest circuit of a running 1F1B comes back to where it was: down some
/// stages with a forward, a round each, and up again with a backward. The time of a round in it is
/// the largest mean over stages in a row, what they send each other included; found by Dinkelbach's
/// iteration (1967, On nonlinear fractional programming).
int rounds_of_slowest_circuit(const WavePipeline& pipeline) {
  const int stages = pipeline.num_stages();
  constexpr int kMostIterations = 16;
  double mean = 0;
  int length = 1;
  for (int i = 0; i < kMostIterations; ++i) {
    double seconds = -kNever, above = -kNever, most = -kNever, best_seconds = 0;
    int count = 0, best_count = 1;
    for (int s = 0; s < stages; ++s) {
      const double own = pipeline.forward[at(s)] + pipeline.backward[at(s)];
      const double message =
          s > 0 ? pipeline.transfers[at(s - 1)] + pipeline.gradient_delay[at(s - 1)] : -kNever;
      if (above + message > 0) {
        above += message + own - mean;
        seconds += message + own;
        ++count;
      } else {
        above = own - mean;
        seconds = own;
        count = 1;
      }
      if (above <= most) continue;
      most = above;
      best_seconds = seconds;
      best_count = count;
    }
    if (most <= rounding(best_seconds)) return length;
    mean = best_seconds / best_count;
    length = best_count;
  }
  return length;
}

class WavePlayer {
 public:
  /// @param end  of each stage: comes in with when it is ready, goes out with its last task's
  WavePlayer(const WavePipeline& pipeline, bool in_time, std::vector<double>& end)
      : pipeline_(pipeline),
        in_time_(in_time),
        end_(end),
        forward_end_(end.size()),
        stages_(pipeline.num_stages()),
        m_(pipeline.num_microbatches) {}

  /// Stage s runs pp - 1 - s forwards, then in round k the forward of micro-batch k + pp - 1 - s
  /// and the backward of k: that forward came from the stage before in the round before, that
  /// gradient from the stage behind in this one.
  void one_f_one_b() {
    warm_up([&](int s) { return std::min(stages_ - 1 - s, m_); });
    const int last_full = m_ - std::min(stages_, m_ + 1);  // round in which all have a forward
    int length = 0;                                        // of rounds that may repeat
    int kept = -1;                                         // round after which times were kept
    for (int k = 0; k < m_; ++k) {
      round(k);
      if (k >= last_full) continue;
      if (length == 0) length = rounds_of_slowest_circuit(pipeline_);
      if (kept >= 0 && k - kept < length) continue;
      const double step = end_.front() - (kept >= 0 ? end_before_.front() : 0);
      if (kept >= 0 && moved_by(step)) {
        const int times = (last_full - k) / length;
        for (double& time : end_) time += times * step;
        for (double& time : forward_end_) time += times * step;
        k += times * length;
        length = m_;  // what is left is less than a length
      }
      kept = k;
      end_before_ = end_;
      forward_end_before_ = forward_end_;
    }
  }

  void gpipe() {
    if (in_time_) {
      warm_up([&](int) { return m_; });
    } else {
      for (int k = 0; k < m_; ++k) {
        const auto forward = [&](int s) {
          const double arrival = s > 0 ? end_[at(s - 1)] + pipeline_.transfers[at(s - 1)] : 0;
          end_[at(s)] = std::max(end_[at(s)], arrival) + pipeline_.forward[at(s)];
        };
        if (wave(k, false, pipeline_.forward, forward)) break;
      }
    }
    for (int k = 0; k < m_; ++k)
      if (wave(k, true, pipeline_.backward, [&](int s) { backward(s, k); })) break;
  }

 private:
  void backward(int s, int k) {
    const double arrival = s + 1 < stages_ ? end_[at(s + 1)] + pipeline_.gradient_delay[at(s)] : 0;
    end_[at(s)] = std::max(end_[at(s)], arrival) +
                  (k == 0 ? pipeline_.backward_first : pipeline_.backward)[at(s)];
  }

  /// Forwards, as many of a stage as `count(stage)` says, which is no more than of the stage
  /// before.
  template <class Count>
  void warm_up(const Count& count) {
    if (in_time_) {
      // A flow shop of equal jobs: the i-th leaves stage s after all forwards up to s, and i times
      // the slowest of them.
      double arrival = end_.front(), slowest = 0;
      for (int s = 0; s < stages_ && count(s) > 0; ++s) {
        slowest = std::max(slowest, pipeline_.forward[at(s)]);
        const double first_end = arrival + pipeline_.forward[at(s)];
        forward_end_[at(s)] = end_[at(s)] = first_end + (count(s) - 1) * slowest;
        if (s + 1 < stages_) arrival = first_end + pipeline_.transfers[at(s)];
      }
      return;
    }
    std::vector<double> arrivals(at(count(0)), 0.0);  // of each micro-batch, at the next stage
    for (int s = 0; s < stages_; ++s)
      for (int i = 0; i < count(s); ++i) {
        end_[at(s)] = std::max(end_[at(s)], arrivals[at(i)]) + pipeline_.forward[at(s)];
        forward_end_[at(s)] = end_[at(s)];
        if (s + 1 < stages_) arrivals[at(i)] = end_[at(s)] + pipeline_.transfers[at(s)];
      }
  }

  /// Round k of 1F1B. Stages that have run all their forwards have a backward alone.
  void round(int k) {
    const double* const forward = pipeline_.forward.data();
    const double* const delay = pipeline_.gradient_delay.data();
    const double* const transfers = pipeline_.transfers.data();
    const double* const backward = (k == 0 ? pipeline_.backward_first : pipeline_.backward).data();
    double* const end = end_.data();
    double* const forward_end = forward_end_.data();
    const int first = std::max(0, stages_ - m_ + k);  // that has a forward
    double gradient = 0;  // when the stage behind has sent one; the last stage waits for none
    for (int s = stages_ - 1; s >= first; --s) {
      const double arrival = s > 0 ? forward_end[s - 1] + transfers[s - 1] : 0;
      const double now = std::max(end[s], arrival) + forward[s];
      forward_end[s] = now;
      end[s] = gradient = std::max(now, gradient + delay[s]) + backward[s];
    }
    for (int s = std::min(first, stages_) - 1; s >= 0; --s)
      end[s] = gradient = std::max(end[s], gradient + delay[s]) + backward[s];
  }

  /// Has every stage been moved by `step` since times were kept?
  bool moved_by(double step) const {
    for (std::size_t s = 0; s < end_.size(); ++s) {
      const double most = rounding(end_[s]);
      if (std::abs(end_[s] - end_before_[s] - step) > most) return false;
      if (std::abs(forward_end_[s] - forward_end_before_[s] - step) > most) return false;
    }
    return true;
  }

  /// One micro-batch through all stages. Each moves a stage on by its own seconds or, where that
  /// waits, as far as the stage before it: once that holds for all, it does for all that follow,
  /// and they are added. @returns were they?
  template <class Task>
  bool wave(int k, bool reverse, const std::vector<double>& seconds, const Task& task) {
    bool repeats = k >= 2 && k + 1 < m_;
    moved_.resize(end_.size());
    double upstream = 0;
    for (int i = 0; i < stages_; ++i) {
      const int s = reverse ? stages_ - 1 - i : i;
      const double before = end_[at(s)];
      task(s);
      moved_[at(s)] = end_[at(s)] - before;
      upstream = std::max(upstream, seconds[at(s)]);
      if (std::abs(moved_[at(s)] - upstream) > rounding(end_[at(s)])) repeats = false;
    }
    if (!repeats) return false;
    for (std::size_t s = 0; s < end_.size(); ++s) end_[s] += (m_ - 1 - k) * moved_[s];
    return true;
  }

  const WavePipeline& pipeline_;
  bool in_time_;
  std::vector<double>& end_;
  std::vector<double> forward_end_;
  int stages_;
  int m_;
  std::vector<double> end_before_, forward_end_before_;
  std::vector<double> moved_;
};

void play(const WavePipeline& pipeline, bool in_time, std::vector<double>& end) {
  WavePlayer player(pipeline, in_time, end);
  if (pipeline.kind == program::ScheduleKind::GPipe)
    player.gpipe();
  else
    player.one_f_one_b();
}

}  // namespace

bool has_waves(program::ScheduleKind kind, int num_chunks) {
  return num_chunks == 1 &&
         (kind == program::ScheduleKind::OneFOneB || kind == program::ScheduleKind::GPipe);
}

void WaveSolver::solve(program::ScheduleKind kind, const SolverInput& input, int num_microbatches,
                       SolverOutput& out) {
  describe(kind, input, num_microbatches, pipeline_);
  const std::size_t stages = input.stages.size();
  if (all_ready_in_time(pipeline_, input)) {
    if (!(pipeline_ == solved_)) {
      end_.assign(stages, 0.0);
      play(pipeline_, true, end_);
      std::swap(pipeline_, solved_);
    }
    out.end = end_;
    for (double& end : out.end) end += input.stages.front().ready;
  } else {
    out.end.resize(stages);
    for (std::size_t s = 0; s < stages; ++s) out.end[s] = input.stages[s].ready;
    play(pipeline_, false, out.end);
  }
  out.busy.resize(stages);
  out.last_gradient_begin.resize(stages);
  const int m = num_microbatches;
  for (std::size_t s = 0; s < stages; ++s) {
    const SolverChunk& chunk = input.stages[s].chunks.front();
    const double last = m > 1 ? chunk.backward : chunk.backward_first;
    out.busy[s] = m * chunk.forward + chunk.backward_first + (m - 1) * chunk.backward;
    out.last_gradient_begin[s].assign(1, out.end[s] - last);
  }
}

}  // namespace meshplan::sim
