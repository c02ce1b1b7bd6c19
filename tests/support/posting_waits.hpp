// Waits that no bytes need.
#pragma once

#include <algorithm>
#include <variant>

#include "program/program.hpp"

namespace meshplan::testing {

/// A receive waits for the task before the last one so as not to be posted earlier (program::link).
inline bool decides_posting(const program::Program& program,
                            const program::OperationInstance& instance, int awaited) {
  const auto* peer = std::get_if<program::PeerOp>(&program::operation_of(program, instance).work);
  return peer != nullptr && !peer->send &&
         program.instances[static_cast<std::size_t>(awaited)].task.value_or(-1) <=
             *instance.task - 2;
}

/// Makes an instance wait no longer for its wait number `which`, and again as before.
inline void drop_wait(program::Program& program, program::OperationInstance& instance, int which) {
  const auto first = program.waits.begin() + instance.first_wait;
  std::iter_swap(first + which, first + --instance.num_waits);
}
inline void restore_wait(program::Program& program, program::OperationInstance& instance,
                         int which) {
  const auto first = program.waits.begin() + instance.first_wait;
  std::iter_swap(first + which, first + instance.num_waits++);
}

}  // namespace meshplan::testing
