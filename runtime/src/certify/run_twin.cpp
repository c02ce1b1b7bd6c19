#include "certify/run_twin.hpp"

#include <fmt/format.h>

#include "bind/gradient_scale.hpp"
#include "certify/copies.hpp"
#include "certify/gather_whole.hpp"
#include "certify/settle.hpp"
#include "certify/twin_batch.hpp"
#include "certify/witness.hpp"
#include "train/learning_rate.hpp"

namespace meshplan::runtime {
namespace {

using program::NamedTensors;
using program::Region;

constexpr double kLossScale = 65536;  // fp16

Region master_region(const program::Plan& plan) {
  return plan.workload.precision == DType::F32 ? Region::Weights : Region::MasterWeights;
}

void add(NamedTensors& sum, const NamedTensors& more) {
  for (const auto& [name, tensor] : more) {
    const auto [entry, fresh] = sum.try_emplace(name, tensor);
    if (fresh) continue;
    for (std::size_t i = 0; i < tensor.values.size(); ++i)
      entry->second.values[i] += tensor.values[i];
  }
}

void divide(NamedTensors& tensors, double by) {
  for (auto& [name, tensor] : tensors)
    for (double& value : tensor.values) value /= by;
}

std::string name_of_step(int step) {
  return fmt::format("step {}", step + 1);
}

program::Program lowered(const program::Plan& plan, int rank, const Mutation& mutate) {
  program::Program program = program::lower(plan, stage_of(plan, rank));
  if (mutate) mutate(program);
  return program;
}

}  // namespace

program::TwinRun run_twin(const program::Plan& plan, const TwinRunOptions& options,
                          Communicator& world, Device& device, const Mutation& mutate) {
  const auto ledger = std::make_shared<Ledger>();
  const auto witnessed = make_witnessed_world(world, ledger);
  const bool alone = world.size() == 1;
  Trainer trainer(lowered(plan, world.rank(), mutate), std::nullopt, alone ? world : *witnessed,
                  device, options.seed, options.status);
  std::optional<CopyComparison> copies;
  if (!alone) copies.emplace(trainer, world);
  const StepBatch batch = twin_batch(plan, trainer.groups().coordinates(), options.seed);
  const double loss_scale = scales_loss(plan.workload) ? kLossScale : 1;
  program::TwinRun run;
  if (!options.compressed) run.start = gather_whole(trainer, master_region(plan), world);
  for (int step = 0; step < options.num_steps; ++step) {
    const StepOutcome outcome = trainer.train_step(
        batch, {.optimizer_step = step + 1,
                .learning_rate = learning_rate(plan.workload.optimizer, step, options.num_steps),
                .loss_scale = loss_scale});
    run.steps.push_back({.loss = outcome.loss,
                         .gradient_norm = outcome.gradient_norm,
                         .balance_loss = outcome.balance_loss,
                         .z_loss = outcome.z_loss,
                         .prediction_loss = outcome.prediction_loss,
                         .indexer_loss = outcome.indexer_loss,
                         .expert_load = outcome.expert_load});
    if (copies) {
      program::add_checks(run.exact, settle(*ledger, world, name_of_step(step)));
      copies->add_step(outcome, name_of_step(step));
    }
    if (step == 0 || options.compressed)
      add(run.gradients, gather_whole(trainer, Region::Gradients, world));
  }
  divide(run.gradients, loss_scale);
  if (plan.compression.kind != program::CompressionKind::None)
    add(run.gradients, gather_lost(trainer, world));  // kept without the loss scale
  if (options.compressed) divide(run.gradients, options.num_steps);
  if (!options.compressed) run.end = gather_whole(trainer, master_region(plan), world);
  if (options.trained_only)
    for (NamedTensors* weights : {&run.start, &run.end})
      std::erase_if(*weights, [&](const auto& one) { return !run.gradients.contains(one.first); });
  if (copies) {
    program::add_checks(run.exact, copies->result(name_of_step(options.num_steps - 1)));
    run.exact = all_checks(run.exact, world);
  }
  return run;
}

}  // namespace meshplan::runtime
