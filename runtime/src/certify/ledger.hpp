// What a rank's communications sent, received and summed in a step: data alone.
// witness.hpp fills it, settle.hpp compares it with the other ranks'.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "program/calibration/collective_table.hpp"
#include "runtime/comm/communicator.hpp"

namespace meshplan::runtime {

/// What one call sends to, or receives from, one rank of its group.
struct Block {
  /// Of a message its tag. Blocks of one lane between two ranks match in the order of the calls.
  static constexpr int kCollective = -1;
  static constexpr int kSumResult = -2;  // sent to the group's first rank, which has the same

  int lane = kCollective;
  program::CommOp operation = program::CommOp::PointToPoint;
  int call = 0;            // since the step began, of its operation; of messages, in its lane
  std::uint64_t hash = 0;  // XXH3
  bool seen = true;        // false: nobody has waited for its end, so its memory was not read
};

/// A reduction on one rank.
struct Sum {
  program::CommOp operation = program::CommOp::AllReduce;
  int call = 0;
  ReduceOp reduce = ReduceOp::Sum;
  DType dtype = DType::F32;
  std::vector<std::byte> given;   // as it was before the call
  std::vector<std::byte> result;  // as it was when the call was done
  bool seen = false;
};

/// A group's part of the ledger, of one step.
struct GroupLedger {
  GroupLedger(int number_, std::string kind_, std::shared_ptr<Communicator> inner_)
      : number(number_),
        kind(std::move(kind_)),
        inner(std::move(inner_)),
        sent(static_cast<std::size_t>(inner->size())),
        received(sent.size()) {}

  int number = 0;    // of its create_group() call, the same on all ranks; 0 = the world
  std::string kind;  // "tp"
  std::shared_ptr<Communicator> inner;
  std::vector<std::vector<Block>> sent;  // by rank of the group, in the order of calls
  std::vector<std::vector<Block>> received;
  std::vector<Sum> sums;  // in the order of calls
  std::map<program::CommOp, int> next_call;
  std::map<std::tuple<int, int, bool>, int> next_message;  // by (peer, tag, is it received)

  void clear() {
    for (auto* blocks : {&sent, &received})
      for (std::vector<Block>& of_peer : *blocks) of_peer.clear();
    sums.clear();
    next_call.clear();
    next_message.clear();
  }
};

using Ledger = std::vector<std::shared_ptr<GroupLedger>>;  // by ascending number

}  // namespace meshplan::runtime
