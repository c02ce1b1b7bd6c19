// Branch and bound over the variants of all candidates.
#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>

#include "core/index.hpp"
#include "program/checks/check.hpp"
#include "search/evaluation.hpp"
#include "search/stage_division.hpp"
#include "search/variants.hpp"

namespace meshplan::planner {
namespace {

/// So many of the fastest are those of the whole space.
constexpr std::size_t kExactlyRanked = 10;
/// Candidates whose variants are priced first: they lower the bar for the others. Of so many
/// pipelines among them all are priced, so that every schedule has a plan to show.
constexpr std::size_t kFirst = 32;
constexpr std::size_t kPipelines = 4;
/// What a larger micro-batch keeps, over as many times what a smaller one does, whose values are
/// rounded up to whole units of alignment.
constexpr double kRoundedUp = 0.95;
/// Of a plan whose memory and busy time alone are asked for.
constexpr sim::Wanted kNoTime{.step_time_s = 0, .memory_reserve = std::nullopt};
constexpr sim::Wanted kMemory{.step_time_s = 0, .busy = false, .memory_reserve = std::nullopt};

/// Prices the variants of one candidate that may take less than `bar_s`, over their goodput.
class FamilyPricer {
 public:
  FamilyPricer(const SearchContext& context, const Evaluation& core, double bar_s, int worker)
      : context_(context),
        core_(core),
        worker_(worker),
        variants_(variants_of(context.request, core.candidate)),
        bar_s_(bar_s * best_goodput()),
        division_(context.request) {
    family_.counts.total = variants_.count() - 1;
  }

  std::size_t num_variants() const { return family_.counts.total; }

  VariantResults all_broken() {
    family_.counts.broke_a_rule = num_variants();
    return std::move(family_);
  }

  VariantResults none_fits() {
    family_.counts.did_not_fit = num_variants();
    return std::move(family_);
  }

  VariantResults all_slower() {
    family_.counts.bounded = num_variants();
    return std::move(family_);
  }

  /// Does every variant lack memory, as far as one says that lacks it with smaller micro-batches?
  bool lacks_memory_like(const Evaluation& smaller) const {
    const sim::StepPrediction& step = *smaller.estimate;
    const bool as_many = core_.candidate.schedule == program::ScheduleKind::OneFOneB &&
                         num_microbatches() >= core_.candidate.parallel.pp;  // in flight
    const double larger = as_many ? times_larger_than(smaller) : 1;
    return lacks_memory_anyway(step, (larger - 1) * kRoundedUp * step.kept_bytes);
  }

  /// Does every variant take longer than the bar with what larger micro-batches do not make less?
  bool is_slower_like(const Evaluation& smaller) const {
    return times_larger_than(smaller) <= sim::kMuchLarger &&
           (1 - kBoundSlack) * least_tokens_beside(smaller) * smaller.estimate->busy.link > bar_s_;
  }

  VariantResults run(const sim::StepPrediction& estimate) {
    if (lacks_memory_anyway(estimate)) return none_fits();
    for (const auto& [stage, group] : variants_.zero)
      for (const Offloading offload : variants_.offload) {
        Candidate candidate = core_.candidate;
        candidate.zero_stage = stage;
        candidate.zero_shard_group = group;
        set_offloading(candidate, offload);
        price_schedules(candidate, estimate);
      }
    for (const auto& [label, evaluation] : best_) price_placements(evaluation);
    for (auto& [label, evaluation] : best_)
      if (!is_core(evaluation.candidate)) family_.best.push_back(std::move(evaluation));
    return std::move(family_);
  }

 private:
  using Label = std::tuple<int, int, Offloading, program::ScheduleKind, int>;

  static Label label_of(const Candidate& candidate) {
    return {candidate.zero_stage, candidate.zero_shard_group, offloading_of(candidate),
            candidate.schedule, candidate.parallel.vpp};
  }

  bool is_core(const Candidate& candidate) const {
    Candidate divided = candidate;
    divided.layers_per_stage = core_.candidate.layers_per_stage;
    return divided == core_.candidate;
  }

  /// Sequences of a step, empty ones included, over those with smaller micro-batches; at most 1.
  double least_tokens_beside(const Evaluation& smaller) const {
    const double rounds = static_cast<double>(num_microbatches()) /
                          static_cast<double>(microbatches_of(smaller.candidate));
    return std::min(1.0, rounds * times_larger_than(smaller));
  }

  /// The highest of the family: of its ZeRO stages, which differ in what a restart loads.
  double best_goodput() const {
    double best = core_.goodput;
    if (!context_.failures || core_.broken) return best;
    for (const auto& [stage, group] : variants_.zero) {
      Candidate candidate = core_.candidate;
      candidate.zero_stage = stage;
      candidate.zero_shard_group = group;
      const program::Plan plan = make_plan(context_.request, candidate);
      best = std::max(best, context_.failures->goodput(plan, 0).goodput);
    }
    return best;
  }

  double times_larger_than(const Evaluation& smaller) const {
    return static_cast<double>(core_.candidate.micro_batch_size) /
           smaller.candidate.micro_batch_size;
  }

