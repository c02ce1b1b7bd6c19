// Who is played, and in what order they are shown.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "core/error.hpp"
#include "search/evaluation.hpp"
#include "search/techniques.hpp"
#include "sim/anchors/adjustment.hpp"
#include "sim/stacks/cluster_preset.hpp"
#include "sim/stacks/software.hpp"

namespace meshplan::planner {
namespace {

constexpr int kMostPlayed = 8;  // estimates are within a few percent, so the best is among these
constexpr int kMostRough = 4;   // played besides, of those whose estimates may be further off,
constexpr double kRoughError =
    0.08;  // by so much: 95 of 100 are not (bench/planner/estimator_bench)

// What a search plays in all: about a second of processor time.
constexpr std::int64_t kMostEvents = 2'000'000;
constexpr std::int64_t kMostEventsBesideOthers = 4'000'000;  // of a play: some 400 MB of programs
constexpr int kMostTries = 3;  // of as many micro-batches as it takes at best, before one gives up
// Of a layer and a micro-batch, with experts and recompute.
constexpr double kMostEventsOfLayer = 200;
constexpr double kEventsOfMerged = 60;     // where most layers run as one operation
constexpr std::int64_t kEventsOfRank = 8;  // finding out which ranks are alike takes as long
constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();

bool differ_in_schedule_only(const Candidate& a, Candidate b) {
  b.schedule = a.schedule;
  return a == b;
}

// Variants that refinement found next to a better one of the same mesh are steps on the way. But
// norms and activations of all layers are simpler to run than of some.
bool is_step_on_the_way(const Candidate& better, const Candidate& worse) {
  const bool simpler = worse.recompute.kind == program::RecomputeKind::Selective &&
                       better.recompute.num_layers && !worse.recompute.num_layers;
  return !simpler && better.parallel == worse.parallel &&
         better.micro_batch_size == worse.micro_batch_size && better.schedule == worse.schedule &&
         better.recompute.kind == worse.recompute.kind &&
         better.recompute.modules == worse.recompute.modules &&
         better.zero_stage == worse.zero_stage &&
         better.zero_shard_group == worse.zero_shard_group &&
         better.expert_node_ranks == worse.expert_node_ranks;
}

/// The fastest, and what might be as fast as the first of them if its estimate is far off.
std::vector<std::size_t> winners(const std::vector<Evaluation>& evaluations, int most) {
  std::vector<std::size_t> chosen;
  const auto full = static_cast<std::size_t>(most);
  for (const std::size_t i : rank(evaluations)) {
    if (chosen.size() >= full) {
      const double first = evaluations[chosen.front()].estimated_s();
      const double least = (1 - kRoughError) * evaluations[i].estimated_s();
      if (least > first || chosen.size() == full + kMostRough) break;
      if (!evaluations[i].estimate->rough) continue;
    }
    const Candidate& candidate = evaluations[i].candidate;
    const bool repeats = std::ranges::any_of(chosen, [&](std::size_t other) {
      const Candidate& better = evaluations[other].candidate;
      return differ_in_schedule_only(better, candidate) || is_step_on_the_way(better, candidate);
    });
    if (!repeats) chosen.push_back(i);
  }
  return chosen;
}

class Ranker {
 public:
  Ranker(const SearchContext& context, const CostModel& costs, std::vector<Evaluation>& evaluations)
      : context_(context), costs_(costs), evaluations_(evaluations) {}

  Ranking run() {
    const int most =
        std::max(context_.request.top, context_.request.alternatives ? kMostPlayed : 0);
    std::vector<std::size_t> contest = played_winners(most);
    Ranking ranking;
    while (!contest.empty()) {
      ranking = ordered(contest);
      if (!context_.request.alternatives || context_.stops()) break;
      play_offers(ranking);
      if (context_.stops()) break;
      if (!join_contest(ranking, contest)) break;
    }
    return ranking;
  }

 private:
  const sim::StepPrediction& step(std::size_t i) const { return evaluations_[i].step(); }

  /// What turns out not to fit gives its place to the next; if nothing fits, the nearest miss is
  /// played.
  std::vector<std::size_t> played_winners(int most) {
    while (true) {
      std::vector<std::size_t> contest = winners(evaluations_, most);
      if (play(contest, AtLeast::One)) continue;
      if (costs_.simulate)
        std::erase_if(contest, [&](std::size_t i) { return !evaluations_[i].simulated; });
      const auto nearest =
          context_.request.alternatives ? nearest_miss(evaluations_) : std::nullopt;
      if (!contest.empty() || !nearest || context_.stops() || !play({*nearest}, AtLeast::One))
        return contest;
    }
  }

  enum class AtLeast { None, One };

