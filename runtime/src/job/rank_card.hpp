// What each rank tells all others at the start, and the layout of the job that follows.
#pragma once

#include <cstdint>
#include <sched.h>
#include <span>

#include "runtime/comm/job_layout.hpp"

namespace meshplan::runtime {

/// Sent as bytes between ranks of one program.
struct RankCard {
  std::uint64_t machine = 0;
  cpu_set_t cores;
  char host[128];
};

RankCard own_card();

/// @param cards  one of each rank, in rank order
JobLayout layout_of(int rank, std::span<const RankCard> cards);

/// Lets naps of this process end on time where its machine has up to two ranks a core.
void sharpen_naps(const JobLayout& layout);

}  // namespace meshplan::runtime
