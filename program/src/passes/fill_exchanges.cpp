// An exchange of experts leaves a device idle unless there is something to compute meanwhile. Of a
// layer that is what leads to no exchange: shared experts forward and backward (Megatron-LM's
// --moe-shared-expert-overlap), and weight gradients. So an exchange begins as early as it can,
// with only what leads to it before, and the rest runs where something would have to wait.
#include "passes/fill_exchanges.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <utility>

#include "core/index.hpp"
#include "cost/nominal_time.hpp"

namespace meshplan::program {
namespace {

using Indexes = std::vector<std::size_t>;

/// Of each operation those earlier ones that it must stay behind: which write what it touches, or
/// read what it writes. Others follow from these.
std::vector<Indexes> needs_of(const Block& block, const std::vector<Operation>& operations) {
  struct Touched {
    std::optional<std::size_t> writer;
    Indexes readers;  // since then
  };
  std::vector<Touched> touched(block.values.size());
  std::vector<Indexes> needs(operations.size());
  for (std::size_t i = 0; i < operations.size(); ++i) {
    const auto wait_for = [&](const Indexes& earlier) {
      std::ranges::copy_if(earlier, std::back_inserter(needs[i]),
                           [i](std::size_t other) { return other != i; });
    };
    for (const ValueId input : operations[i].inputs) {
      Touched& value = touched[at(root_of(block, input))];
      if (value.writer) wait_for({*value.writer});
      value.readers.push_back(i);
    }
    for (const ValueId output : operations[i].outputs) {
      Touched& value = touched[at(root_of(block, output))];
      if (value.writer) wait_for({*value.writer});
      wait_for(value.readers);
      value = {.writer = i, .readers = {}};
    }
    std::ranges::sort(needs[i]);
    needs[i].erase(std::ranges::unique(needs[i]).begin(), needs[i].end());
  }
  return needs;
}

class Filler {
 public:
  /// @param seconds  of each operation
  Filler(const Block& block, const std::vector<Operation>& operations, std::vector<double> seconds)
      : operations_(operations),
        seconds_(std::move(seconds)),
        needs_(needs_of(block, operations)),
        after_(operations.size(), 0),
        ends_(operations.size(), 0),
        issued_(operations.size(), false) {
    for (std::size_t i = operations.size(); i-- > 0;) {
      for (const std::size_t need : needs_[i])
        after_[need] = std::max(after_[need], seconds_[i] + after_[i]);
      if (is_exchange(i)) exchanges_.push_back(i);
    }
  }

  Indexes run() {
    while (!exchanges_.empty()) {
      const std::size_t exchange = next_exchange();
      issue_all(leading_to(exchange));
      issue(exchange);
      std::erase(exchanges_, exchange);
    }
    Indexes rest;
    for (std::size_t i = 0; i < operations_.size(); ++i)
      if (!issued_[i]) rest.push_back(i);
    issue_all(std::move(rest));
    return std::move(order_);
  }

 private:
  bool is_exchange(std::size_t operation) const {
    return exchanges_with_experts(operations_[operation].lane);
  }
  bool computes(std::size_t operation) const {
    return operations_[operation].lane == Lane::Compute;
  }

  /// The one that most depends on; or another that is over before that one could begin.
  std::size_t next_exchange() const {
    struct Candidate {
      std::size_t operation = 0;
      double begin = 0;
    };
    std::vector<Candidate> candidates;
    for (const std::size_t i : exchanges_) {
      const Indexes leading = leading_to(i);
      if (std::ranges::any_of(leading, [&](std::size_t j) { return is_exchange(j); })) continue;
      double begin = now_;
      for (const std::size_t j : leading) begin += seconds_[j];
      candidates.push_back({i, std::max(begin, lane_of(i))});
    }
    const auto most_after = [&](const Candidate& a, const Candidate& b) {
      return after_[a.operation] < after_[b.operation];
    };
    const Candidate most = *std::ranges::max_element(candidates, most_after);
    std::erase_if(candidates, [&](const Candidate& other) {
      return other.operation == most.operation ||
             other.begin + seconds_[other.operation] > most.begin;
    });
    if (candidates.empty()) return most.operation;
    return std::ranges::max_element(candidates, most_after)->operation;
  }

  /// What is left to issue before it, in order.
  Indexes leading_to(std::size_t operation) const {
    std::vector<bool> leads(operation + 1, false);
    leads[operation] = true;
    Indexes all;
    for (std::size_t i = operation + 1; i-- > 0;) {
      if (!leads[i]) continue;
      if (i != operation) all.push_back(i);
      for (const std::size_t need : needs_[i])
        if (!issued_[need]) leads[need] = true;
    }
    std::ranges::reverse(all);
    return all;
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

  Indexes::iterator first_to_begin(Indexes& operations) const {
    auto first = operations.end();
    for (auto i = operations.begin(); i != operations.end(); ++i)
      if (is_ready(*i) && (first == operations.end() || begin_of(*i) < begin_of(*first))) first = i;
    return first;
  }

  /// Issues something else, at least half of which runs before `end`. @returns false: there is none
  bool fill(double end, const Indexes& but) {
    for (std::size_t i = 0; i < operations_.size(); ++i) {
      if (issued_[i] || is_exchange(i) || !is_ready(i) || std::ranges::binary_search(but, i))
        continue;
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
  std::vector<Indexes> needs_;  // ascending
  std::vector<double> after_;   // the longest that what waits for it takes, one after the other
  std::vector<double> ends_;
  std::array<double, kNumLanes> lanes_{};  // until when each is taken
  double now_ = 0;                         // of computation
  std::vector<bool> issued_;
  Indexes exchanges_;  // that are left
  Indexes order_;
};

}  // namespace

void fill_exchanges(ShardedLayer& layer, const Program& program) {
  const bool exchanges = std::ranges::any_of(layer.block.forward, [](const Operation& operation) {
    return exchanges_with_experts(operation.lane);
  });
  if (!exchanges) return;
  NominalTimes times(program, {layer.block});
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
