// What the experts of a model did in a step. docs/watching.md defines every figure.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "program/plan/expert_imbalance.hpp"
#include "program/plan/plan.hpp"

namespace meshplan::program {

/// Rows of the busiest of so many ranks over their mean, if they shared the experts.
struct RanksImbalance {
  int ranks = 2;
  double imbalance = 1;
  bool operator==(const RanksImbalance&) const = default;
};

/// What the experts of a MoE layer got in a step.
struct LayerLoad {
  int layer = 0;   // of the model; the one behind the last: the prediction module's
  double min = 0;  // tokens that chose an expert, dropped ones included
  double mean = 0;
  double max = 0;
  int max_expert = 0;        // the first expert that has the maximum
  double ep_imbalance = 1;   // rows of the busiest ep rank's experts / mean over the ep ranks
  double dropped_share = 0;  // of the choices: beyond an expert's capacity
  std::vector<RanksImbalance> over;  // every number of ranks that divides the experts
  double expert_imbalance() const { return mean > 0 ? max / mean : 1; }
  bool operator==(const LayerLoad&) const = default;
};

/// Rows of experts that a step had beyond the plan's buffers (Plan::expert_imbalance), for which it
/// made room.
struct RowsBeyondPlan {
  double layer_visits = 0;       // work of a layer on a micro-batch that needed room, on all ranks
  double bytes = 0;              // that the room took at most, on the rank where that is most
  double largest_imbalance = 0;  // rows / those of a balanced router, of the worst such visit
  bool operator==(const RowsBeyondPlan&) const = default;
};

/// What the routers of a model with experts did in a step.
struct ExpertReport {
  double balance_loss = 0;  // in the gradient, not in the step's loss
  double z_loss = 0;        // likewise
  std::vector<LayerLoad> layers;
  RowsBeyondPlan beyond_plan;
  bool operator==(const ExpertReport&) const = default;
};

/// @param load  Region::ExpertLoad, of the global batch; empty without experts
std::vector<LayerLoad> layer_loads(const Plan& plan, std::span<const float> load);

/// Mean over the layers; 1 without any. What Plan::expected_expert_imbalance expects.
double mean_ep_imbalance(const ExpertReport& experts);
/// The same for any number of ranks; for all the run's own, if it says no other.
ExpertImbalance mean_imbalance(const ExpertReport& experts);

/// Sums of reports of several steps of one run.
class MeanExperts {
 public:
  void add(const ExpertReport& experts);
  /// Every figure's mean over the steps, so that an imbalance that moves about does not even out;
  /// absent without any. max_expert is that of the last step, of the room for rows beyond the plan
  /// bytes and imbalance are the most of any step.
  std::optional<ExpertReport> mean() const;

 private:
  ExpertReport sum_;
  int steps_ = 0;
};

}  // namespace meshplan::program
