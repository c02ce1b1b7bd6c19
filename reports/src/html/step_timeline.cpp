#include "html/step_timeline.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <set>

#include "core/error.hpp"
#include "program/checks/check.hpp"
#include "program/lower/lower.hpp"
#include "reports/table.hpp"
#include "sim/engine/engine.hpp"

namespace meshplan::reports {
namespace {

program::Plan with_microbatches(program::Plan plan, int microbatches) {
  plan.workload.global_batch_size =
      std::int64_t{microbatches} * plan.micro_batch_size * plan.parallel.dp;
  return plan;
}

/// Operations of one rank of each stage.
std::int64_t operations_of(const program::Plan& plan) {
  std::int64_t operations = 0;
  for (const program::Program& program : program::lower_all(plan))
    operations += std::ssize(program.instances);
  return operations;
}

/// Micro-batches that a schedule of the plan's kind can have, at most `most`; 0 = none.
int allowed_microbatches(const program::Plan& plan, int most) {
  const int step = program::loops_over_chunks(plan.schedule) ? plan.parallel.pp : 1;
  for (int count = most / step * step; count > 0; count -= step)
    if (program::check(with_microbatches(plan, count)).empty()) return count;
  return 0;
}

/// As many as `most_bars` allow: operations grow by as much with each further micro-batch.
int microbatches_within(const program::Plan& plan, std::int64_t most_bars) {
  const int all = plan.num_microbatches();
  const int few = allowed_microbatches(
      plan, std::min(all, 2 * plan.parallel.pp * std::max(1, plan.parallel.vpp)));
  if (few == 0 || few == all) return all;
  const int more = allowed_microbatches(plan, std::min(all, 2 * few));
  const std::int64_t of_few = operations_of(with_microbatches(plan, few));
  if (more <= few) return few;
  const std::int64_t of_more = operations_of(with_microbatches(plan, more));
  const double of_each = static_cast<double>(of_more - of_few) / (more - few);
  const double within = few + static_cast<double>(most_bars - of_few) / of_each;
  return allowed_microbatches(plan, static_cast<int>(std::clamp<double>(within, 0, all)));
}

std::string shorter_note(int shown, int all, std::int64_t most_bars) {
  return fmt::format(
      "The timeline and memory over the step show a step of {} of the {} micro-batches, which has "
      "no more than {} operations (--bars); all other figures are of the whole step.",
      grouped(shown), grouped(all), grouped(most_bars));
}

std::set<int> ranks_of(const program::Trace& trace) {
  std::set<int> ranks;
  for (const program::Span& span : trace.spans) ranks.insert(span.rank);
  return ranks;
}

}  // namespace

StepTimeline predicted_timeline(const program::Plan& plan, const sim::Cluster& cluster,
                                std::int64_t most_bars) {
  const int all = plan.num_microbatches();
  StepTimeline timeline{.trace = {}, .all_microbatches = all};
  timeline.trace.plan = plan;
  const bool can_be_shorter = plan.schedule != program::ScheduleKind::Custom;
  for (int count = can_be_shorter ? microbatches_within(plan, most_bars) : all; count > 0;) {
    try {
      const program::Plan shown = with_microbatches(plan, count);
      sim::SimulationResult result = sim::simulate(program::lower_all(shown), cluster);
      const std::int64_t bars = std::ssize(result.trace.spans);
      if (bars <= most_bars) {
        timeline.trace = std::move(result.trace);
        timeline.microbatches = count;
        if (count < all) timeline.note = shorter_note(count, all, most_bars);
        return timeline;
      }
      const double part = static_cast<double>(most_bars) / static_cast<double>(bars);
      count = std::min(count - 1, static_cast<int>(count * part));
    } catch (const ConfigError&) {  // too many operations to play with a span of each
      count /= 2;
    }
    count = can_be_shorter ? allowed_microbatches(plan, count) : 0;
  }
  timeline.note = fmt::format(
      "No timeline, and no memory over the step: even its shortest pipeline has more than {} "
      "operations (--bars).",
      grouped(most_bars));
  return timeline;
}

StepTimeline measured_timeline(const program::Trace& measured, const StepTimeline& predicted,
                               std::int64_t most_bars) {
  StepTimeline timeline{.trace = measured,
                        .microbatches = predicted.all_microbatches,
                        .all_microbatches = predicted.all_microbatches};
  std::vector<program::Span>& spans = timeline.trace.spans;
  const std::size_t given = spans.size();
  if (!spans.empty()) {
    const int first = std::ranges::min_element(spans, {}, &program::Span::step)->step;
    std::erase_if(spans, [&](const program::Span& span) { return span.step != first; });
  }
  const std::size_t of_step = spans.size();
  if (of_step < given) timeline.note = "Of the run the first traced step is shown. ";
  if (std::ssize(spans) <= most_bars) return timeline;
  const std::set<int> shown = ranks_of(predicted.trace);
  std::erase_if(spans, [&](const program::Span& span) { return !shown.contains(span.rank); });
  timeline.note +=
      fmt::format("{} of {} measured operations: of one rank of each stage (--bars). ",
                  grouped(std::ssize(spans)), grouped(static_cast<std::int64_t>(of_step)));
  if (std::ssize(spans) <= most_bars) return timeline;
  timeline.microbatches = predicted.microbatches;
  std::erase_if(spans, [&](const program::Span& span) {
    return span.microbatch.value_or(0) >= timeline.microbatches;
  });
  if (std::ssize(spans) > most_bars) spans.clear();
  timeline.note += fmt::format("The first {} micro-batches.", timeline.microbatches);
  return timeline;
}

}  // namespace meshplan::reports
