// Waits that no bytes need.
#pragma once

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

}  // namespace meshplan::testing
