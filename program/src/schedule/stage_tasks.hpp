// What generators make the tasks of a stage with.
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <vector>

#include "core/error.hpp"
#include "program/schedule/schedule.hpp"

namespace meshplan::program {

inline Task forward(int microbatch, int chunk = 0) {
  return {.kind = TaskKind::Forward, .microbatch = microbatch, .chunk = chunk};
}
inline Task backward(int microbatch, int chunk = 0) {
  return {.kind = TaskKind::BackwardFull, .microbatch = microbatch, .chunk = chunk};
}
inline Task input_gradient(int microbatch, int chunk = 0) {
  return {.kind = TaskKind::BackwardInput, .microbatch = microbatch, .chunk = chunk};
}
inline Task weight_gradient(int microbatch, int chunk = 0) {
  return {.kind = TaskKind::BackwardWeight, .microbatch = microbatch, .chunk = chunk};
}

/// What the first `num_microbatches` need: a part of a valid order is valid.
std::vector<Task> of_first(int num_microbatches, const std::vector<Task>& tasks);

/// Tasks of one stage of a V, from counters: "the next forward of chunk 1".
class VBuilder {
 public:
  void forward(int chunk) { tasks_.push_back(program::forward(forwards_[chunk]++, chunk)); }
  void backward(int chunk) { tasks_.push_back(program::backward(backwards_[chunk]++, chunk)); }
  void input_gradient(int chunk) {
    const int microbatch = backwards_[chunk]++;
    owed_.push_back(weight_gradient(microbatch, chunk));
    tasks_.push_back(program::input_gradient(microbatch, chunk));
  }
  /// Input gradient, then all that weight gradients owe.
  void both_gradients(int chunk) {
    input_gradient(chunk);
    while (!owed_.empty()) oldest_weight_gradient();
  }
  void oldest_weight_gradient() {
    if (owed_.empty()) return;
    tasks_.push_back(owed_.front());
    owed_.pop_front();
  }
  /// The oldest one of a chunk.
  void weight_gradient_of(int chunk) {
    const auto found = std::ranges::find(owed_, chunk, &Task::chunk);
    require_invariant(found != owed_.end(), "a weight gradient is owed");
    tasks_.push_back(*found);
    owed_.erase(found);
  }
  bool owes(int chunk) const {
    return std::ranges::find(owed_, chunk, &Task::chunk) != owed_.end();
  }
  void overlapped(int forward_chunk, int backward_chunk) {
    tasks_.push_back({.kind = TaskKind::Overlapped,
                      .microbatch = forwards_[forward_chunk]++,
                      .chunk = forward_chunk,
                      .backward_microbatch = backwards_[backward_chunk]++,
                      .backward_chunk = backward_chunk});
  }
  int forwards(int chunk) { return forwards_[chunk]; }

  std::vector<Task> take(int num_microbatches) const { return of_first(num_microbatches, tasks_); }

 private:
  std::vector<Task> tasks_;
  std::map<int, int> forwards_;   // of each chunk, so far
  std::map<int, int> backwards_;  // the same
  std::deque<Task> owed_;         // weight gradients, oldest first
};

}  // namespace meshplan::program
