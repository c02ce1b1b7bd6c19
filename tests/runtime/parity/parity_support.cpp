#include "runtime/parity/parity_support.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "bind/gradient_scale.hpp"
#include "certify/gather_whole.hpp"
#include "certify/twin_batch.hpp"
#include "core/hash.hpp"
#include "train/learning_rate.hpp"

namespace meshplan::test {
namespace {

using program::Region;

/// The first bytes of a region, in host memory.
std::vector<std::byte> read(runtime::Trainer& trainer, Region region, std::int64_t bytes) {
  std::vector<std::byte> data(static_cast<std::size_t>(bytes));
  trainer.device().backend().copy_to_host(data.data(), trainer.arena().region(region), bytes);
  return data;
}

/// Values of a region in the unsharded form, divided by `scale`.
std::map<std::string, std::vector<double>> gather(runtime::Trainer& trainer, Region region,
                                                  runtime::Communicator& world, double scale = 1) {
  std::map<std::string, std::vector<double>> result;
  for (auto& [name, whole] : runtime::gather_whole(trainer, region, world)) {
    for (double& value : whole.values) value /= scale;
    result[name] = std::move(whole.values);
  }
  return result;
}

double norm(const std::vector<double>& values) {
  return std::sqrt(std::inner_product(values.begin(), values.end(), values.begin(), 0.0));
}

}  // namespace

namespace {

RunResult train(const program::Plan& plan, int num_steps, runtime::Communicator& world,
                runtime::Device& device, const Mutation& mutate, const Variant& variant,
                const runtime::StepBatch* given);

}  // namespace

runtime::PackedTokens parity_sequence(const program::Plan& plan, std::int64_t sequence) {
  return runtime::twin_sequence(plan, sequence, /*seed=*/0);
}

runtime::StepBatch parity_batch(const program::Plan& plan, const program::Coordinates& place) {
  return runtime::twin_batch(plan, place, /*seed=*/0);
}

RunResult run_plan(const program::Plan& plan, int num_steps, runtime::Communicator& world,
                   kernels::Backend& backend, const Mutation& mutate, const Variant& variant) {
  runtime::HostDevice device(backend);
  return run_plan(plan, num_steps, world, device, mutate, variant);
}

RunResult run_plan(const program::Plan& plan, int num_steps, runtime::Communicator& world,
                   runtime::Device& device, const Mutation& mutate, const Variant& variant) {
  return train(plan, num_steps, world, device, mutate, variant, nullptr);
}

RunResult run_batch(const program::Plan& plan, const runtime::StepBatch& batch,
                    runtime::Communicator& world, kernels::Backend& backend) {
  runtime::HostDevice device(backend);
  return train(plan, 1, world, device, {}, {}, &batch);
}

namespace {

RunResult train(const program::Plan& plan, int num_steps, runtime::Communicator& world,
                runtime::Device& device, const Mutation& mutate, const Variant& variant,
                const runtime::StepBatch* given) {
  models::ModelGraph graph = models::build_graph(plan.model);
  if (variant.edit_graph) variant.edit_graph(graph);
  program::Program lowered = program::lower(plan, graph, runtime::stage_of(plan, world.rank()),
                                            program::Pass::Training, variant.profile);
  if (mutate) mutate(lowered);
  runtime::Trainer trainer(std::move(lowered), std::nullopt, world, device, /*seed=*/7, nullptr);
  RunResult result;
  const runtime::StepBatch batch =
      given != nullptr ? *given : parity_batch(plan, trainer.groups().coordinates());
  const double loss_scale = runtime::scales_loss(plan.workload) ? 65536 : 1;
  for (int step = 0; step < num_steps; ++step) {
    const runtime::StepOutcome outcome = trainer.train_step(
        batch, {.optimizer_step = step + 1,
                .learning_rate = runtime::learning_rate(plan.workload.optimizer, step, num_steps),
                .loss_scale = loss_scale});
    result.losses.push_back(outcome.loss);
    result.gradient_norms.push_back(outcome.gradient_norm);
    result.balance_losses.push_back(outcome.balance_loss);
    result.z_losses.push_back(outcome.z_loss);
    result.indexer_losses.push_back(outcome.indexer_loss);
    result.prediction_losses.push_back(outcome.prediction_loss);
    result.expert_loads.push_back(outcome.expert_load);
    result.rows_beyond_plan.push_back(outcome.rows_beyond_plan);
    if (step == 0) result.gradients = gather(trainer, Region::Gradients, world, loss_scale);
  }
  const bool fp32 = plan.workload.precision == DType::F32;
  result.weights = gather(trainer, fp32 ? Region::Weights : Region::MasterWeights, world);
  result.weights_hash =
      content_hash(read(trainer, Region::Weights,
                        program::flat_elements(trainer.program(), Region::Weights) *
                            size_of(plan.workload.precision)));
  return result;
}

}  // namespace

double scalar_error(const RunResult& run, const RunResult& reference) {
  double worst = 0;
  for (const auto series :
       {&RunResult::losses, &RunResult::gradient_norms, &RunResult::balance_losses,
        &RunResult::z_losses, &RunResult::indexer_losses, &RunResult::prediction_losses}) {
    const std::vector<double>& expected = reference.*series;
    for (std::size_t step = 0; step < expected.size(); ++step) {
      const double value = (run.*series).at(step);
      worst = std::max(
          worst, expected[step] == 0 ? std::abs(value) : std::abs(value / expected[step] - 1));
    }
  }
  return worst;
}

GradientError compare_gradients(const RunResult& run, const RunResult& reference,
                                double small_fraction) {
  return compare_gradients(run.gradients, reference.gradients, small_fraction);
}

GradientError compare_gradients(const std::map<std::string, std::vector<double>>& run,
                                const std::map<std::string, std::vector<double>>& reference,
                                double small_fraction) {
  double total = 0;
  for (const auto& [name, values] : reference) total += norm(values) * norm(values);
  const double global = std::sqrt(total);
  GradientError error;
  for (const auto& [name, expected] : reference) {
    std::vector<double> difference = run.at(name);
    for (std::size_t i = 0; i < difference.size(); ++i) difference[i] -= expected[i];
    const double size = norm(expected);
    if (size < small_fraction * global) {
      error.small_absolute = std::max(error.small_absolute, norm(difference) / global);
    } else if (!(norm(difference) / size <= error.relative)) {  // also true for NaN
      error.relative = norm(difference) / size;
      error.worst = name;
    }
  }
  return error;
}

}  // namespace meshplan::test
