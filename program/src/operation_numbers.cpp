#include "program/operation_numbers.hpp"

namespace meshplan::program {

OperationNumbers::OperationNumbers(const Program& program) {
  const auto reserve = [&](const std::vector<Operation>& operations) {
    const int first = count_;
    count_ += static_cast<int>(operations.size());
    return first;
  };
  for (const program::Block& block : program.blocks)
    blocks_.push_back({.forward = reserve(block.forward),
                       .backward = reserve(block.backward),
                       .passes = reserve(block.passes)});
  first_of_step_ = reserve(program.step_operations);
}

}  // namespace meshplan::program
