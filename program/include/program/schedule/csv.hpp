#pragma once

#include <string>
#include <string_view>

#include "program/schedule/schedule.hpp"

namespace meshplan::program {

/// One line a stage in PyTorch's form (torch.distributed.pipelining, `compute_only`): "0F0,0F1,0B0"
/// are forward and backward of virtual stage 0; I and W are the halves of a backward,
/// "(0F1;3B0)OVERLAP_F_B" is an overlapped pair.
std::string to_csv(const Schedule& schedule);

/// Reads what to_csv() or PyTorch writes. Empty cells (idle) are skipped, and so are PyTorch's
/// communication actions, for lowering inserts its own.
/// @throws ConfigError naming file, line and cell
Schedule parse_schedule_csv(std::string_view text, const std::string& file);

}  // namespace meshplan::program
