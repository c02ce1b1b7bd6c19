// What a virtual stage of a plan costs: the stage of a small pipeline, priced once, with the number
// of layers that it really has.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "block_prices.hpp"
#include "compiled_schedule.hpp"
#include "operator_table.hpp"
#include "program/plan.hpp"
#include "sim/cluster.hpp"

namespace meshplan::sim {

/// What distinguishes cached values: small numbers, put together again for every look-up.
class CacheKey {
 public:
  void clear() { numbers_.clear(); }
  void add(std::int64_t number) { numbers_.push_back(number); }
  template <class... Numbers>
  void add_all(Numbers... numbers) {
    (add(static_cast<std::int64_t>(numbers)), ...);
  }
  void add(const std::vector<int>& numbers) {
    add(static_cast<std::int64_t>(numbers.size()));
    numbers_.insert(numbers_.end(), numbers.begin(), numbers.end());
  }
  void add(std::string_view text) { numbers_.insert(numbers_.end(), text.begin(), text.end()); }
  bool operator==(const CacheKey&) const = default;

  struct Hash {
    std::size_t operator()(const CacheKey& key) const;
  };

 private:
  std::vector<std::int64_t> numbers_;
};

/// Gradients that become ready together: `seconds` after the begin of the task that completes them.
struct ReadyGradients {
  double seconds = 0;
  double elements = 0;
};

struct ChunkCost {
  TaskTimes tasks;
  double prelude = 0;
  double update_seconds = 0;
  double norm_seconds = 0;
  double load_seconds = 0;
  double elements = 0;
  double partial_elements = 0;
  double tied_elements = 0;
  double transient_bytes = 0;
  double boundary_bytes = 0;
  double scalar_bytes = 0;
  int num_layers = 0;
  std::vector<std::int64_t> layer_copied_parts;  // of each layer, summed over their holders
  program::KeptBytes kept_bytes{};
  std::vector<ReadyGradients> ready;  // in the order of the backward pass
};

/// Prices small pipelines and remembers them, and the chunks made of them.
class ChunkCosts {
 public:
  /// @param cluster, table  must outlive it
  ChunkCosts(const Cluster& cluster, const OperatorTable& table)
      : cluster_(cluster), table_(table) {}

  /// Forgets everything: another model follows.
  void clear() { sets_.clear(); }

  /// The small pipelines of a plan; the reference holds until clear().
  struct Set;
  Set& set_of(const program::Plan& plan, program::RecomputeKind recompute, TaskMix mix,
              const GroupPlacement& tp, const GroupPlacement& cp);

  /// @param plain  of the same plan without recompute; used if fewer than all layers recompute
  /// @param number  of the virtual stage @param num_layers  that it has
  /// @param plain_layers  of them that do not recompute
  const ChunkCost& chunk_of(const program::Plan& plan, Set& set, Set* plain, int number,
                            int num_layers, int plain_layers);

  struct Set {
    std::vector<StagePrices> stages;
    bool alike = false;
    std::unordered_map<std::int64_t, ChunkCost> chunks;
  };

 private:
  ChunkCost make(const StagePrices& prices, const StagePrices& plain, int num_layers,
                 int plain_layers) const;

  const Cluster& cluster_;
  const OperatorTable& table_;
  CacheKey key_;
  std::unordered_map<CacheKey, Set, CacheKey::Hash> sets_;
};

}  // namespace meshplan::sim
