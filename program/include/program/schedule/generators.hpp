// The schedules that a plan can name; zero_bubble.hpp has those without bubble.
#pragma once

#include <cstdint>

#include "program/schedule/schedule.hpp"

namespace meshplan::program {

/// All forwards, then all backwards. Huang et al. 2019, section 2.3.
Schedule gpipe(int num_stages, int num_microbatches);

/// Warm-up of pp - 1 - stage forwards, then one forward and one backward in turn.
/// Narayanan et al. 2021 (PipeDream-flush), section 2.2.1.
Schedule one_f_one_b(int num_stages, int num_microbatches);

/// 1F1B over `num_chunks` chunks a rank: micro-batches go through the chunks in groups of pp.
/// Narayanan et al. 2021, section 2.2.2. Any number of micro-batches: a last group that is not
/// whole takes the time of a whole one.
Schedule interleaved(int num_stages, int num_microbatches, int num_chunks);
/// 1F1B, interleaved where there are chunks, each of whose forwards after the warm-up runs together
/// with the backward that would follow it: one forward more is run before, so that it is of another
/// micro-batch.
Schedule overlapped_one_f_one_b(int num_stages, int num_microbatches, int num_chunks);

/// Two chunks a rank in a V; in the steady state each forward is overlapped with a backward.
/// DeepSeek-AI 2024 (DeepSeek-V3), section 3.2.1, cut in half as in DualPipe's repository.
Schedule dualpipe_v(int num_stages, int num_microbatches);

/// Micro-batches that a schedule is made for before those that do not exist are left out: enough to
/// fill the pipeline of a V, and whole groups where it is interleaved.
std::int64_t generated_microbatches(ScheduleKind kind, int num_stages,
                                    std::int64_t num_microbatches);

/// @param num_chunks  read where chunks loop
Schedule make_schedule(ScheduleKind kind, int num_stages, int num_microbatches, int num_chunks = 1);

}  // namespace meshplan::program
