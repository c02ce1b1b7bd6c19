#pragma once

#include <map>
#include <tuple>
#include <vector>

#include "program/program.hpp"

namespace meshplan::program {

/// What layers' operations take, roughly, on a GPU of a data center: what the order of operations
/// is chosen by, which every rank must choose alike whatever it runs on. Never shown, and no price:
/// those are the simulator's.
///
/// The balance is that of an H100 (data sheet) at usual efficiencies: 500 TFLOP/s of products,
/// 2.5 TB/s of memory, 350 GB/s to ranks beside this one and 45 GB/s to all others; a kernel takes
/// 3 us at least, a collective 10. Micro-batches are of one sequence, so that an order is the same
/// for every size of them.
class NominalTimes {
 public:
  /// @param of  whose plan and document pairs are read
  NominalTimes(const Program& of, std::vector<Block> blocks);

  /// Seconds. @param operation  of one of the blocks
  double seconds(const OperationRef& operation);

 private:
  Program program_;
  std::map<std::tuple<int, bool, int>, double> known_;
};

}  // namespace meshplan::program