  /// As many, in the order in which they are wanted, as the search may still play.
  /// @returns whether any was played that had not been
  bool play(std::vector<std::size_t> wanted, AtLeast least) {
    if (!costs_.simulate) return false;
    const auto played =
        std::erase_if(wanted, [&](std::size_t i) { return evaluations_[i].simulated != nullptr; });
    std::erase_if(wanted, [&](std::size_t i) { return given_up_.contains(i); });
    const bool enough = least == AtLeast::None || played > 0;
    std::int64_t events = events_played_;
    std::vector<std::size_t> affordable;
    for (const std::size_t i : wanted) {
      if (std::ranges::find(affordable, i) != affordable.end()) continue;
      const std::int64_t more = most_events(evaluations_[i].candidate);
      if (events + more > kMostEvents && (enough || !affordable.empty())) {
        if (least == AtLeast::One) break;  // no slower one in place of it
        continue;
      }
      events += more;
      affordable.push_back(i);
    }
    if (!affordable.empty() && context_.stops()) affordable.resize(enough ? 0 : 1);
    // What takes longest first, so that no worker is left with it at the end; what also takes much
    // memory alone.
    const auto events_of = [&](std::size_t i) { return most_events(evaluations_[i].candidate); };
    const std::optional<std::size_t> needed =
        enough || affordable.empty() ? std::nullopt : std::optional(affordable.front());
    const auto play_it = [&](std::size_t i) {
      if (i != needed && context_.stops()) return;
      play_one(evaluations_[i], i == needed ? kUnlimited : kMostTries * events_of(i) / weight());
    };
    std::ranges::stable_sort(affordable, std::ranges::greater(), events_of);
    const auto others = std::ranges::find_if(
        affordable, [&](std::size_t i) { return events_of(i) <= kMostEventsBesideOthers; });
    std::for_each(affordable.begin(), others, play_it);
    context_.parallel_for.run(
        static_cast<std::size_t>(affordable.end() - others),
        [&](std::size_t i, int) { play_it(*(others + static_cast<std::ptrdiff_t>(i))); });
    if (!context_.stops())
      for (const std::size_t i : affordable) note_events(i);
    return !affordable.empty();
  }

  void note_events(std::size_t i) {
    const Evaluation& evaluation = evaluations_[i];
    if (!evaluation.simulated) {
      given_up_.insert(i);
      if (!evaluation.broken) events_played_ += kMostTries * most_events(evaluation.candidate);
      return;
    }
    const std::int64_t events = weight() * evaluation.simulated->events;
    events_played_ += events + events_of_ranks();
    const double layer_runs = static_cast<double>(context_.request.model.num_layers) *
                              evaluation.simulated->microbatches_played;
    events_of_layer_ = std::max(events_of_layer_, static_cast<double>(events) / layer_runs);
  }

  /// Events of ranks that share a host's cores take three times as long.
  std::int64_t weight() const { return context_.request.cluster.communication.needs_host ? 3 : 1; }

  std::int64_t events_of_ranks() const {
    return kEventsOfRank * context_.request.cluster.num_ranks();
  }

  /// About as many as playing it takes.
  std::int64_t most_events(const Candidate& candidate) const {
    constexpr double kMargin = 1.25;               // plans differ in what a layer does
    const bool merged = candidate.zero_stage < 2;  // mostly: see program::lower_merged
    const double of_layer = events_of_layer_ > 0
                                ? std::min(kMargin * events_of_layer_, kMostEventsOfLayer)
                            : merged ? kEventsOfMerged
                                     : kMostEventsOfLayer;
    const SearchRequest& request = context_.request;
    const int microbatches = sim::fewest_played(make_plan(request, candidate), request.cluster);
    return static_cast<std::int64_t>(of_layer * request.model.num_layers * microbatches) +
           events_of_ranks();
  }

  /// A program that is too long to be listed can be neither played nor run.
  void play_one(Evaluation& evaluation, std::int64_t most_events) const {
    try {
      auto played = costs_.simulate(make_plan(context_.request, evaluation.candidate), most_events);
      if (played)
        evaluation.simulated = std::make_shared<const sim::SimulatedStep>(*std::move(played));
    } catch (const ConfigError& error) {
      evaluation.broken = {.rule = kTooLong, .message = error.what()};
    }
  }

  bool beats(std::size_t a, std::size_t b) const {
    return evaluations_[a].effective_s() < evaluations_[b].effective_s() &&
           !ties(evaluations_[a], evaluations_[b]);
  }

  std::pair<int, double> complexity(std::size_t i) const {
    return {techniques(evaluations_[i].candidate), step(i).peak_memory_bytes};
  }

  /// Is it one of the runs that the search's predictions are adjusted by?
  bool was_measured(std::size_t i) const {
    const SearchRequest& request = context_.request;
    if (!request.adjustment) return false;
    const sim::PreparedRun run(
        sim::run_of(make_plan(request, evaluations_[i].candidate), request.cluster.name),
        sim::data_sheet_of(request.cluster));
    return request.adjustment->has_measured(run.run());
  }

