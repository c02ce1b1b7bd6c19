#pragma once

#include <cstdint>

#include "program/program.hpp"

namespace meshplan::runtime {

/// Host memory that saving takes on a rank: a copy of what it saves.
std::int64_t snapshot_bytes(const program::Program& program);

}  // namespace meshplan::runtime
