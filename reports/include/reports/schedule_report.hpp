#pragma once

#include <string>

#include "program/schedule/schedule.hpp"

namespace meshplan::reports {

/// What every rank does when, drawn: a cell is one unit of time, in which a chunk's forward, input
/// gradient or weight gradient runs; a full backward takes two. With the bubble and how much is in
/// flight. @param name  of the schedule
std::string to_text(const program::Schedule& schedule, const std::string& name,
                    int num_microbatches);
std::string to_json(const program::Schedule& schedule, const std::string& name,
                    int num_microbatches);

}  // namespace meshplan::reports
