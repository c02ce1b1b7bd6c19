// Which operations of a step a page shows, where they are more than it may hold.
#pragma once

#include "reports/html/page.hpp"

namespace meshplan::reports {

/// Plays as many micro-batches as `most_bars` operations allow, and keeps a span of each operation.
/// Without spans, and with a note, where not even the shortest such step is short enough.
StepTimeline predicted_timeline(const program::Plan& plan, const sim::Cluster& cluster,
                                std::int64_t most_bars);

/// The first traced step: all ranks if they have no more operations than `most_bars`, else the
/// ranks and micro-batches that the prediction shows.
StepTimeline measured_timeline(const program::Trace& measured, const StepTimeline& predicted,
                               std::int64_t most_bars);

}  // namespace meshplan::reports