  std::int64_t num_microbatches() const { return microbatches_of(core_.candidate); }
  std::int64_t microbatches_of(const Candidate& candidate) const {
    return program::microbatches_of(context_.request.workload.global_batch_size,
                                    candidate.micro_batch_size, candidate.parallel.dp);
  }

  /// More than there is, whatever becomes of parameters, gradients and optimizer state?
  /// @param more  bytes that are known to be needed besides
  bool lacks_memory_anyway(const sim::StepPrediction& step, double more = 0) const {
    return step.peak_memory_bytes - step.state_bytes + more >
           step.usable_bytes(context_.request.memory_reserve);
  }

  /// No schedule keeps less than the candidate's own, which has one chunk a rank and no more
  /// micro-batches in flight than it has stages; only another division may. And what recomputes
  /// fewer layers keeps more.
  void price_schedules(Candidate candidate, const sim::StepPrediction& estimate) {
    const Candidate own = candidate;
    std::optional<bool> own_fits;
    for (const ScheduleVariant& schedule : variants_.schedules) {
      candidate.schedule = schedule.schedule;
      candidate.parallel.vpp = schedule.vpp;
      candidate.count_ends_as_layers = schedule.ends;
      const bool may_keep_less = schedule.ends != own.count_ends_as_layers;
      bool misses = false;
      for (const std::optional<int> layers : schedule.recompute_layers) {
        candidate.recompute.num_layers = layers;
        const double least =
            least_step_s(core_.candidate, estimate, schedule, layers, context_.request);
        if (!misses && least <= bar_of(candidate) && !may_keep_less) {
          if (!own_fits) own_fits = fits(own);
          misses = !*own_fits;
        }
        if (misses)
          family_.counts.did_not_fit += with_placements(candidate);
        else
          misses = !price(candidate, least);
      }
    }
  }

  /// Nothing is noted.
  bool fits(const Candidate& candidate) {
    const Evaluation evaluation = evaluated(candidate, kMemory);
    return evaluation.broken || evaluation.fits();
  }

  Evaluation evaluated(const Candidate& candidate, const sim::Wanted& wanted) {
    return is_core(candidate) ? core_ : evaluate(context_, divided(candidate), worker_, wanted);
  }

  sim::Wanted faster_than(double seconds) const {
    return {.step_time_s = seconds, .memory_reserve = context_.request.memory_reserve};
  }

  Candidate divided(Candidate candidate) {
    if (sim::num_types(context_.request.cluster) > 1)
      candidate.layers_per_stage = division_.layers(candidate);
    return candidate;
  }

  /// What a variant must not take longer than to be wanted.
  double bar_of(const Candidate& candidate) const {
    const auto own_best = best_.find(label_of(candidate));
    return own_best == best_.end() ? bar_s_ : std::min(bar_s_, own_best->second.step().step_time_s);
  }

  /// A candidate in every rank order and with all buckets, the enumerated one left out.
  std::size_t with_placements(const Candidate& candidate) const {
    return variants_.of_schedule() - (is_core(candidate) ? 1 : 0);
  }

  /// With the default rank order and buckets. The others are counted where they are turned down
  /// with it.
  /// @returns whether it may fit
  bool price(const Candidate& candidate, double least) {
    const std::size_t all = with_placements(candidate);
    if (least > bar_of(candidate) || shards_in_vain(candidate)) {
      family_.counts.bounded += all;
      return true;
    }
    Evaluation evaluation = evaluated(candidate, faster_than(bar_of(candidate)));
    if (evaluation.broken) {
      family_.counts.broke_a_rule += all;  // which neither order nor buckets change
      return true;
    }
    if (!evaluation.estimate || !evaluation.fits()) {
      family_.counts.did_not_fit += all;
      return false;
    }
    if (evaluation.estimate->at_least) {
      family_.counts.bounded += all;
      return true;
    }
    family_.counts.bounded += variants_.of_schedule() - 1;  // until they are priced
    note(std::move(evaluation));
    return true;
  }

  /// Does the same plan fit that divides less among the replicas, or keeps the optimizer on the
  /// device? More copies move less.
  bool shards_in_vain(const Candidate& candidate) const {
    const auto fits = [&](const Candidate& other) { return best_.contains(label_of(other)); };
    Candidate other = candidate;
    for (const Offloading less : variants_.offload) {
      if (less >= offloading_of(candidate)) continue;
      set_offloading(other, less);
      if (fits(other)) return true;
    }
    other = candidate;
    if (candidate.zero_stage == core_.candidate.zero_stage) return false;
    other.zero_shard_group = 0;
    for (other.zero_stage = core_.candidate.zero_stage; other.zero_stage < candidate.zero_stage;
         ++other.zero_stage)
      if (fits(other)) return true;
    return false;
  }

