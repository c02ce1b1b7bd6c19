#include "train/trainer.hpp"

#include "core/error.hpp"
#include "weights/initialize.hpp"

namespace meshplan::runtime {
namespace {

std::vector<const program::Program*> programs_of(
    const program::Program& training, const std::optional<program::Program>& evaluation) {
  std::vector<const program::Program*> programs = {&training};
  if (evaluation) programs.push_back(&*evaluation);
  return programs;
}

/// Both programs find a weight in the same place of the arena.
void check_same_parameters(const program::Program& training, const program::Program& evaluation) {
  bool same = training.parameters.size() == evaluation.parameters.size();
  for (std::size_t i = 0; same && i < training.parameters.size(); ++i)
    same = training.parameters[i].name == evaluation.parameters[i].name &&
           training.parameters[i].offset == evaluation.parameters[i].offset &&
           training.parameters[i].local_shape == evaluation.parameters[i].local_shape;
  require_invariant(same, "training and evaluation lay parameters out differently");
}

}  // namespace

int stage_of(const program::Plan& plan, int rank) {
  return program::Mesh(plan.parallel, plan.rank_order).coordinates(rank).pp;
}

Trainer::Trainer(program::Program training, std::optional<program::Program> evaluation,
                 Communicator& world, Device& device, std::uint64_t seed, StatusBoard* status)
    : training_(std::move(training)),
      evaluation_(std::move(evaluation)),
      device_(device),
      device_world_(device.make_world(world)),
      groups_(device_world_ ? *device_world_ : world, world, programs_of(training_, evaluation_)),
      arena_(device.backend(), programs_of(training_, evaluation_), &device),
      training_executor_(training_, device, arena_, groups_, status) {
  initialize_parameters(training_, groups_.coordinates(), shard_place(), seed, device.backend(),
                        arena_);
  if (!evaluation_) return;
  check_same_parameters(training_, *evaluation_);
  evaluation_executor_.emplace(*evaluation_, device, arena_, groups_, status);
}

double Trainer::evaluate(const StepBatch& batch) {
  require_invariant(evaluation_executor_.has_value(), "evaluate() without an evaluation program");
  const double loss = evaluation_executor_->run(batch, {}).loss;
  evaluation_executor_->give_back_room();
  return loss;
}

void Trainer::load(ParameterSource& source, LoadedState which) {
  load_parameters(training_, groups_.coordinates(), shard_place(), source, which, device_.backend(),
                  arena_);
}

SaverPlace Trainer::saver_place() const {
  return runtime::saver_place(training_.plan, groups_.world().rank());
}

program::ShardPlace Trainer::shard_place() const {
  return program::shard_place(training_.plan, groups_.mesh(), groups_.world().rank());
}

}  // namespace meshplan::runtime
