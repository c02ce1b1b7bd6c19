#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/units.hpp"
#include "reports/comparison.hpp"
#include "reports/table.hpp"

namespace meshplan::reports {
namespace {

using sim::Category;
using sim::DelayCause;
using sim::DelayKind;

constexpr std::size_t kMostCauses = 6;
constexpr std::size_t kLongestName = 44;  // so that tables fit 100 columns

std::string milliseconds(double seconds) {
  return fmt::format("{:.2f}", seconds * kMilliseconds);
}

std::string signed_milliseconds(double seconds) {
  return fmt::format("{:+.2f}", seconds * kMilliseconds);
}

std::string error_of(double predicted, double measured) {
  return measured > 0 ? fmt::format("{:+.1f} %", (predicted / measured - 1) * 100) : "-";
}

std::string mib(double bytes) {
  return bytes > 0 ? fmt::format("{:.1f}", bytes / kMib) : "-";
}

std::string shortened(const std::string& name) {
  return name.size() <= kLongestName ? name : name.substr(0, kLongestName - 3) + "...";
}

/// What one save costs, if the run saved there while it went on.
void add_saving(Table& steps, std::string_view place, const program::SavingTimes& saving) {
  if (saving.saves == 0 || !saving.predicted) return;
  const auto predicted = static_cast<double>(saving.predicted->bytes);
  const auto measured = static_cast<double>(saving.bytes);
  steps.rows.push_back({fmt::format("saved to {} by a rank, MiB", place), mib(predicted),
                        mib(measured), error_of(predicted, measured)});
  steps.rows.push_back({fmt::format("stall of a save to {}, ms", place),
                        milliseconds(saving.predicted->stall_s),
                        milliseconds(saving.stall_of_save_s()),
                        error_of(saving.predicted->stall_s, saving.stall_of_save_s())});
}

std::string steps_text(const Comparison& c) {
  Table steps{.columns = {{"", Align::Left}, {"predicted"}, {"measured"}, {"error"}}, .rows = {}};
  steps.rows.push_back({"step time, ms", milliseconds(c.predicted.median_s),
                        milliseconds(c.measured.median_s),
                        error_of(c.predicted.median_s, c.measured.median_s)});
  steps.rows.push_back({"peak memory of the largest rank, MiB", mib(c.predicted_memory_bytes),
                        mib(c.measured_memory_bytes),
                        error_of(c.predicted_memory_bytes, c.measured_memory_bytes)});
  for (const AllocatorPeak& peak : c.allocator)
    steps.rows.push_back({fmt::format("peak {} by PyTorch, MiB", peak.name),
                          mib(peak.predicted_bytes), mib(peak.measured_bytes),
                          error_of(peak.predicted_bytes, peak.measured_bytes)});
  add_saving(steps, "disk", c.saving.disk);
  add_saving(steps, "memory", c.saving.memory);
  std::string text = to_text(steps);
  if (c.measured.steps > 1)
    text += fmt::format("measured: median of {} steps after {} of warm-up; p10 {}, p90 {} ms\n",
                        c.measured.steps, c.measured.warmup_steps, milliseconds(c.measured.p10_s),
                        milliseconds(c.measured.p90_s));
  if (c.interval && c.extrapolations.empty())
    text += fmt::format("predicted: 80 % interval {} to {} ms\n", milliseconds(c.interval->low_s),
                        milliseconds(c.interval->high_s));
  return text + to_text(c.extrapolations, c.interval);
}

Table category_table(const Comparison& c) {
  Table table{.columns = {{"category", Align::Left},
                          {"predicted ms"},
                          {"measured ms"},
                          {"difference"},
                          {"critical rank: predicted"},
                          {"measured"}},
              .rows = {}};
  const bool predicts_ranks = c.predicted_critical.total() > 0;
  const auto add = [&](std::string name, double predicted, double measured, double predicted_rank,
                       double measured_rank) {
    table.rows.push_back({std::move(name), milliseconds(predicted), milliseconds(measured),
                          signed_milliseconds(predicted - measured),
                          predicts_ranks ? milliseconds(predicted_rank) : "-",
                          milliseconds(measured_rank)});
  };
  for (const Category category : sim::all_categories())
    if (c.predicted_mean[category] != 0 || c.measured_mean[category] != 0)
      add(std::string(sim::name_of(category)), c.predicted_mean[category],
          c.measured_mean[category], c.predicted_critical[category], c.measured_critical[category]);
  add("sum", c.predicted_mean.total(), c.measured_mean.total(), c.predicted_critical.total(),
      c.measured_critical.total());
  return table;
}

/// Where the step goes that nothing but its time was measured of.
std::string predicted_categories(const Comparison& c) {
  if (c.predicted_mean.total() <= 0) return "";
  Table table{.columns = {{"category", Align::Left}, {"predicted ms"}, {"share"}}, .rows = {}};
  for (const Category category : sim::all_categories())
    if (const double seconds = c.predicted_mean[category]; seconds != 0)
      table.rows.push_back({std::string(sim::name_of(category)), milliseconds(seconds),
                            percent(seconds / c.predicted_mean.total())});
  return "\n" + to_text(table);
}

std::string communication_text(const Comparison& c) {
  if (c.communication.empty()) return "";
  Table table{.columns = {{"communication, ms", Align::Left},
                          {"waiting"},
                          {"measured"},
                          {"transfer"},
                          {"measured"},
                          {"slowed"},
                          {"measured"}},
              .rows = {}};
  for (const auto& [group, predicted, measured] : c.communication)
    table.rows.push_back({group, milliseconds(predicted.waiting_s),
                          milliseconds(measured.waiting_s), milliseconds(predicted.transfer_s),
                          milliseconds(measured.transfer_s), milliseconds(predicted.slowdown_s),
                          milliseconds(measured.slowdown_s)});
  return "\n" + to_text(table) +
         "each predicted, then measured; waiting: until the last member came; slowed: by what a "
         "rank "
         "computes\n";
}

std::string operation_of(const DelayCause& cause) {
  switch (cause.kind) {
    case DelayKind::Operation:
      return shortened(cause.operation);
    case DelayKind::Transfer:
      return shortened(fmt::format("{}: {}", cause.group, cause.operation));
    case DelayKind::Gap:
      return shortened(cause.operation.empty() ? "after the last operation"
                                               : "nothing before " + cause.operation);
    case DelayKind::Schedule:
      return "the schedule: no operation took longer";
  }
  return "";
}

std::string place_of(const DelayCause& cause) {
  if (cause.kind == DelayKind::Schedule) return "-";
  if (cause.kind != DelayKind::Transfer || cause.members.size() < 2)
    return std::to_string(cause.rank);
  if (cause.members.size() > 4)
    return fmt::format("{} of {} to {}", cause.rank, cause.members.front(), cause.members.back());
  return fmt::format("{} of {}", cause.rank, fmt::join(cause.members, " "));
}

std::string causes_text(const std::vector<DelayCause>& causes) {
  if (causes.empty()) return "";
  Table table{.columns = {{"where waiting began", Align::Left},
                          {"rank"},
                          {"times"},
                          {"usually ms"},
                          {"longer by"},
                          {"others waited"}},
              .rows = {}};
  for (const DelayCause& cause : causes) {
    if (table.rows.size() == kMostCauses) break;
    const bool counted = cause.kind != DelayKind::Schedule;
    table.rows.push_back(
        {operation_of(cause), place_of(cause), counted ? std::to_string(cause.executions) : "-",
         counted && cause.usual_s > 0 ? milliseconds(cause.usual_s) : "-",
         counted ? milliseconds(cause.excess_s) : "-", milliseconds(cause.waited_s)});
  }
  return "\n" + to_text(table);
}

std::string operations_text(const Comparison& c, int most_operations) {
  if (c.operations.empty()) return "";
  Table table{.columns = {{"operation (largest difference first)", Align::Left},
                          {"predicted ms"},
                          {"measured ms"},
                          {"difference"},
                          {"error"}},
              .rows = {}};
  for (const OperationDifference& d : c.operations) {
    if (static_cast<int>(table.rows.size()) == most_operations) break;
    table.rows.push_back(
        {shortened(d.name), milliseconds(d.predicted_s), milliseconds(d.measured_s),
         signed_milliseconds(d.predicted_s - d.measured_s), error_of(d.predicted_s, d.measured_s)});
  }
  return "\n" + to_text(table);
}

std::string kernels_text(const planner::KernelMatch& match, int most_rows) {
  std::string text = fmt::format(
      "\n{} of {} kernels, {} of their time, are matched to operations:\n{} by name, {} by size, "
      "{} "
      "by order; {} more lie outside of the steps.\n",
      grouped(match.matched()), grouped(match.kernels),
      percent(match.seconds > 0 ? match.matched_s / match.seconds : 0), grouped(match.by_name),
      grouped(match.by_size), grouped(match.by_order), grouped(match.outside));
  if (match.unmatched.empty()) return text;
  Table table{.columns = {{"not matched", Align::Left}, {"kind", Align::Left}, {"times"}, {"ms"}},
              .rows = {}};
  for (const planner::UnmatchedKernel& kernel : match.unmatched) {
    if (static_cast<int>(table.rows.size()) == most_rows) break;
    table.rows.push_back({shortened(kernel.name), std::string(planner::name_of(kernel.kind)),
                          std::to_string(kernel.times), milliseconds(kernel.seconds)});
  }
  return text + to_text(table);
}

}  // namespace

std::string to_text(const Comparison& c, int most_operations) {
  std::string text =
      fmt::format("{}  {}  micro-batch {}  {} sequences of {}\n\n", c.plan.model.name,
                  program::to_string(c.plan.parallel), c.plan.micro_batch_size,
                  c.plan.workload.global_batch_size, c.plan.workload.seq_len);
  text += steps_text(c) + "\n";
  if (!c.measured_operations)
    return text + "no spans: the measurement has step times alone (run with --trace for more)\n" +
           predicted_categories(c);
  text += fmt::format(
      "Traced steps take {} ms, {:+.1f} % of an untraced one. Mean over ranks; critical rank {}."
      "\n\n",
      milliseconds(c.measured_mean.total()), c.tracing_overhead * 100, c.critical_rank);
  text += to_text(category_table(c)) + communication_text(c) + causes_text(c.causes);
  text += operations_text(c, most_operations);
  if (c.kernels) text += kernels_text(*c.kernels, most_operations);
  return text;
}

}  // namespace meshplan::reports
