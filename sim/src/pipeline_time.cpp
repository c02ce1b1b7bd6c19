#include "pipeline_time.hpp"

#include <algorithm>
#include <cstddef>

#include "core/error.hpp"

namespace meshplan::sim {
namespace {

struct Step {
  bool forward = true;
  int microbatch = 0;
  int chunk = 0;
};

/// The k-th forward (or backward) of a stage: groups of `stages` micro-batches go through chunk
/// after chunk (backwards: from the last chunk to the first).
Step nth(int k, bool forward, int stages, int chunks) {
  if (chunks == 1) return {forward, k, 0};
  const int per_round = stages * chunks;
  const int round = k / per_round;
  const int inside = k - round * per_round;
  const int chunk = inside / stages;
  return {forward, round * stages + inside % stages, forward ? chunk : chunks - 1 - chunk};
}

/// A last group that is not whole is a whole one with steps left out, as in program::interleaved:
/// any other order could wait in a circle.
std::vector<Step> order_of(int stage, int stages, int chunks, int num_microbatches) {
  const int groups = (num_microbatches + stages - 1) / stages;
  const int total = chunks == 1 ? num_microbatches : groups * stages * chunks;
  const int warmup = chunks == 1
                         ? std::min(total, stages - 1 - stage)
                         : std::min(total, (stages - stage - 1) * 2 + (chunks - 1) * stages);
  std::vector<Step> steps;
  steps.reserve(static_cast<std::size_t>(2 * total));
  const auto add = [&](int k, bool forward) {
    const Step step = nth(k, forward, stages, chunks);
    if (step.microbatch < num_microbatches) steps.push_back(step);
  };
  for (int k = 0; k < warmup; ++k) add(k, true);
  for (int k = warmup; k < total; ++k) {
    add(k, true);
    add(k - warmup, false);
  }
  for (int k = total - warmup; k < total; ++k) add(k, false);
  return steps;
}

class Player {
 public:
  Player(const PipelineInput& input, int num_microbatches)
      : input_(input),
        stages_(static_cast<int>(input.stages.size())),
        chunks_(static_cast<int>(input.stages.front().size())),
        microbatches_(num_microbatches) {
    const auto size = static_cast<std::size_t>(stages_ * chunks_ * microbatches_);
    forward_end_.assign(size, -1);
    backward_end_.assign(size, -1);
    for (int s = 0; s < stages_; ++s)
      orders_.push_back(order_of(s, stages_, chunks_, microbatches_));
    next_.assign(static_cast<std::size_t>(stages_), 0);
    free_.assign(static_cast<std::size_t>(stages_), 0);
  }

  double run() {
    bool progress = true;
    while (progress) {
      progress = false;
      for (int s = 0; s < stages_; ++s)
        while (advance(s)) progress = true;
    }
    for (int s = 0; s < stages_; ++s)
      require_invariant(next_[index(s)] == orders_[index(s)].size(),
                        "a pipeline's order runs to its end");
    return *std::ranges::max_element(free_);
  }

 private:
  static std::size_t index(int i) { return static_cast<std::size_t>(i); }

  double& end_of(std::vector<double>& ends, int stage, int chunk, int microbatch) {
    return ends[index((chunk * stages_ + stage) * microbatches_ + microbatch)];
  }

  /// When a step's input is there: -1 = not known yet.
  double ready(int s, const Step& step) {
    const int position = step.chunk * stages_ + s;  // along the model
    if (step.forward) {
      if (position == 0) return 0;
      const int before = position - 1;
      const double end = end_of(forward_end_, before % stages_, before / stages_, step.microbatch);
      return end < 0 ? -1 : end + delay(before % stages_, s);
    }
    if (position == stages_ * chunks_ - 1)
      return end_of(forward_end_, s, step.chunk, step.microbatch);
    const int after = position + 1;
    const double end = end_of(backward_end_, after % stages_, after / stages_, step.microbatch);
    return end < 0 ? -1 : end + delay(after % stages_, s);
  }

  double delay(int from, int to) const { return from == to ? 0 : input_.transfer_delay; }

  bool advance(int s) {
    auto& position = next_[index(s)];
    const auto& order = orders_[index(s)];
    if (position == order.size()) return false;
    const Step& step = order[position];
    const double at = ready(s, step);
    if (at < 0) return false;
    const ChunkTime& chunk = input_.stages[index(s)][index(step.chunk)];
    const double busy = stages_ > 1 ? 2 * input_.transfer_busy : 0;
    const double end =
        std::max(at, free_[index(s)]) + (step.forward ? chunk.forward : chunk.backward) + busy;
    end_of(step.forward ? forward_end_ : backward_end_, s, step.chunk, step.microbatch) = end;
    free_[index(s)] = end;
    ++position;
    return true;
  }

  const PipelineInput& input_;
  int stages_;
  int chunks_;
  int microbatches_;
  std::vector<double> forward_end_, backward_end_;
  std::vector<std::vector<Step>> orders_;
  std::vector<std::size_t> next_;
  std::vector<double> free_;
};

}  // namespace

double pipeline_seconds(const PipelineInput& input) {
  const int stages = static_cast<int>(input.stages.size());
  const int m = input.num_microbatches;
  if (stages == 1) {
    double sum = 0;
    for (const ChunkTime& chunk : input.stages.front()) sum += chunk.forward + chunk.backward;
    return m * sum;
  }
  // After a few rounds every stage repeats itself once per group of `stages` micro-batches.
  const int played = 5 * stages + m % stages;
  if (m <= played) return Player(input, m).run();
  const double shorter = Player(input, played - stages).run();
  const double longer = Player(input, played).run();
  return longer + (longer - shorter) * (m - played) / stages;
}

}  // namespace meshplan::sim
