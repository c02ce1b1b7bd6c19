// Schedules that split a backward pass in two, so that weight gradients fill the bubble (Qi et al.
// 2023). docs/pipeline.md draws them.
#pragma once

#include "program/schedule/schedule.hpp"

namespace meshplan::program {

/// 1F1B whose weight gradients are put off to fill the cool-down, by `stage` micro-batches, so that
/// no stage holds more than 1F1B's first one. Qi et al. 2023, section 3.1 and figure 3.
Schedule zb_h1(int num_stages, int num_microbatches);

/// Two chunks a rank in a V, weight gradients apart. Without bubble where forward, input gradient
/// and weight gradient take equally long. Qi et al. 2023, section 6.
Schedule zb_v(int num_stages, int num_microbatches);

}  // namespace meshplan::program
