// A stage's operations as they are looked for among kernels.
#pragma once

#include <optional>
#include <vector>

#include "planner/runs/kineto_trace.hpp"
#include "program/trace/trace.hpp"

namespace meshplan::planner {

struct ListedOperation {
  program::Span span;  // without times
  KernelKind kind = KernelKind::Other;
  bool backward = false;
  std::optional<program::Collective> collective;
  std::optional<bool> sends;
  std::int64_t message_bytes = 0;
};

/// In the order in which a rank of the plan issues them.
std::vector<ListedOperation> list_operations(const program::Plan& plan, int rank);

}  // namespace meshplan::planner
