// An exchange of experts leaves a device idle unless there is something to compute meanwhile. Of a
// layer that is what leads to no exchange: shared experts forward and backward (Megatron-LM's
// --moe-shared-expert-overlap), and weight gradients. So an exchange begins as early as it can,
// with only what leads to it before, and the rest runs where something would have to wait.
#include "passes/fill_exchanges.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <utility>

#include "checks/dataflow.hpp"
#include "cost/nominal_time.hpp"

namespace meshplan::program {
namespace {

class Filler {
 public:
  /// @param seconds  of each operation
  Filler(const Block& block, const std::vector<Operation>& operations, std::vector<double> seconds)
      : operations_(operations),
        seconds_(std::move(seconds)),
        needs_(operations.size()),
        after_(operations.size(), 0),
        ends_(operations.size(), 0),
        issued_(operations.size(), false) {
    for (std::size_t i = 0; i < operations.size(); ++i)
      for (std::size_t j = 0; j < i; ++j)
        if (meet(block, operations[j], operations[i])) needs_[i].push_back(j);
    for (std::size_t i = operations.size(); i-- > 0;)
      for (const std::size_t need : needs_[i])
        after_[need] = std::max(after_[need], seconds_[i] + after_[i]);
  }

  std::vector<std::size_t> run() {
    while (const auto exchange = next_exchange()) {
      issue_all(leading_to(*exchange));
      issue(*exchange);
    }
    Indexes rest;
    for (std::size_t i = 0; i < operations_.size(); ++i)
      if (!issued_[i]) rest.insert(i);
    issue_all(std::move(rest));
    return std::move(order_);
  }

 private:
  using Indexes = std::set<std::size_t>;

  bool is_exchange(std::size_t operation) const {
    return exchanges_with_experts(operations_[operation].lane);
  }
  bool computes(std::size_t operation) const {
    return operations_[operation].lane == Lane::Compute;
  }

  /// The one that most depends on; or another that is over before that one could begin.
  std::optional<std::size_t> next_exchange() const {
    struct Candidate {
      std::size_t operation = 0;
      double begin = 0;
    };
    std::vector<Candidate> candidates;
    for (std::size_t i = 0; i < operations_.size(); ++i) {
      if (issued_[i] || !is_exchange(i)) continue;
      const Indexes leading = leading_to(i);
      if (std::ranges::any_of(leading, [&](std::size_t j) { return is_exchange(j); })) continue;
      double begin = now_;
      for (const std::size_t j : leading) begin += seconds_[j];
      candidates.push_back({i, std::max(begin, lane_of(i))});
    }
    if (candidates.empty()) return std::nullopt;
    const auto most_after = [&](const Candidate& a, const Candidate& b) {
      return after_[a.operation] < after_[b.operation];
    };
    const Candidate most = *std::ranges::max_element(candidates, most_after);
    std::erase_if(candidates, [&](const Candidate& other) {
      return other.operation != most.operation &&
             other.begin + seconds_[other.operation] > most.begin;
    });
    std::ranges::stable_sort(candidates, most_after);
    return candidates.size() == 1 ? most.operation : candidates[candidates.size() - 2].operation;
  }

  Indexes leading_to(std::size_t operation) const {
    Indexes all;
    add_needs(operation, all);
    return all;
  }
  void add_needs(std::size_t operation, Indexes& all) const {
    for (const std::size_t need : needs_[operation])
      if (!issued_[need] && all.insert(need).second) add_needs(need, all);
  }

  /// In their order, but for what has to wait.
  void issue_all(Indexes operations) {
    while (!operations.empty()) {
      auto next = std::ranges::find_if(operations, [&](std::size_t i) {
        return is_ready(i) && (!computes(i) || begin_of(i) <= now_);
      });
      if (next == operations.end()) {
        next = first_to_begin(operations);
        if (fill(begin_of(*next), operations)) continue;
      }
      issue(*next);
      operations.erase(next);
    }
  }

  Indexes::iterator first_to_begin(const Indexes& operations) const {
    auto first = operations.end();
    for (auto i = operations.begin(); i != operations.end(); ++i)
      if (is_ready(*i) && (first == operations.end() || begin_of(*i) < begin_of(*first))) first = i;
    return first;
  }

  /// Issues something else, at least half of which runs before `end`. @returns false: there is none
  bool fill(double end, const Indexes& but) {
    for (std::size_t i = 0; i < operations_.size(); ++i) {
      if (issued_[i] || is_exchange(i) || but.contains(i) || !is_ready(i)) continue;
      const double begin = begin_of(i);
      if (computes(i) && begin + seconds_[i] / 2 > end) continue;
      if (begin >= end) continue;
      issue(i);
      return true;
    }
    return false;
  }

  bool is_ready(std::size_t operation) const {
    return std::ranges::all_of(needs_[operation], [&](std::size_t i) { return issued_[i]; });
  }

  /// Until when its lane is taken.
  double lane_of(std::size_t operation) const {
    return lanes_[static_cast<std::size_t>(operations_[operation].lane)];
  }
  double begin_of(std::size_t operation) const {
    double begin = lane_of(operation);
    for (const std::size_t need : needs_[operation]) begin = std::max(begin, ends_[need]);
    return begin;
  }

  void issue(std::size_t operation) {
    ends_[operation] = begin_of(operation) + seconds_[operation];
    lanes_[static_cast<std::size_t>(operations_[operation].lane)] = ends_[operation];
    if (computes(operation)) now_ = ends_[operation];
    issued_[operation] = true;
    order_.push_back(operation);
  }

  const std::vector<Operation>& operations_;
  std::vector<double> seconds_;
  std::vector<std::vector<std::size_t>> needs_;  // earlier ones that must stay before
  std::vector<double> after_;  // the longest that what waits for it takes, one after the other
  std::vector<double> ends_;
  std::array<double, kNumLanes> lanes_{};  // until when each is taken
  double now_ = 0;                         // of computation
  std::vector<bool> issued_;
  std::vector<std::size_t> order_;
};

}  // namespace

void fill_exchanges(ShardedLayer& layer, const Plan& plan) {
  const bool exchanges = std::ranges::any_of(layer.block.forward, [](const Operation& operation) {
    return exchanges_with_experts(operation.lane);
  });
  if (!exchanges) return;
  NominalTimes times(plan, {layer.block});
  for (const bool backward : {false, true}) {
    std::vector<Operation>& operations = backward ? layer.block.backward : layer.block.forward;
    std::vector<double> seconds;
    for (int i = 0; i < static_cast<int>(operations.size()); ++i)
      seconds.push_back(times.seconds({.block = 0, .backward = backward, .index = i}));
    std::vector<Operation> ordered;
    for (const std::size_t i : Filler(layer.block, operations, std::move(seconds)).run())
      ordered.push_back(std::move(operations[i]));
    operations = std::move(ordered);
  }
}

}  // namespace meshplan::program
