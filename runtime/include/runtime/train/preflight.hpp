// Checks before any rank starts, so that bad input costs no job.
#pragma once

#include <string>

#include "program/plan/plan.hpp"
#include "runtime/comm/job_layout.hpp"

namespace meshplan::runtime {

/// Text that every Debian and Ubuntu machine has, for runs without a data file: real English, a
/// byte a token.
constexpr const char* kDefaultText = "/usr/share/common-licenses/GPL-3";

/// The data file exists, holds a global batch (two with evaluation), and its tokens can be in the
/// vocabulary.
/// @throws ConfigError, IoError
void check_data(const program::Plan& plan, const std::string& path, bool with_evaluation);

/// The arenas of the ranks that share a host fit its memory.
/// @param ranks_on_host  of the fullest host
/// @param state_copies  of what a rank saves, that it holds in host memory besides: one for
/// checkpoints, kept_states() for states in memory
/// @throws IoError naming what is needed and what is there
void check_memory(const program::Plan& plan, int ranks_on_host, int state_copies);

/// The job's machines are what the plan's cluster describes: as many machines, as many ranks on
/// each. Only for plans of CPU clusters; others are run wherever there is room.
/// @param num_nodes, ranks_per_node  of the plan's cluster; 0 = unknown
/// @throws ConfigError
void check_placement(const JobLayout& layout, int num_nodes, int ranks_per_node);

}  // namespace meshplan::runtime
