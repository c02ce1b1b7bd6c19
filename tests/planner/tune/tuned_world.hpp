// A machine whose true step times are known, and plans for it: what tuning is tried on.
#pragma once

#include <cmath>
#include <map>
#include <random>

#include "planner/search/fake_costs.hpp"
#include "planner/tune/decision.hpp"

namespace meshplan::planner {

/// Plans that differ in their micro-batch size alone, so that none is simpler than another.
/// @param sigma  relative standard deviation that the cost model admits, of its own to each plan
inline TuneCandidate predicted_to_take(double seconds, int id, double sigma = 0.05) {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (int i = 0; i < 100; ++i) all.push_back("term " + std::to_string(i));
    return all;
  }();
  TuneCandidate candidate;
  candidate.plan.model = small_model();
  candidate.plan.workload = {.seq_len = 512, .global_batch_size = 1024};
  candidate.plan.micro_batch_size = 1 << (id % 10);
  candidate.plan.parallel.dp = 1;
  candidate.prediction = {.before_s = seconds,
                          .after_s = seconds,
                          .terms = {{.name = names.at(static_cast<std::size_t>(id)),
                                     .seconds = seconds,
                                     .sigma = sigma,
                                     .source = sim::TermSource::Assumed,
                                     .measure = ""}}};
  return candidate;
}

/// Runs a plan as often as it is asked, with noise that depends on plan and round alone.
struct TrueMachine {
  std::vector<double> seconds;  // of each candidate
  double noise = 0.01;          // relative standard deviation between rounds
  std::map<std::size_t, int> fails_in_round = {};

  void run(std::vector<TuneCandidate>& candidates, std::size_t index, int turn) const {
    TuneCandidate& candidate = candidates[index];
    const auto round = static_cast<unsigned>(candidate.rounds.size());
    if (const auto failing = fails_in_round.find(index);
        failing != fails_in_round.end() && failing->second == static_cast<int>(round)) {
      candidate.failure = "out of memory";
      return;
    }
    std::mt19937 random(1000 * static_cast<unsigned>(index) + round);
    const double common = std::exp(noise * std::normal_distribution<>()(random));
    TuneRound measured{.turn = turn, .step_times_s = {}};
    for (int step = 0; step < 5; ++step) measured.step_times_s.push_back(seconds[index] * common);
    candidate.rounds.push_back(measured);
  }
};

struct Tuned {
  TuneStop stop = TuneStop::Settled;
  int turns = 0;
  int runs = 0;
};

/// Turns as `meshplan tune` takes them, without a cost model that learns.
inline Tuned tune(std::vector<TuneCandidate>& candidates, const TrueMachine& machine,
                  const TunePolicy& policy, int most_turns = 1000) {
  Tuned tuned;
  while (tuned.turns < most_turns) {
    const TuneDecision decision = decide(candidates, policy, 0);
    tuned.stop = decision.stop;
    if (decision.measure.empty()) return tuned;
    for (const std::size_t index : decision.measure) {
      machine.run(candidates, index, tuned.turns);
      ++tuned.runs;
    }
    ++tuned.turns;
  }
  return tuned;
}

inline std::size_t measured(const std::vector<TuneCandidate>& candidates) {
  return static_cast<std::size_t>(std::ranges::count_if(candidates, &TuneCandidate::has_run));
}

}  // namespace meshplan::planner
