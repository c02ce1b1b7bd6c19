#pragma once

#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "cost/nominal_time.hpp"
#include "program/program.hpp"

namespace meshplan::program {

/// Makes one list of two tasks that run together, such that what one of them computes hides what
/// the other one communicates. Either list keeps its own order.
class TaskOverlap {
 public:
  explicit TaskOverlap(const Program& program) : program_(program) {}

  using Instances = std::vector<OperationInstance>;
  Instances merge(const Instances& first, const Instances& second);

 private:
  /// Whose turn it is, operation by operation: is it the second's?
  using Turns = std::vector<bool>;
  enum class Preferred { First, Second, MoreLeft };
  struct Played {
    Turns turns;
    double seconds = 0;
  };
  Played play(const Instances& first, const Instances& second, Preferred preferred);
  Turns turns_of(const Instances& first, const Instances& second);
  double seconds_of(const OperationInstance& instance);
  double seconds_of(const Instances& list);

  const Program& program_;
  /// By the chunks of both and their numbers of operations: micro-batches do not matter.
  std::map<std::tuple<int, int, std::size_t, std::size_t>, Turns> known_;
  std::optional<NominalTimes> times_;  // made when they are asked for
};

}  // namespace meshplan::program