  /// First comes the simplest of the plans that no other beats, or one of them that was measured,
  /// then what ties with it, simplest first, then the others by time.
  Ranking ordered(std::vector<std::size_t> contest) const {
    std::ranges::sort(contest, {}, [&](std::size_t i) {
      return std::tuple(evaluations_[i].effective_s(), step(i).peak_memory_bytes, i);
    });
    std::vector<std::size_t> unbeaten;
    std::ranges::copy_if(contest, std::back_inserter(unbeaten), [&](std::size_t i) {
      return std::ranges::none_of(contest, [&](std::size_t other) { return beats(other, i); });
    });
    const std::size_t first = *std::ranges::min_element(
        unbeaten, {}, [&](std::size_t i) { return std::pair(!was_measured(i), complexity(i)); });
    const auto others = std::ranges::stable_partition(contest, [&](std::size_t i) {
      return i == first || ties(evaluations_[first], evaluations_[i]);
    });
    std::ranges::stable_sort(contest.begin(), others.begin(), {},
                             [&](std::size_t i) { return std::pair(i != first, complexity(i)); });
    const auto num_ties = static_cast<std::size_t>(others.begin() - contest.begin());
    return {.ranked = std::move(contest), .ties = num_ties, .offers = {}};
  }

  /// All that are offered have been played, but for those that are far slower and, where the search
  /// has played enough, those that are estimated to be slowest.
  void play_offers(Ranking& ranking) {
    if (choices_.empty()) choices_ = choice_values(evaluations_);
    const Evaluation& first = evaluations_[ranking.ranked.front()];
    const auto estimated_s = [&](std::size_t i) { return evaluations_[i].estimated_s(); };
    const auto only_estimate = [&](const auto& holds) {
      for (Offer& offer : ranking.offers)
        if (offer.fastest && holds(*offer.fastest))
          offer.estimated = std::exchange(offer.fastest, std::nullopt);
    };
    std::vector<std::size_t> wanted;
    do {
      ranking.offers = offers_beside(first, choices_, evaluations_);
      if (!costs_.simulate) return;
      only_estimate([&](std::size_t i) {
        return !evaluations_[i].simulated && estimated_s(i) > kFarSlower * first.estimated_s();
      });
      wanted = fastest_of(ranking.offers);
      std::ranges::stable_sort(wanted, {}, estimated_s);
    } while (play(wanted, AtLeast::None));
    only_estimate([&](std::size_t i) { return !evaluations_[i].simulated; });
  }

  static std::vector<std::size_t> fastest_of(const std::vector<Offer>& offers) {
    std::vector<std::size_t> fastest;
    for (const Offer& offer : offers)
      if (offer.fastest) fastest.push_back(*offer.fastest);
    return fastest;
  }

  /// Offers that beat the first, or tie with it and are simpler, belong among the ranked.
  /// @returns whether there are any
  bool join_contest(const Ranking& ranking, std::vector<std::size_t>& contest) const {
    const std::size_t first = ranking.ranked.front();
    const auto belongs = [&](std::size_t i) {
      return evaluations_[i].fits() &&
             (beats(i, first) ||
              (ties(evaluations_[i], evaluations_[first]) && complexity(i) < complexity(first)));
    };
    const std::size_t before = contest.size();
    for (const std::size_t i : fastest_of(ranking.offers))
      if (std::ranges::find(contest, i) == contest.end() && belongs(i)) contest.push_back(i);
    return contest.size() > before;
  }

  const SearchContext& context_;
  const CostModel& costs_;
  std::vector<Evaluation>& evaluations_;
  std::vector<ChoiceValues> choices_;  // of the evaluations
  std::set<std::size_t> given_up_;     // whose steps take too long to repeat, or to be listed
  std::int64_t events_played_ = 0;
  double events_of_layer_ = 0;  // the most so far, of a micro-batch
};

}  // namespace

bool ties(const Evaluation& a, const Evaluation& b) {
  constexpr double kNeverTold = 0.01;  // of a step: runs of one plan differ by as much
  const double apart = std::abs(a.effective_s() - b.effective_s());
  if (apart == 0) return true;
  if (!a.simulated || !b.simulated) return false;
  const double least = kNeverTold * std::min(a.effective_s(), b.effective_s());
  return apart <= std::max(least, sim::indistinguishable_s(a.simulated->terms, b.simulated->terms));
}

Ranking rank_played(const SearchContext& context, const CostModel& costs,
                    std::vector<Evaluation>& evaluations) {
  return Ranker(context, costs, evaluations).run();
}

}  // namespace meshplan::planner
