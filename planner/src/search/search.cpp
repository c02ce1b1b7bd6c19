#include "planner/search/search.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <span>

#include "core/error.hpp"
#include "core/hash.hpp"
#include "planner/search/reasons.hpp"
#include "search/evaluation.hpp"
#include "search/stage_division.hpp"

namespace meshplan::planner {
namespace {

/// Of the enumerated plans.
SearchCounts count(std::span<const Evaluation> evaluations) {
  SearchCounts counts{.total = evaluations.size()};
  for (const Evaluation& evaluation : evaluations)
    ++(evaluation.broken   ? counts.broke_a_rule
       : evaluation.fits() ? counts.ranked
                           : counts.did_not_fit);
  return counts;
}

RankedPlan ranked_plan(const SearchContext& context, const Evaluation& evaluation) {
  const SearchRequest& request = context.request;
  RankedPlan ranked{.plan = make_plan(request, evaluation.candidate),
                    .estimate = *evaluation.estimate};
  if (evaluation.simulated) ranked.simulated = *evaluation.simulated;
  if (context.failures)
    ranked.goodput = context.failures->goodput(ranked.plan, ranked.step_time_s());
  ranked.plan.model_hash = hex(content_hash(models::to_json(request.model)));
  // As a plan file holds it, so that a plan equals what is read back.
  std::string cluster = sim::to_json(request.cluster);
  cluster.erase(cluster.find_last_not_of('\n') + 1);
  ranked.plan.cluster_hash = hex(content_hash(cluster));
  ranked.plan.cluster_json = std::move(cluster);
  return ranked;
}

/// Where a step's time, over its goodput, differs from the first plan's.
std::string differences(const RankedPlan& first, const RankedPlan& other) {
  std::string parts = time_differences(first.step(), other.step());
  if (!first.goodput || !other.goodput) return parts;
  const double failures =
      (other.effective_s() - other.step_time_s()) - (first.effective_s() - first.step_time_s());
  return fmt::format("{}{}failures {}", parts, parts.empty() ? "" : ", ", signed_seconds(failures));
}

std::string against_first(const RankedPlan& first, const RankedPlan& other) {
  const double apart = other.effective_s() - first.effective_s();
  const std::string parts = differences(first, other);
  return fmt::format("{} {} than #1{}{}", format_seconds(std::abs(apart)),
                     apart < 0 ? "faster" : "slower", other.ties ? ", which is a tie" : "",
                     parts.empty() ? "" : ": " + parts);
}

std::string gain_over_next(const RankedPlan& first, const RankedPlan& next) {
  const double gain = next.effective_s() - first.effective_s();
  const std::string parts = differences(first, next);
  const bool slower = gain < 0;
  const char* tie = next.ties ? slower ? " (a tie, but #1 is simpler to run)" : " (a tie)" : "";
  return fmt::format("{} ({:.1f} %) {} than #2, {}{}{}", format_seconds(std::abs(gain)),
                     100 * std::abs(gain) / next.effective_s(), slower ? "slower" : "faster",
                     describe(candidate_of(next.plan)), tie, parts.empty() ? "" : ": " + parts);
}

std::string stopped_reason(const SearchCounts& counts) {
  return fmt::format("the best of {} plans: the search was stopped, and others may be faster",
                     counts.total);
}

void add_prediction(RankedPlan& ranked, std::vector<std::string> reasons) {
  const sim::StepPrediction& step = ranked.step();
  std::ranges::move(own_reasons(ranked), std::back_inserter(reasons));
  ranked.plan.prediction = {.step_time_s = step.step_time_s,
                            .peak_memory_bytes = step.peak_memory_bytes,
                            .mfu = step.mfu,
                            .reasons = std::move(reasons)};
}

/// "goodput 91.3 %: a failure every 3.1 h costs 17.2 min, ..."
std::string goodput_reason(const Goodput& goodput) {
  return fmt::format(
      "goodput {:.1f} %: a failure every {} costs {}, checkpoints every {} stop training for {}, "
      "fewer nodes do {:.1f} % less",
      100 * goodput.goodput, format_duration(goodput.mtbf_s), format_duration(goodput.failure_s),
      format_duration(goodput.interval_s), format_seconds(goodput.checkpoint.stall_s),
      100 * goodput.smaller_world);
}

/// Says that failures put another plan first than step times would, as estimated; empty if they do
/// not.
std::string order_reason(const Evaluation& first, const std::vector<Evaluation>& evaluations) {
  constexpr double kTold = 0.01;  // as ties()
  const Evaluation* fastest = &first;
  for (const Evaluation& evaluation : evaluations)
    if (evaluation.fits() && !evaluation.estimate->at_least &&
        evaluation.estimate->step_time_s < fastest->estimate->step_time_s)
      fastest = &evaluation;
  const double step = fastest->estimate->step_time_s;
  const bool decide = fastest->estimated_s() > first.estimated_s() &&
                      step < (1 - kTold) * first.estimate->step_time_s;
  if (!decide) return "";
  return fmt::format(
      "failures decide: {} takes {} a step, but {} over its goodput of {:.1f} %, against {} of #1 "
      "(estimates)",
      describe(fastest->candidate), format_seconds(step), format_seconds(fastest->estimated_s()),
      100 * fastest->goodput, format_seconds(first.estimated_s()));
}

/// @param order  why failures change the order; empty: they do not
void add_predictions(std::vector<RankedPlan>& ranked, const std::string& order) {
  for (std::size_t i = 0; i < ranked.size(); ++i) {
    std::vector<std::string> reasons;
    if (i == 0 && !order.empty()) reasons.push_back(order);
    if (i == 0 && ranked.size() > 1) reasons.push_back(gain_over_next(ranked[0], ranked[1]));
    if (i > 0) reasons.push_back(against_first(ranked[0], ranked[i]));
    if (ranked[i].goodput) reasons.push_back(goodput_reason(*ranked[i].goodput));
    add_prediction(ranked[i], std::move(reasons));
  }
}

/// @param first  the plan of `best`
Alternative alternative(const Offer& offer, const Evaluation& best, const RankedPlan& first,
                        const SearchContext& context, const std::vector<Evaluation>& evaluations) {
  if (offer.estimated) {
    const Evaluation& other = evaluations[*offer.estimated];
    const double ratio = other.estimated_s() / best.estimated_s();
    const std::string times = ratio < 1.05 ? "" : fmt::format(" {:.2g} times", ratio);
    return {.choice = offer.choice,
            .reason = fmt::format("about{} as long as #1, as estimated: {}", times,
                                  describe(other.candidate)),
            .estimated_times = ratio};
  }
  if (!offer.fastest)
    return {.choice = offer.choice,
            .reason = offer.miss ? memory_shortage(*offer.miss, evaluations)
                                 : evaluations[offer.first].broken->message};
  Alternative found{.choice = offer.choice,
                    .plan = ranked_plan(context, evaluations[*offer.fastest])};
  found.plan->ties = ties(evaluations[*offer.fastest], best);
  found.slower_by_s = found.plan->ties ? 0 : found.plan->effective_s() - first.effective_s();
  found.reason = differences(first, *found.plan);
  add_prediction(*found.plan, {against_first(first, *found.plan)});
  return found;
}

InfeasibleResult infeasible(const SearchContext& context,
                            const std::vector<Evaluation>& evaluations,
                            const SearchCounts& counts) {
  InfeasibleResult result{.counts = counts,
                          .rejections = group_rejections(evaluations),
                          .memory_reserve = context.request.memory_reserve,
                          .incomplete = context.cut_short};
  if (const auto nearest = nearest_miss(evaluations))
    result.nearest_miss = ranked_plan(context, evaluations[*nearest]);
  return result;
}

}  // namespace

SearchCounts& SearchCounts::operator+=(const SearchCounts& other) {
  total += other.total;
  broke_a_rule += other.broke_a_rule;
  did_not_fit += other.did_not_fit;
  ranked += other.ranked;
  bounded += other.bounded;
  refined += other.refined;
  return *this;
}

std::optional<double> step_time_s(const SearchOutcome& outcome) {
  const auto* result = std::get_if<SearchResult>(&outcome);
  if (result == nullptr) return std::nullopt;
  return result->ranked.front().step_time_s();
}

std::optional<double> effective_s(const SearchOutcome& outcome) {
  const auto* result = std::get_if<SearchResult>(&outcome);
  if (result == nullptr) return std::nullopt;
  return result->ranked.front().effective_s();
}

bool is_incomplete(const SearchOutcome& outcome) {
  return std::visit([](const auto& found) { return found.incomplete; }, outcome);
}

ParallelFor serial() {
  return {.num_workers = 1, .run = [](std::size_t count, const ParallelFor::Body& body) {
            for (std::size_t i = 0; i < count; ++i) body(i, 0);
          }};
}

program::Plan make_plan(const SearchRequest& request, const Candidate& candidate) {
  program::Plan plan;
  plan.model = request.model;
  plan.cluster_name = request.cluster.name;
  plan.workload = request.workload;
  plan.stack = request.stack;
  plan.parallel = candidate.parallel;
  plan.rank_order = candidate.rank_order;
  plan.schedule = candidate.schedule;
  plan.micro_batch_size = candidate.micro_batch_size;
  plan.uneven_batch = request.constraints.uneven_batch;
  plan.recompute = candidate.recompute;
  plan.context_parallel = candidate.context_parallel;
  plan.zero_stage = candidate.zero_stage;
  plan.zero_shard_group = candidate.zero_shard_group;
  plan.expert_node_ranks = candidate.expert_node_ranks;
  if (plan.parallel.cp > 1)
    plan.max_tokens_per_rank = request.constraints.max_tokens_per_rank.value_or(0);
  plan.layers_per_stage = candidate.layers_per_stage;
  plan.count_ends_as_layers = candidate.count_ends_as_layers;
  if (plan.schedule == program::ScheduleKind::Custom)
    plan.custom_schedule = request.constraints.custom_schedule;
  plan.bucket_bytes = candidate.bucket_bytes > 0 ? candidate.bucket_bytes
                                                 : default_bucket_bytes(candidate.parallel);
  plan.compression = candidate.compression;
  if (plan.parallel.ep > 1 || !exchanges_tokens(request.model, request.constraints))
    plan.expert_dispatch_fp8 = request.constraints.expert_dispatch_fp8;
  if (plan.parallel.ep > 1) {
    const int ep = plan.parallel.ep;  // the busiest of them has at most all rows
    plan.expected_expert_imbalance =
        std::min<double>(ep, request.constraints.expert_imbalance.over(ep));
    plan.expert_imbalance = std::max(plan.expert_imbalance, plan.expected_expert_imbalance);
  }
  plan.frozen = request.constraints.frozen;
  plan.offload_optimizer = candidate.offload_optimizer;
  plan.offload_parameters = candidate.offload_parameters;
  plan.offload_activations = candidate.offload_activations;
  plan.progress_thread = request.constraints.progress_thread;
  plan.deterministic = request.constraints.deterministic.value_or(plan.deterministic);
  return plan;
}

SearchOutcome search(const SearchRequest& request, const CostModel& costs,
                     const ParallelFor& parallel_for, const Progress& progress,
                     const StopRequested& stop) {
  if (request.top < 1) throw ConfigError(fmt::format("top = {} must be at least 1", request.top));
  if (request.cluster.num_ranks() > kMostSearchedRanks)
    throw ConfigError(
        fmt::format("a search on {} ranks; at most {}: plan for fewer (--gpus {}), and "
                    "simulate the plan with a larger dp",
                    request.cluster.num_ranks(), kMostSearchedRanks, kMostSearchedRanks));
  SearchRequest own = request;
  const auto enumerate_in = [&](Space space) {
    own.space = std::move(space);
    return enumerate(own.model, own.workload,
                     {own.cluster.num_ranks(), own.cluster.devices_per_node}, own.constraints,
                     own.space);
  };
  std::vector<Candidate> candidates = enumerate_in(space_of(request));
  if (candidates.empty())  // then which rules that breaks is the answer
    candidates = enumerate_in(request.space);
  StageDivision division(own);
  for (Candidate& candidate : candidates) candidate.layers_per_stage = division.layers(candidate);
  Estimators estimators(costs, parallel_for.num_workers);
  std::optional<FailureModel> failures;
  if (own.failures) failures.emplace(own.model, own.constraints.frozen, own.cluster, *own.failures);
  const SearchContext context{own, parallel_for, estimators, stop, failures ? &*failures : nullptr};
  std::vector<Evaluation> evaluations = evaluate_all(context, candidates, progress);
  const std::size_t num_enumerated = evaluations.size();
  std::vector<Rejection> rejections = group_rejections(evaluations);
  VariantResults variants = price_variants(context, evaluations);
  std::ranges::move(variants.best, std::back_inserter(evaluations));
  std::vector<Evaluation> refined = refine_best(context, evaluations);
  variants.counts.refined = refined.size();
  std::ranges::move(refined, std::back_inserter(evaluations));
  estimators.forget();
  const Ranking ranking = rank_played(context, costs, evaluations);
  // Once it is known what turned out too long or too large when it was played.
  SearchCounts counts = count(std::span(evaluations).first(num_enumerated));
  counts += variants.counts;
  std::ranges::move(too_long(evaluations), std::back_inserter(rejections));
  if (ranking.ranked.empty()) return infeasible(context, evaluations, counts);

  SearchResult result{
      .counts = counts, .ranked = {}, .rejections = rejections, .incomplete = context.cut_short};
  const auto shown = std::min(ranking.ranked.size(), static_cast<std::size_t>(request.top));
  for (std::size_t i = 0; i < shown; ++i) {
    result.ranked.push_back(ranked_plan(context, evaluations[ranking.ranked[i]]));
    result.ranked.back().ties = ranking.ties > 1 && i < ranking.ties;
  }
  add_predictions(result.ranked, order_reason(evaluations[ranking.ranked.front()], evaluations));
  if (context.cut_short)
    for (RankedPlan& ranked : result.ranked)
      ranked.plan.prediction->reasons.insert(ranked.plan.prediction->reasons.begin(),
                                             stopped_reason(counts));
  for (const Offer& offer : ranking.offers)
    result.alternatives.push_back(alternative(offer, evaluations[ranking.ranked.front()],
                                              result.ranked.front(), context, evaluations));
  return result;
}

}  // namespace meshplan::planner
