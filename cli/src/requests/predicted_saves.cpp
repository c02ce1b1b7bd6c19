#include "requests/predicted_saves.hpp"

#include <vector>

#include "planner/failures/saving.hpp"
#include "program/lower/lower.hpp"
#include "program/memory/saved_share.hpp"

namespace meshplan::cli {

PredictedSaves predicted_saves(const program::Plan& plan,
                               const std::optional<sim::Cluster>& cluster) {
  const std::vector<program::Program> programs = program::lower_all(plan);
  PredictedSaves saves{.bytes = program::saved_bytes(programs).fullest_rank};
  if (!cluster) return saves;
  constexpr double kAnyStep = 1;  // seconds: the cost of one save does not depend on it
  const planner::SavingPrediction saving = planner::predict_saving(
      programs, *cluster, kAnyStep, {.checkpoint_every = 1, .memory_every = 1});
  saves.disk = {.stall_s = saving.disk->stall_s, .bytes = saves.bytes};
  saves.memory = {.stall_s = saving.memory->stall_s, .bytes = saves.bytes};
  return saves;
}

void add(const PredictedSaves& predicted, program::SavingReport& measured) {
  measured.disk.predicted = predicted.disk;
  measured.memory.predicted = predicted.memory;
}

}  // namespace meshplan::cli
