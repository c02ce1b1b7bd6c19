#include "reports/search_report.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "models/counts.hpp"
#include "plan_lines.hpp"
#include "planner/search/reasons.hpp"
#include "program/plan/frozen.hpp"
#include "program/plan/plan_names.hpp"
#include "program/plan/stack_names.hpp"
#include "reports/adjustment_report.hpp"
#include "reports/extrapolation_report.hpp"
#include "reports/failures/failure_report.hpp"
#include "reports/table.hpp"
#include "search/ranked_interval.hpp"
#include "sim/prices/operator_constants.hpp"
#include "terms_table.hpp"

namespace meshplan::reports {
namespace {

using planner::Alternative;
using planner::RankedPlan;
using planner::Rejection;
using planner::SearchCounts;

constexpr std::size_t kMostAlternatives = 8;
constexpr std::size_t kMostRejections = 12;

std::string counts_line(const SearchCounts& counts, double seconds) {
  const auto number = [](std::size_t n) { return grouped(static_cast<std::int64_t>(n)); };
  return fmt::format(
      "{} plans: {} break a rule, {} do not fit, {} slower by a bound, {} ranked ({} refined)   "
      "{:.1f} s\n",
      number(counts.total), number(counts.broke_a_rule), number(counts.did_not_fit),
      number(counts.bounded), number(counts.ranked), number(counts.refined), seconds);
}

std::string interrupted_text(bool incomplete) {
  return incomplete ? "interrupted: the search looked at no more than these; others may be faster\n"
                    : "";
}

std::string interval_text(const RankedPlan& ranked) {
  const auto interval = interval_of(ranked);
  return interval ? fmt::format("{} to {}", planner::format_seconds(interval->low_s),
                                planner::format_seconds(interval->high_s))
                  : "";
}

std::string ranked_table(const std::vector<RankedPlan>& ranked) {
  const bool simulated = ranked.front().simulated.has_value();
  const bool fails = ranked.front().goodput.has_value();
  Table table{.columns = {{"#"},
                          {"plan", Align::Left},
                          {simulated ? "step time, simulated" : "step time, estimated"},
                          {"80 % interval"},
                          {"slower"},
                          {"MFU"},
                          {"memory"}}};
  constexpr std::ptrdiff_t kGoodputAt = 4;  // behind the interval
  if (fails)
    table.columns.insert(table.columns.begin() + kGoodputAt, {{"goodput"}, {"over goodput"}});
  const double best = ranked.front().effective_s();
  for (std::size_t i = 0; i < ranked.size(); ++i) {
    const RankedPlan& plan = ranked[i];
    const double step = plan.step_time_s();
    table.rows.push_back(
        {std::to_string(i + 1), planner::describe(planner::candidate_of(plan.plan)),
         planner::format_seconds(step), interval_text(plan),
         plan.ties ? "tie"
                   : (i == 0 ? "" : fmt::format("+{}", percent(plan.effective_s() / best - 1))),
         percent(plan.plan.prediction->mfu), planner::format_bytes(plan.step().peak_memory_bytes)});
    if (fails)
      table.rows.back().insert(
          table.rows.back().begin() + kGoodputAt,
          {percent(plan.goodput->goodput), planner::format_seconds(plan.effective_s())});
  }
  std::string text = to_text(table, 1);
  if (ranked.front().ties)
    text += "tie: nearer to #1 than the prediction can tell; #1 is the simplest to run of them\n";
  return text;
}

// Alternatives that exist come first, the closest ones before the others.
std::vector<const Alternative*> by_interest(const std::vector<Alternative>& alternatives) {
  std::vector<const Alternative*> sorted;
  sorted.reserve(alternatives.size());
  for (const Alternative& alternative : alternatives) sorted.push_back(&alternative);
  std::ranges::stable_sort(sorted, {}, [](const Alternative* alternative) {
    return std::pair(!alternative->plan, alternative->slower_by_s);
  });
  return sorted;
}

/// Alternatives that were not played although they may come near the first plan.
std::string unplayed_text(const std::vector<Alternative>& alternatives) {
  std::vector<std::string> unplayed;
  for (const Alternative& alternative : alternatives)
    if (alternative.estimated_times && *alternative.estimated_times <= planner::kFarSlower)
      unplayed.push_back(
          fmt::format("{} ({:.2f})", alternative.choice, *alternative.estimated_times));
  if (unplayed.empty()) return "";
  return fmt::format(
      "  not played, for the search had played enough; estimated, times as long as #1: {}\n",
      fmt::join(unplayed, ", "));
}

std::string alternatives_text(const std::vector<Alternative>& alternatives) {
  Table table{.columns = {{"", Align::Left}, {""}, {"", Align::Left}, {"", Align::Left}}};
  const RankedPlan* previous = nullptr;
  for (const Alternative* alternative : by_interest(alternatives)) {
    if (!alternative->plan) break;
    if (previous != nullptr && previous->plan == alternative->plan->plan) {  // one more choice
      table.rows.back().front() += ", " + alternative->choice;
      continue;
    }
    if (table.rows.size() == kMostAlternatives) break;
    previous = &*alternative->plan;
    table.rows.push_back(
        {alternative->choice,
         alternative->plan->ties ? "tie" : "+" + planner::format_seconds(alternative->slower_by_s),
         planner::describe(planner::candidate_of(alternative->plan->plan)), alternative->reason});
  }
  const std::string unplayed = unplayed_text(alternatives);
  if (table.rows.empty() && unplayed.empty()) return "";
  return "\nwhy not (the best plan with another choice; +: it takes longer than #1)\n" +
         to_text(table, 2) + unplayed;
}

/// "nodes    in this order the fastest; dgx-h100:4+dgx-a100:4: 12.3 s"; empty if there is one
/// order.
std::string node_orders_line(const std::vector<planner::NodeOrder>& orders,
                             const std::string& chosen) {
  std::vector<std::string> others;
  for (const planner::NodeOrder& order : orders)
    if (order.cluster != chosen)
      others.push_back(fmt::format("{}: {}", order.cluster,
                                   order.step_time_s ? planner::format_seconds(*order.step_time_s)
                                                     : std::string("none fits")));
  if (others.empty()) return "";
  return fmt::format("nodes    {} is the fastest order, first stages first; {}\n", chosen,
                     fmt::join(others, ", "));
}

/// "dispatch deepep: 23.7 s, all_to_all: 26.1 s (--stack expert_dispatch=NAME keeps one)"; empty if
/// one was searched.
std::string dispatches_line(const std::vector<planner::DispatchChoice>& choices) {
  std::vector<std::string> texts;
  for (const planner::DispatchChoice& choice : choices)
    texts.push_back(fmt::format("{}: {}", meshplan::name_of(choice.dispatch),
                                choice.step_time_s ? planner::format_seconds(*choice.step_time_s)
                                                   : std::string("none fits")));
  if (texts.empty()) return "";
  return fmt::format(
      "dispatch {} (the fastest plan of each; --stack expert_dispatch=NAME keeps one)\n",
      fmt::join(texts, ", "));
}

/// "#1: goodput 97.1 %, 0.06 failures a day, ..."; empty if failures are not asked for.
std::string goodput_line(const RankedPlan& best) {
  return best.goodput ? fmt::format("#1: {}\n", goodput_text(*best.goodput)) : "";
}

std::string reserve_text(double reserve) {
  return reserve > 0 ? fmt::format("; {:.3g} % of each device are kept free, --memory-reserve",
                                   100 * reserve)
                     : std::string();
}

std::string suggestions_text(const std::vector<planner::Suggestion>& suggestions) {
  if (suggestions.empty()) return "";
  Table table{.columns = {{"", Align::Left}, {"", Align::Left}, {""}, {""}}};
  for (const planner::Suggestion& suggestion : suggestions)
    table.rows.push_back({suggestion.change,
                          planner::describe(planner::candidate_of(suggestion.plan.plan)),
                          planner::format_seconds(suggestion.plan.step_time_s()),
                          planner::format_bytes(suggestion.plan.step().peak_memory_bytes)});
  return "\nwhat would fit (the best plan with it, step time, memory)\n" + to_text(table, 2);
}

std::string rejections_text(const std::vector<Rejection>& rejections) {
  std::vector<const Rejection*> sorted;
  sorted.reserve(rejections.size());
  for (const Rejection& rejection : rejections) sorted.push_back(&rejection);
  std::ranges::stable_sort(sorted, std::ranges::greater{}, &Rejection::plans);
  Table table{.columns = {{"", Align::Left}, {""}, {"", Align::Left}, {"", Align::Left}}};
  std::size_t left_out = 0;
  for (const Rejection* rejection : sorted) {
    if (table.rows.size() < kMostRejections)
      table.rows.push_back({rejection->family, grouped(static_cast<std::int64_t>(rejection->plans)),
                            rejection->rule, rejection->message});
    else
      ++left_out;
  }
  if (table.rows.empty()) return "";
  std::string text = "\nrejected (plans, rule)\n" + to_text(table, 2);
  if (left_out > 0) text += fmt::format("  and {} more families (--json lists all)\n", left_out);
  return text;
}

}  // namespace

std::string model_line(const models::ModelSpec& model) {
  const models::ParameterCounts counts = models::count_parameters(models::build_graph(model));
  std::string text =
      fmt::format("{}  {} parameters", model.name, short_count(static_cast<double>(counts.total)));
  if (counts.active != counts.total)
    text += fmt::format(" ({} active)", short_count(static_cast<double>(counts.active)));
  text += fmt::format(", {} layers, hidden {}, {} heads ({} kv), vocabulary {}", model.num_layers,
                      model.hidden_size, model.num_heads, model.num_kv_heads,
                      grouped(model.vocab_size));
  if (const auto& adapters = model.adapters)
    text += fmt::format(", adapters of rank {} beside {}", adapters->rank,
                        fmt::join(adapters->modules, ", "));
  return text;
}

std::string frozen_line(const models::ModelSpec& model, const std::vector<std::string>& frozen) {
  const models::ModelGraph graph = models::build_graph(model);
  return fmt::format("{} of {} parameters ({})",
                     short_count(static_cast<double>(program::frozen_elements(frozen, graph))),
                     short_count(static_cast<double>(models::count_parameters(graph).total)),
                     fmt::join(frozen, ", "));
}

std::string untimed_text(const sim::Cluster& cluster) {
  const sim::Device& device = cluster.device;
  if (device.kind != sim::DeviceKind::Gpu || !cluster.operators.empty()) return "";
  if (!sim::is_measured(device.architecture))
    return "data sheet alone: no operator of such GPUs was timed";
  if (device.operators.empty()) return "no operator of this GPU was timed: rates of its generation";
  return "";
}

std::string cluster_line(const sim::Cluster& cluster) {
  std::vector<std::string> levels;
  for (const sim::FabricLevel& level : cluster.fabric)
    levels.push_back(fmt::format("{} {:g} GB/s", level.name, level.link_gb_per_s));
  const std::string nodes =
      cluster.num_nodes == 1
          ? std::string("one node")
          : fmt::format("{} nodes of {}", cluster.num_nodes, cluster.devices_per_node);
  std::vector<std::string> devices;
  for (int type = 0; type < sim::num_node_types(cluster); ++type)
    devices.push_back(fmt::format("{} x {}",
                                  sim::num_nodes_of(cluster, type) * cluster.devices_per_node,
                                  sim::device_of(cluster, type).name));
  const std::string untimed = untimed_text(cluster);
  std::string slow;
  for (const sim::SlowRank& rank : cluster.slow_ranks)
    slow += fmt::format("; rank {} computes {:g} x as long", rank.rank, rank.times);
  return fmt::format("{}  {}: {}{}{}{}{}{}", cluster.name, fmt::join(devices, " + "), nodes,
                     levels.empty() ? "" : ", ", fmt::join(levels, ", "), slow,
                     untimed.empty() ? "" : "; ", untimed);
}

std::string workload_line(const program::Workload& workload) {
  return fmt::format(
      "{} sequences of {} tokens ({} tokens a step), {}, {}", grouped(workload.global_batch_size),
      grouped(workload.seq_len),
      short_count(static_cast<double>(workload.global_batch_size * workload.seq_len)),
      program::precision_name(workload), name_of(workload.optimizer.kind));
}

std::string request_header(const planner::SearchRequest& request,
                           const std::vector<std::string>& assumptions) {
  std::string text =
      fmt::format("model    {}\ncluster  {}\nstep     {}\n", model_line(request.model),
                  cluster_line(request.cluster), workload_line(request.workload));
  if (!request.stack.is_own()) text += software_line(request.stack);
  if (request.adjustment)
    text += fmt::format("adjusted by {}\n", anchors_in_words(*request.adjustment));
  text +=
      fmt::format("memory   {} of a rank's {} may be used; {:.3g} % stay free (--memory-reserve)\n",
                  planner::format_bytes(sim::memory_capacity_bytes(request.cluster) *
                                        (1 - request.memory_reserve)),
                  planner::format_bytes(sim::memory_capacity_bytes(request.cluster)),
                  100 * request.memory_reserve);
  const std::vector<std::string>& frozen = request.constraints.frozen;
  if (!frozen.empty()) text += "frozen   " + frozen_line(request.model, frozen) + "\n";
  if (request.failures)
    text += fmt::format("failures {}\n", failures_text(request.failures->device_mtbf_hours,
                                                       request.cluster.num_ranks()));
  for (const std::string& assumption : assumptions) text += "assumed  " + assumption + "\n";
  if (request.failures)
    for (const std::string& assumption :
         planner::FailureModel(request.model, frozen, request.cluster, *request.failures).assumed())
      text += "assumed  " + assumption + "\n";
  return text;
}

std::string to_text(const planner::SearchResult& result, double seconds) {
  std::string text = counts_line(result.counts, seconds) +
                     node_orders_line(result.node_orders, result.ranked.front().plan.cluster_name) +
                     dispatches_line(result.dispatches) + interrupted_text(result.incomplete) +
                     goodput_line(result.ranked.front()) + "\n" + ranked_table(result.ranked);
  text += "\nwhy #1\n";
  for (const std::string& reason : result.ranked.front().plan.prediction->reasons)
    text += "  " + reason + "\n";
  const RankedPlan& best = result.ranked.front();
  const std::vector<sim::Extrapolation> extrapolations = extrapolations_of(best.plan);
  text += alternatives_text(result.alternatives) + rejections_text(result.rejections);
  return extrapolations.empty() ? text : text + to_text(extrapolations, interval_of(best));
}

std::string explain_text(const planner::RankedPlan& ranked) {
  if (!ranked.simulated) return "";
  return terms_text(ranked.simulated->terms, ranked.step_time_s(), ranked.simulated->busiest_stage);
}

std::string to_text(const planner::InfeasibleResult& result, double seconds) {
  std::string text =
      counts_line(result.counts, seconds) + interrupted_text(result.incomplete) + "\n";
  if (result.incomplete) {
    text += "no plan that fits was found so far\n";
  } else if (result.nearest_miss) {
    const sim::StepPrediction& step = result.nearest_miss->step();
    const double usable = step.usable_bytes(result.memory_reserve);
    text += fmt::format("no plan fits; nearest miss: {} needs {} on stage {} ({} too much{})\n",
                        planner::describe(planner::candidate_of(result.nearest_miss->plan)),
                        planner::shortage(step.peak_memory_bytes, usable, step.of_host),
                        step.largest_stage, planner::format_bytes(step.peak_memory_bytes - usable),
                        reserve_text(result.memory_reserve));
  } else {
    text += "no plan obeys the rules\n";
  }
  return text + suggestions_text(result.suggestions) + rejections_text(result.rejections);
}

}  // namespace meshplan::reports