  /// The same plan in other rank orders, and with other buckets. What gains most is less exposed.
  void price_placements(const Evaluation& found) {
    const Evaluation first = found;  // which one of these may replace
    if (first.step().step_time_s - first.step().seconds[sim::Category::Dp] -
            first.step().seconds[sim::Category::Bubble] >
        bar_s_)
      return;
    for (const std::string& order : variants_.rank_orders)
      for (const std::int64_t bytes : variants_.bucket_bytes) {
        Candidate candidate = first.candidate;
        if (candidate.rank_order == order && candidate.bucket_bytes == bytes) continue;
        candidate.rank_order = order;
        candidate.bucket_bytes = bytes;
        const Evaluation evaluation =
            evaluate(context_, candidate, worker_, faster_than(bar_of(candidate)));
        if (evaluation.fits() && evaluation.estimate->at_least) continue;
        --family_.counts.bounded;
        if (evaluation.broken)
          ++family_.counts.broke_a_rule;
        else if (!evaluation.fits())
          ++family_.counts.did_not_fit;
        else
          note(evaluation);
      }
  }

  /// Of one that fits.
  void note(Evaluation evaluation) {
    if (!is_core(evaluation.candidate)) ++family_.counts.ranked;
    evaluation.refined = true;
    const auto [entry, fresh] = best_.try_emplace(label_of(evaluation.candidate), evaluation);
    const auto order = [](const Evaluation& one) {
      return std::pair(one.step().step_time_s, one.step().peak_memory_bytes);
    };
    if (!fresh && order(evaluation) < order(entry->second)) entry->second = std::move(evaluation);
  }

  const SearchContext& context_;
  const Evaluation& core_;
  int worker_;
  Variants variants_;
  double bar_s_;  // of a step
  StageDivision division_;
  VariantResults family_;
  std::map<Label, Evaluation> best_;
};

class VariantSearch {
 public:
  VariantSearch(const SearchContext& context, const std::vector<Evaluation>& evaluations)
      : context_(context),
        evaluations_(evaluations),
        families_(evaluations.size()),
        done_(evaluations.size(), false) {}

  VariantResults run() {
    const std::vector<std::size_t> ranking = rank(evaluations_);
    std::vector<std::size_t> pipelines;
    for (const std::size_t i : ranking)
      if (evaluations_[i].candidate.parallel.pp > 1 && pipelines.size() < kPipelines)
        pipelines.push_back(i);
    price(pipelines, std::numeric_limits<double>::infinity());
    std::vector<std::size_t> first = ranking;
    first.resize(std::min(first.size(), kFirst));
    price(first, bar_s(first));
    std::vector<std::size_t> all(evaluations_.size());
    std::iota(all.begin(), all.end(), std::size_t{0});
    price(all, bar_s(first));
    return results();
  }

 private:
  void price(const std::vector<std::size_t>& indexes, double bar) {
    const auto batches = batches_of(evaluations_, indexes);
    context_.parallel_for.run(batches.size(), [&](std::size_t batch, int worker) {
      for (const std::size_t i : batches[batch]) {
        if (context_.stops()) return;
        if (!done_[i]) families_[i] = price_family(i, bar, worker);
      }
    });
    for (const std::size_t i : indexes) done_[i] = true;
  }

  VariantResults price_family(std::size_t i, double bar, int worker) {
    const Evaluation& core = evaluations_[i];
    FamilyPricer pricer(context_, core, bar, worker);
    if (pricer.num_variants() == 0) return {};
    if (core.broken) return pricer.all_broken();
    if (core.estimate) return pricer.run(*core.estimate);
    // Needs no less memory than the smaller one, varied alike, and comes behind it in its batch.
    const Evaluation& smaller = evaluations_[*core.smaller];
    if (none_fits(families_[*core.smaller].counts) || pricer.lacks_memory_like(smaller))
      return pricer.none_fits();
    if (pricer.is_slower_like(smaller)) return pricer.all_slower();
    return pricer.run(
        context_.estimators(make_plan(context_.request, core.candidate), worker, kNoTime));
  }

  /// Are there variants, and is it known of all that they do not fit?
  static bool none_fits(const SearchCounts& counts) {
    return counts.total > 0 && counts.bounded == 0 && counts.ranked == 0;
  }

  /// Step time, over goodput, of the last of the first ten candidates, each with its variants as
  /// far as they are priced: slower ones are not among the first.
  double bar_s(const std::vector<std::size_t>& indexes) const {
    std::vector<double> fastest;
    for (const std::size_t i : indexes) {
      double best = evaluations_[i].effective_s();
      for (const Evaluation& variant : families_[i].best)
        best = std::min(best, variant.effective_s());
      fastest.push_back(best);
    }
    if (fastest.size() < kExactlyRanked) return std::numeric_limits<double>::infinity();
    std::ranges::sort(fastest);
    return fastest[kExactlyRanked - 1];
  }

  VariantResults results() {
    VariantResults all;
    for (VariantResults& family : families_) {
      all.counts += family.counts;
      std::ranges::move(family.best, std::back_inserter(all.best));
    }
    return all;
  }

  const SearchContext& context_;
  const std::vector<Evaluation>& evaluations_;
  std::vector<VariantResults> families_;  // aligned with the evaluations
  std::vector<bool> done_;
};

}  // namespace

VariantResults price_variants(const SearchContext& context,
                              const std::vector<Evaluation>& evaluations) {
  return VariantSearch(context, evaluations).run();
}

}  // namespace meshplan::planner
