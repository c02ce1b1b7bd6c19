// One operator to time, on memory of its own.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "measure/call_timer.hpp"
#include "program/program.hpp"
#include "runtime/execute/device.hpp"

namespace meshplan::runtime {

/// An operation to time: the first instance with its signature.
struct OperatorJob {
  std::string signature;
  const program::Program* program = nullptr;
  const program::OperationInstance* instance = nullptr;
  std::optional<program::StepOp> step;
};

/// Every distinct signature of the programs, which must outlive the result; the optimizer and the
/// norm at a few sizes, for all others follow from bytes.
std::vector<OperatorJob> distinct_jobs(std::span<const program::Program> programs);

/// Memory for the operands of one operation at a time.
class OperandPool {
 public:
  explicit OperandPool(kernels::Backend& backend) : backend_(backend) {}
  ~OperandPool();
  OperandPool(const OperandPool&) = delete;
  OperandPool& operator=(const OperandPool&) = delete;

  /// Filled with small random numbers where it is new.
  std::byte* reserve(std::int64_t bytes);

 private:
  kernels::Backend& backend_;
  std::byte* memory_ = nullptr;
  std::int64_t bytes_ = 0;
};

/// One operator, bound to several copies of its operands.
class OperatorBench {
 public:
  /// All must outlive it.
  OperatorBench(const OperatorJob& job, OperandPool& pool, Device& device);
  ~OperatorBench();
  OperatorBench(const OperatorBench&) = delete;
  OperatorBench& operator=(const OperatorBench&) = delete;

  TimedCall timed();

 private:
  class Operands;
  std::unique_ptr<Operands> operands_;
};

}  // namespace meshplan::runtime
