// Runs a plan on the first ranks of the job and returns what every plan must agree on: losses and
// gradients in the global, unsharded form.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "data/packed_batch.hpp"
#include "kernels/backend.hpp"
#include "program/lower/lower.hpp"
#include "program/plan/lowering_profile.hpp"
#include "program/plan/plan.hpp"
#include "program/plans.hpp"
#include "runtime/comm/communicator.hpp"
#include "runtime/parity/mutations.hpp"
#include "train/trainer.hpp"

namespace meshplan::test {

using program::test::bert_style;
using program::test::gemma2_style;
using program::test::gpt2_style;
using program::test::latent_style;
using program::test::llama_style;
using program::test::post_norm_style;

struct RunResult {
  std::vector<double> losses;  // one per optimizer step
  std::vector<double> gradient_norms;
  std::vector<double> balance_losses;  // of routers, one per step
  std::vector<double> z_losses;
  std::vector<double> indexer_losses;                     // of sparse attention
  std::vector<double> prediction_losses;                  // of prediction modules
  std::vector<std::vector<float>> expert_loads;           // (MoE layers, experts) of each step
  std::vector<program::RowsBeyondPlan> rows_beyond_plan;  // of this rank, one per step
  std::map<std::string, std::vector<double>> gradients;   // of step 1, by parameter; unsharded
  std::map<std::string, std::vector<double>> weights;     // after the last step, the same
  std::uint64_t weights_hash = 0;  // of this rank's weights after the last step
};

/// How a plan is lowered otherwise than by default.
struct Variant {
  program::LoweringProfile profile;
  std::function<void(models::ModelGraph&)> edit_graph;  // may change the splits of linear layers
};

/// Collective over `world`, whose size is the plan's. Gradients are complete on every rank.
RunResult run_plan(const program::Plan& plan, int num_steps, runtime::Communicator& world,
                   kernels::Backend& backend, const Mutation& mutate = {},
                   const Variant& variant = {});
RunResult run_plan(const program::Plan& plan, int num_steps, runtime::Communicator& world,
                   runtime::Device& device, const Mutation& mutate = {},
                   const Variant& variant = {});

/// The batch of every step of run_plan, as the rank at `place` sees it.
runtime::StepBatch parity_batch(const program::Plan& plan, const program::Coordinates& place);

/// With packed documents: a sequence of it, by its place in the global batch.
runtime::PackedTokens parity_sequence(const program::Plan& plan, std::int64_t sequence);

/// One step of one rank on a batch of the caller's.
RunResult run_batch(const program::Plan& plan, const runtime::StepBatch& batch,
                    runtime::Communicator& world, kernels::Backend& backend);

/// ||a - b|| / ||b|| of the worst parameter whose norm is at least `small_fraction` of the global
/// norm, and the largest absolute difference over the others divided by the global norm.
struct GradientError {
  double relative = 0;
  double small_absolute = 0;
  std::string worst;
};
GradientError compare_gradients(const RunResult& run, const RunResult& reference,
                                double small_fraction = 1e-6);
/// Compares any values by parameter in the same way.
GradientError compare_gradients(const std::map<std::string, std::vector<double>>& values,
                                const std::map<std::string, std::vector<double>>& reference,
                                double small_fraction = 1e-6);

/// Largest relative error of the losses and gradient norms of all steps; absolute where the
/// reference is 0.
double scalar_error(const RunResult& run, const RunResult& reference);

}  // namespace meshplan::test
