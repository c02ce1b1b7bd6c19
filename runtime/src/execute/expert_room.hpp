// Memory for the rows that a router sends to a rank beyond what its plan has buffers for.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "execute/issue_order.hpp"
#include "program/program.hpp"
#include "program/trace/step_report.hpp"
#include "runtime/execute/device.hpp"

namespace meshplan::runtime {

/// A *visit* is the work of a layer on a micro-batch, forward to weight gradient. Where one has
/// more rows than the plan's buffers hold, each of its values with routed rows lies in a block of
/// its own, from the first operation that touches the value to the last one. A rank decides this
/// alone: what others send and get does not change.
///
/// Blocks go from value to value and from step to step; a step gives back those that it had no use
/// for, without queues as soon as it needs one of another size. On a device with queues, marks
/// order the uses of a block: the host never waits for one.
class ExpertRoom {
 public:
  /// @param order  that the program is issued in; what it captures may hold no routed rows
  ExpertRoom(const program::Program& program, Device& device, const IssueOrder& order);
  ~ExpertRoom();
  ExpertRoom(const ExpertRoom&) = delete;
  ExpertRoom& operator=(const ExpertRoom&) = delete;

  /// So many rows come to the visit of this instance, an ExchangeSizes.
  void set_rows(const program::OperationInstance& instance, std::int64_t rows);

  /// Does the instance work on rows that lie here, in this step?
  bool holds_rows_of(int instance) const;
  /// The values of the symbols that such an instance is bound with.
  models::SymbolValues sizes_of(const program::OperationInstance& instance) const;
  /// Where a value lies; null where the plan's buffer serves. Makes room at the value's first use.
  /// @throws ConfigError if there is no memory, with what helps
  std::byte* memory_of(const program::OperationInstance& instance, program::ValueId value);

  /// After each issue of the order: values that nothing touches any more hand their blocks on.
  void issued(std::size_t issue);
  /// All queues are empty. @returns what room the step needed, of this rank
  program::RowsBeyondPlan end_step();
  /// Between steps: frees all blocks.
  void give_back();

 private:
  /// A value of a visit, which is layer * micro-batches + micro-batch.
  using Key = std::pair<std::size_t, program::ValueId>;

  /// Who uses a value over a step.
  struct Uses {
    std::size_t last_issue = 0;
    std::vector<program::Lane> lanes;
  };
  struct Block {
    std::byte* memory = nullptr;  // null: this place in the list is free
    std::int64_t bytes = 0;
    bool taken = false;
    bool needed = false;                // in this step
    std::vector<program::Lane> marked;  // whose marks the next user waits for
  };

  std::size_t visit_of(const program::OperationInstance& instance) const;
  program::ValueId root_of(const program::OperationInstance& instance,
                           program::ValueId value) const;
  const program::Value& value_of(const program::OperationInstance& instance,
                                 program::ValueId value) const;
  void note_uses(const Issue& issue, std::size_t number);
  std::size_t take_block(const program::OperationInstance& instance, std::int64_t bytes);
  std::size_t make_block(const program::OperationInstance& instance, std::int64_t bytes);
  [[noreturn]] void refuse(const program::OperationInstance& instance, std::int64_t bytes,
                           const std::string& reason) const;
  void free_blocks(bool needed_ones);
  int mark_of(std::size_t block, program::Lane lane) const;

  const program::Program& program_;
  Device& device_;
  bool queues_;
  int first_mark_;
  std::vector<bool> routed_;  // by instance: touches routed rows
  std::map<Key, Uses> uses_;
  std::vector<std::int64_t> rows_;  // by visit, of this step
  std::vector<Block> blocks_;
  std::map<Key, std::size_t> lies_in_;       // values that have a block now
  std::multimap<std::size_t, Key> ends_at_;  // the same, by their last issue
  std::int64_t held_bytes_ = 0;
  program::RowsBeyondPlan beyond_plan_;
};

}  // namespace meshplan::runtime
