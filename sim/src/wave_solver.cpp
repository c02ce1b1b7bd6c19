#include "wave_solver.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace meshplan::sim {
namespace {

std::size_t at(int i) {
  return static_cast<std::size_t>(i);
}

/// Differences of two times that rounding may leave between equal ones.
double rounding(double time) {
  constexpr double kRoundings = 8;
  return kRoundings * std::numeric_limits<double>::epsilon() * time;
}

class WaveSolver {
 public:
  WaveSolver(const SolverInput& input, int num_microbatches, SolverOutput& out)
      : input_(input), out_(out), pp_(static_cast<int>(input.stages.size())), m_(num_microbatches) {
    out.end.resize(input.stages.size());
    out.busy.resize(input.stages.size());
    out.last_gradient_begin.resize(input.stages.size());
    for (std::size_t s = 0; s < input.stages.size(); ++s) {
      const SolverChunk& chunk = input.stages[s].chunks.front();
      out.end[s] = input.stages[s].ready;
      out.busy[s] = m_ * chunk.forward + chunk.backward_first + (m_ - 1) * chunk.backward;
      out.last_gradient_begin[s].assign(1, 0.0);
    }
  }

  /// Stage s runs pp - 1 - s forwards, then in round k the forward of micro-batch k + pp - 1 - s
  /// and the backward of k: that forward came from the stage before in the round before, that
  /// gradient from the stage behind in this one.
  void one_f_one_b() {
    std::vector<double> forward_end = warm_up();
    std::vector<double> before(2 * at(pp_));
    const int last_full = m_ - 1 - ahead(0);  // round in which every stage has a forward
    for (int k = 0; k < m_; ++k) {
      const bool may_repeat = k >= 1 && k < last_full;
      if (may_repeat) {
        std::ranges::copy(out_.end, before.begin());
        std::ranges::copy(forward_end, before.begin() + pp_);
      }
      for (int s = pp_ - 1; s >= 0; --s) {
        if (k + ahead(s) < m_) {
          const double arrival = s > 0 ? forward_end[at(s - 1)] + input_.transfer : 0;
          forward_end[at(s)] = free(s) = std::max(free(s), arrival) + chunk(s).forward;
        }
        backward(s, k);
      }
      if (!may_repeat) continue;
      const double step = free(0) - before[0];
      if (!moved_by(step, before, forward_end)) continue;
      const double skipped = (last_full - k) * step;
      for (double& time : out_.end) time += skipped;
      for (double& time : forward_end) time += skipped;
      for (auto& begin : out_.last_gradient_begin) begin.front() += skipped;
      k = last_full;
    }
  }

  void gpipe() {
    for (int k = 0; k < m_; ++k) {
      const auto forward = [&](int s) {
        const double arrival = s > 0 ? free(s - 1) + input_.transfer : 0;
        free(s) = std::max(free(s), arrival) + chunk(s).forward;
      };
      const auto seconds = [&](int s) { return chunk(s).forward; };
      if (wave(k, false, forward, seconds)) break;
    }
    for (int k = 0; k < m_; ++k) {
      const auto seconds = [&](int s) { return chunk(s).backward; };
      if (wave(
              k, true, [&](int s) { backward(s, k); }, seconds))
        break;
    }
  }

 private:
  double& free(int s) { return out_.end[at(s)]; }
  const SolverChunk& chunk(int s) const { return input_.stages[at(s)].chunks.front(); }
  int ahead(int s) const { return std::min(pp_ - 1 - s, m_); }

  void backward(int s, int k) {
    const SolverChunk& own = chunk(s);
    const bool waits = s + 1 < pp_ && own.has_backward;
    const double arrival = waits ? free(s + 1) + (input_.transfer - own.prelude) : 0;
    const double begin = std::max(free(s), arrival);
    out_.last_gradient_begin[at(s)].front() = begin;
    free(s) = begin + (k == 0 ? own.backward_first : own.backward);
  }

  /// @returns when each stage's last warm-up forward ends
  std::vector<double> warm_up() {
    std::vector<double> last(at(pp_), 0.0);
    if (all_ready_in_time()) {
      // A flow shop of equal jobs: the i-th leaves stage s after all forwards up to s, and i times
      // the slowest of them.
      double arrival = free(0), slowest = 0;
      for (int s = 0; ahead(s) > 0; ++s) {
        slowest = std::max(slowest, chunk(s).forward);
        const double first_end = arrival + chunk(s).forward;
        last[at(s)] = free(s) = first_end + (ahead(s) - 1) * slowest;
        arrival = first_end + input_.transfer;
      }
      return last;
    }
    std::vector<double> arrivals(at(ahead(0)), 0.0);  // of each micro-batch, at the next stage
    for (int s = 0; s < pp_; ++s)
      for (int i = 0; i < ahead(s); ++i) {
        last[at(s)] = free(s) = std::max(free(s), arrivals[at(i)]) + chunk(s).forward;
        arrivals[at(i)] = free(s) + input_.transfer;
      }
    return last;
  }

  /// Is every stage ready when the first micro-batch arrives?
  bool all_ready_in_time() {
    double arrival = free(0);
    for (int s = 0; s < pp_; ++s) {
      if (free(s) > arrival) return false;
      arrival += chunk(s).forward + input_.transfer;
    }
    return true;
  }

  bool moved_by(double step, const std::vector<double>& before,
                const std::vector<double>& forward_end) const {
    for (std::size_t s = 0; s < at(pp_); ++s) {
      const double most = rounding(out_.end[s]);
      if (std::abs(out_.end[s] - before[s] - step) > most) return false;
      if (std::abs(forward_end[s] - before[at(pp_) + s] - step) > most) return false;
    }
    return true;
  }

  /// One micro-batch through all stages. Each moves a stage on by its own seconds or, where that
  /// waits, as far as the stage before it: once that holds for all, it does for all that follow,
  /// and they are added. @returns were they?
  template <class Task, class SecondsOf>
  bool wave(int k, bool reverse, const Task& task, const SecondsOf& seconds) {
    bool repeats = k >= 2 && k + 1 < m_;
    moved_.resize(at(pp_));
    double upstream = 0;
    for (int i = 0; i < pp_; ++i) {
      const int s = reverse ? pp_ - 1 - i : i;
      const double before = free(s);
      task(s);
      moved_[at(s)] = free(s) - before;
      upstream = std::max(upstream, seconds(s));
      if (std::abs(moved_[at(s)] - upstream) > rounding(free(s))) repeats = false;
    }
    if (!repeats) return false;
    for (int s = 0; s < pp_; ++s) {
      const double skipped = (m_ - 1 - k) * moved_[at(s)];
      free(s) += skipped;
      out_.last_gradient_begin[at(s)].front() += skipped;
    }
    return true;
  }

  const SolverInput& input_;
  SolverOutput& out_;
  int pp_;
  int m_;
  std::vector<double> moved_;
};

}  // namespace

bool has_waves(program::ScheduleKind kind, int num_chunks) {
  return num_chunks == 1 &&
         (kind == program::ScheduleKind::OneFOneB || kind == program::ScheduleKind::GPipe);
}

void solve_waves(program::ScheduleKind kind, const SolverInput& input, int num_microbatches,
                 SolverOutput& out) {
  WaveSolver solver(input, num_microbatches, out);
  if (kind == program::ScheduleKind::GPipe)
    solver.gpipe();
  else
    solver.one_f_one_b();
}

}  // namespace meshplan::sim
