#include "sim/stacks/run_prediction.hpp"

#include <cmath>
#include <fmt/format.h>

#include "core/error.hpp"
#include "engine/term_sigmas.hpp"
#include "sim/prices/operator_constants.hpp"
#include "sim/stacks/run_terms.hpp"
#include "stacks/memory/run_memory.hpp"
#include "stacks/open_choices.hpp"
#include "stacks/release_recipes.hpp"
#include "stacks/run_habits.hpp"
#include "stacks/run_predictor.hpp"

namespace meshplan::sim {

struct PreparedRun::State {
  TrainingRun run;
  ExecutionProfile profile;
  Cluster cluster;
  RunPlacements placements;
  StageWork work;
  std::vector<RunMemory> memory;  // by stage
  std::vector<std::string> recipes;
};

double RunPrediction::half_width_80() const {
  return sim::half_width_80(relative_sigma);
}

PreparedRun::PreparedRun(const TrainingRun& run) : PreparedRun(run, load_data_sheet(run.cluster)) {}

PreparedRun::PreparedRun(const TrainingRun& run, const Cluster& data_sheet)
    : PreparedRun(run, models::build_graph(run.model), data_sheet) {}

PreparedRun::PreparedRun(TrainingRun run, const models::ModelGraph& graph,
                         const Cluster& data_sheet)
    : state_(std::make_unique<State>()) {
  if (!data_sheet.other_nodes.empty())
    throw ConfigError(fmt::format(
        "cluster '{}' has nodes of several types, for which runs of software '{}' are not "
        "predicted; name one preset, or software 'meshplan'",
        data_sheet.name, run.profile));
  if (!data_sheet.slow_ranks.empty())
    throw ConfigError(fmt::format(
        "cluster '{}' has slow ranks, with which runs of software '{}' are not predicted; leave "
        "slow_ranks out, or name software 'meshplan'",
        data_sheet.name, run.profile));
  State& s = *state_;
  s.run = std::move(run);
  s.profile = profile_of(s.run);
  s.recipes = take_recipes(data_sheet, s.profile, s.run);
  take_habits(s.profile, s.run);
  if (s.run.precision == RunPrecision::NvFp4 &&
      data_sheet.device.architecture != Architecture::Blackwell)
    throw ConfigError(fmt::format(
        "fp8_scaling 'nvfp4' on {}: products of four bits are Blackwell's; nearest: tensorwise",
        data_sheet.device.name));
  s.cluster = with_ranks(data_sheet, s.run.parallel.world_size());
  s.profile.flash = flash_of(s.profile, s.cluster, s.run);
  if (s.cluster.device.architecture == Architecture::Blackwell) s.profile.lays_out_fp8 = false;
  s.placements = place_groups(s.run, s.cluster);
  // By the constants as they were before any fit: no fit changes what a run recomputes.
  static const Constants kExpected = constants_of(at_expected(fitted_constants()));
  const auto memory_of = [&](const TrainingRun& way) {
    return run_memory(way, s.profile, s.cluster,
                      stage_work(way, graph, s.profile, StageCut::ByCost));
  };
  const auto choose = [&] {
    s.run = cheapest_that_fits(
        ways_to_run(s.run, s.profile),
        {.memory = [&](const TrainingRun& way) { return fullest(memory_of(way)); },
         .seconds =
             [&](const TrainingRun& way) {
               const StageWork work = stage_work(way, graph, s.profile, StageCut::Even);
               return predict_step(way, s.profile, s.cluster, s.placements, work, kExpected)
                   .step_time_s;
             }});
    s.memory = memory_of(s.run);
  };
  const TrainingRun asked = s.run;
  choose();
  if (s.profile.can.chunks_loss && !asked.settings.loss && !fullest(s.memory).fits()) {
    s.run = asked;
    s.run.settings.loss = program::LossKernel::Chunked;
    take_loss_kernel(program::LossKernel::Chunked, s.profile);
    choose();
  }
  // Step times of the one stack that cuts by cost are nearer with an even cut: docs/accuracy.md.
  s.work = stage_work(s.run, graph, s.profile, StageCut::Even);
}

PreparedRun::~PreparedRun() = default;
PreparedRun::PreparedRun(PreparedRun&&) noexcept = default;
PreparedRun& PreparedRun::operator=(PreparedRun&&) noexcept = default;

const ExecutionProfile& PreparedRun::profile() const {
  return state_->profile;
}

const TrainingRun& PreparedRun::run() const {
  return state_->run;
}

const std::vector<std::string>& PreparedRun::recipes() const {
  return state_->recipes;
}

const std::vector<RunMemory>& PreparedRun::memory_of_stages() const {
  return state_->memory;
}

RunPrediction PreparedRun::predict(const Constants& constants, const Wanted& wanted) const {
  const State& s = *state_;
  const RunMemory& memory = fullest(s.memory);
  const MemoryNeed need = memory.need();
  const bool misses =
      wanted.memory_reserve && need.bytes > (1 - *wanted.memory_reserve) * need.capacity_bytes;
  RunPrediction prediction = predict_step(s.run, s.profile, s.cluster, s.placements, s.work,
                                          constants, misses ? 0 : wanted.step_time_s);
  prediction.memory = memory;
  if (prediction.at_least) return prediction;
  prediction.relative_sigma =
      relative_sigma_of(terms_of(prediction, s.run), prediction.step_time_s);
  return prediction;
}

double PreparedRun::exposed_sends(const Constants& constants) const {
  const State& s = *state_;
  return sim::exposed_sends(s.run, s.profile, s.cluster, s.placements, s.work, constants);
}

TimedShares PreparedRun::timed_shares(const Constants& constants) const {
  const State& s = *state_;
  const WorkPricer pricer(s.run, s.profile, s.cluster, s.placements, constants);
  PhaseTime all, timed;
  for (const std::vector<ChunkWork>& chunks : s.work.stages)
    for (const ChunkWork& chunk : chunks)
      for (const LayerCount& layers : chunk.layers) {
        const LayerWork& layer = s.work.works[at(layers.work)];
        for (const auto* items : {&layer.forward, &layer.recompute, &layer.backward})
          for (const WorkItem& item : *items) {
            const PhaseTime time = pricer.price({item});
            all.add(time, layers.count);
            if (pricer.near_timed_shape(item)) timed.add(time, layers.count);
          }
      }
  const auto share = [](double part, double whole) { return whole > 0 ? part / whole : 0; };
  return {.products = share(timed.products, all.products),
          .attention = share(timed.attention, all.attention)};
}

RunPrediction PreparedRun::predict(const Constants& constants, const Constants& sigmas) const {
  const State& s = *state_;
  RunPrediction prediction = predict(constants);
  double variance = 0;
  for (const NamedMember<Constants>& constant : constant_members()) {
    Constants moved = constants;
    moved.*constant.member += sigmas.*constant.member;
    if (moved.*constant.member == constants.*constant.member) continue;
    const double step =
        predict_step(s.run, s.profile, s.cluster, s.placements, s.work, moved).step_time_s;
    variance += std::pow(std::log(step / prediction.step_time_s), 2);
  }
  const Device& device = s.cluster.device;
  const bool measured = device.kind == DeviceKind::Cpu || is_measured(device.architecture);
  prediction.constants_sigma = std::hypot(std::sqrt(variance), measured ? 0.0 : kGenerationSigma);
  prediction.relative_sigma =
      relative_sigma_of(terms_of(prediction, s.run), prediction.step_time_s);
  return prediction;
}

}  // namespace meshplan::sim
