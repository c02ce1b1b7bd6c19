#include "timing_report.hpp"

#include <algorithm>
#include <fmt/format.h>

#include "core/units.hpp"
#include "reports/table.hpp"

namespace meshplan::reports {
namespace {

using program::BucketTime;
using program::OverRanks;
using program::StepTiming;

std::string milliseconds(double seconds) {
  return fmt::format("{:.3f}", seconds * kMilliseconds);
}

std::vector<std::string> cells(std::string name, const OverRanks& seconds) {
  return {std::move(name), milliseconds(seconds.min), milliseconds(seconds.mean),
          milliseconds(seconds.max), std::to_string(seconds.max_rank)};
}

std::string phases(const StepTiming& timing) {
  Table table{.columns = {{"phase", Align::Left}, {"min"}, {"mean"}, {"max"}, {"of rank"}}};
  for (const std::string& name : program::phase_names())
    if (const auto found = timing.phases_s.find(name);
        found != timing.phases_s.end() && found->second.max > 0)
      table.rows.push_back(cells(name, found->second));
  return "where a rank's step goes, ms\n" + to_text(table, 2);
}

std::string communication(const StepTiming& timing) {
  if (timing.communication.empty()) return {};
  Table table{.columns = {{"group", Align::Left},
                          {"exposed min"},
                          {"mean"},
                          {"max"},
                          {"of rank"},
                          {"hidden mean"}}};
  for (const auto& [axis, time] : timing.communication) {
    table.rows.push_back(cells(axis, time.exposed_s));
    table.rows.back().push_back(milliseconds(time.hidden_s.mean));
  }
  return "communication by group, ms\n" + to_text(table, 2);
}

std::string buckets(const StepTiming& timing) {
  constexpr std::size_t kMostShown = 6;
  if (timing.buckets.empty()) return {};
  std::vector<BucketTime> slowest = timing.buckets;
  std::ranges::stable_sort(slowest, std::ranges::greater{},
                           [](const BucketTime& bucket) { return bucket.seconds.max; });
  if (slowest.size() > kMostShown) slowest.resize(kMostShown);
  Table table{.columns = {{"bucket", Align::Left}, {"min"}, {"mean"}, {"max"}, {"of rank"}}};
  for (const BucketTime& bucket : slowest)
    table.rows.push_back(cells(fmt::format("stage {}, {} of {:.2f} MiB", bucket.stage,
                                           bucket.bucket, static_cast<double>(bucket.bytes) / kMib),
                               bucket.seconds));
  const std::size_t left = timing.buckets.size() - slowest.size();
  return fmt::format("slowest gradient buckets{}, ms\n",
                     left > 0 ? fmt::format(" ({} more)", left) : "") +
         to_text(table, 2);
}

}  // namespace

std::string to_text(const StepTiming& timing) {
  return phases(timing) + communication(timing) + buckets(timing) +
         fmt::format("busy {} of the step ({} to {}); balance of ranks {:.3f}, of stages {:.3f}\n",
                     percent(timing.busy_share.mean), percent(timing.busy_share.min),
                     percent(timing.busy_share.max), timing.rank_balance, timing.stage_balance);
}

}  // namespace meshplan::reports
