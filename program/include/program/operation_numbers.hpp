// Operations of a program numbered from 0 on, for tables by operation.
#pragma once

#include <vector>

#include "core/index.hpp"
#include "program/program.hpp"

namespace meshplan::program {

/// Those of blocks first, block by block, then those of the step.
class OperationNumbers {
 public:
  explicit OperationNumbers(const Program& program);

  int count() const { return count_; }
  int of(const OperationRef& ref) const {
    if (!ref.block) return first_of_step_ + ref.index;
    const Block& block = blocks_[at(*ref.block)];
    return (ref.pass ? block.passes : (ref.backward ? block.backward : block.forward)) + ref.index;
  }

 private:
  struct Block {  // the numbers of its first operations
    int forward = 0, backward = 0, passes = 0;
  };
  std::vector<Block> blocks_;
  int first_of_step_ = 0;
  int count_ = 0;
};

}  // namespace meshplan::program
