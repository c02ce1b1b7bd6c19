#include "reports/memory_timeline_report.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "core/index.hpp"
#include "core/units.hpp"
#include "memory_timeline_json.hpp"
#include "planner/search/reasons.hpp"
#include "reports/table.hpp"
#include "timeline_columns.hpp"

namespace meshplan::reports {
namespace {

using sim::MemoryClass;
using sim::MemoryTimeline;

double fixed_bytes(const sim::MemoryUse& use) {
  return use.total() - use[MemoryClass::Activations] - use[MemoryClass::Transient];
}

Table peak_table(const std::vector<const MemoryTimeline*>& timelines) {
  Table table{.columns = {{"stage"},
                          {"held"},
                          {"activations"},
                          {"transient"},
                          {"peak"},
                          {"of planned"},
                          {"mean"},
                          {"at ms"},
                          {"during", Align::Left}}};
  for (const MemoryTimeline* timeline : timelines) {
    const sim::MemoryUse& use = timeline->peak.use;
    table.rows.push_back(
        {std::to_string(timeline->stage), planner::format_bytes(fixed_bytes(use)),
         planner::format_bytes(use[MemoryClass::Activations]),
         planner::format_bytes(use[MemoryClass::Transient]), planner::format_bytes(use.total()),
         planner::format_bytes(timeline->planned_bytes),
         planner::format_bytes(timeline->mean_bytes()),
         fmt::format("{:.1f}", timeline->peak.time_s * kMilliseconds), timeline->during});
  }
  return table;
}

/// Ten steps from nothing to the largest stage's activations and working sets.
std::string curves(const std::vector<const MemoryTimeline*>& timelines) {
  constexpr std::string_view kLevels = " .:-=+*#%@";
  constexpr int kColumns = 72;
  double most = 0, end = 0;
  for (const MemoryTimeline* timeline : timelines) {
    for (const sim::MemorySample& sample : timeline->samples)
      most = std::max(most, sample.use.total() - fixed_bytes(sample.use));
    end = std::max(end, timeline->end_s);
  }
  if (most <= 0 || end <= 0) return {};
  std::string text;
  for (const MemoryTimeline* timeline : timelines) {
    std::string line = fmt::format("  {:>5}  ", timeline->stage);
    for (const sim::MemoryUse& use : fullest_in_columns(*timeline, end, kColumns)) {
      const double part = (use.total() - fixed_bytes(use)) / most;
      const auto last = static_cast<double>(kLevels.size() - 1);
      line += kLevels[static_cast<std::size_t>(std::lround(part * last))];
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return fmt::format("activations and working sets over {:.4g} ms, '@' = {}\n{}",
                     end * kMilliseconds, planner::format_bytes(most), text);
}

}  // namespace

std::vector<sim::MemoryUse> fullest_in_columns(const MemoryTimeline& timeline, double end_s,
                                               int columns) {
  std::vector<sim::MemoryUse> fullest(static_cast<std::size_t>(columns));
  const auto column_of = [&](double time_s) {
    return std::clamp(static_cast<int>(time_s / end_s * columns), 0, columns - 1);
  };
  for (std::size_t i = 0; i < timeline.samples.size(); ++i) {
    const sim::MemorySample& sample = timeline.samples[i];
    const bool last = i + 1 == timeline.samples.size();
    const int first = column_of(sample.time_s);
    // A sample that ends where a column begins is not part of it.
    const int end = last ? columns : column_of(timeline.samples[i + 1].time_s) + 1;
    for (int column = first; column < std::max(end, first + 1); ++column) {
      sim::MemoryUse& use = fullest[at(column)];
      const double begin_s = column * end_s / columns;
      if (column > first && !last && timeline.samples[i + 1].time_s <= begin_s) continue;
      if (sample.use.total() > use.total()) use = sample.use;
    }
  }
  return fullest;
}

std::vector<const MemoryTimeline*> first_of_each_stage(
    const std::vector<MemoryTimeline>& timelines) {
  std::vector<const MemoryTimeline*> first;
  for (const MemoryTimeline& timeline : timelines)
    if (std::ranges::none_of(first, [&](const auto* t) { return t->stage == timeline.stage; }))
      first.push_back(&timeline);
  std::ranges::sort(first, {}, [](const MemoryTimeline* t) { return t->stage; });
  return first;
}

std::string to_text(const std::vector<MemoryTimeline>& timelines) {
  const auto stages = first_of_each_stage(timelines);
  return "memory over the step, each stage's first rank\n" + to_text(peak_table(stages), 2) + "\n" +
         curves(stages);
}

Json memory_timeline_json(const std::vector<MemoryTimeline>& timelines) {
  const auto bytes_of = [](const sim::MemoryUse& use, bool changing) {
    Json bytes = Json::object();
    for (int c = 0; c < sim::kNumMemoryClasses; ++c) {
      const auto memory_class = static_cast<MemoryClass>(c);
      if (changing || !sim::changes_over_step(memory_class))
        bytes[std::string(name_of(memory_class))] = use[memory_class];
    }
    return bytes;
  };
  Json all = Json::array();
  for (const MemoryTimeline& timeline : timelines) {
    Json times = Json::array(), activations = Json::array(), transient = Json::array();
    for (const sim::MemorySample& sample : timeline.samples) {
      times.push_back(sample.time_s);
      activations.push_back(sample.use[MemoryClass::Activations]);
      transient.push_back(sample.use[MemoryClass::Transient]);
    }
    all.push_back({{"stage", timeline.stage},
                   {"rank", timeline.rank},
                   {"planned_bytes", timeline.planned_bytes},
                   {"peak",
                    {{"time_s", timeline.peak.time_s},
                     {"during", timeline.during},
                     {"total_bytes", timeline.peak.use.total()},
                     {"bytes", bytes_of(timeline.peak.use, true)}}},
                   {"mean_bytes", timeline.mean_bytes()},
                   {"held_bytes", bytes_of(timeline.peak.use, false)},
                   {"time_s", std::move(times)},
                   {"activations_bytes", std::move(activations)},
                   {"transient_bytes", std::move(transient)}});
  }
  return all;
}

}  // namespace meshplan::reports
