// Plans, models, clusters and schedules.
#include <algorithm>

#include "checks/program_errors.hpp"
#include "core/error.hpp"
#include "fuzz/reader.hpp"
#include "fuzz/samples.hpp"
#include "models/counts.hpp"
#include "models/hugging_face.hpp"
#include "planner/explain/plan_changes.hpp"
#include "program/certificate/twin.hpp"
#include "program/checks/check.hpp"
#include "program/lower/lower.hpp"
#include "program/plan_file/plan_file.hpp"
#include "program/schedule/csv.hpp"
#include "program/schedule/generators.hpp"
#include "program/schedule/schedule.hpp"
#include "reports/catalog_report.hpp"
#include "reports/schedule_report.hpp"
#include "sim/engine/engine.hpp"
#include "sim/estimator/estimator.hpp"
#include "sim/stacks/cluster_preset.hpp"

namespace meshplan::fuzz {
namespace {

constexpr int kSmallStep = 64;  // tasks, layers or ranks of what is lowered and played

/// Estimates the plan on a large machine; small ones are lowered and played, too.
void use(const program::Plan& plan, const sim::Cluster& machine) {
  const int ranks = plan.parallel.world_size();
  const sim::Cluster cluster = sim::with_ranks(machine, ranks);
  sim::Estimator(cluster).estimate(plan);
  const std::int64_t tasks =
      std::int64_t{plan.parallel.pp} * plan.parallel.vpp * plan.num_microbatches();
  if (ranks > kSmallStep || tasks > kSmallStep || plan.model.num_layers > kSmallStep) return;
  const std::vector<program::Program> stages = program::lower_all(plan);
  for (const std::string& error : program::program_errors(stages))
    throw InvariantError("a plan that was accepted: " + error);
  sim::simulate(stages, cluster, {.break_down = false, .record_spans = false});
}

/// Any plan has twins that can be lowered.
void shrink(const program::Plan& plan) {
  for (const auto precision : {program::TwinPrecision::Exact, program::TwinPrecision::Own})
    for (const program::Twin& twin : program::twins_of(plan, precision).twins) {
      if (twin.plan.schedule == program::ScheduleKind::Custom) continue;  // may be long
      models::validate(twin.plan.model, "twin");
      const std::vector<program::Program> stages = program::lower_all(twin.plan);
      for (const std::string& error : program::program_errors(stages))
        throw InvariantError("a twin: " + error);
    }
}

Consumer read_plan(const std::string& text) {
  const program::Plan plan = program::parse_plan(text, kFile);
  return [plan] {
    program::parse_plan(program::to_json(plan), "written");
    use(plan, sim::load_cluster_preset("dgx-h100"));
    shrink(plan);
  };
}

/// What a model's graph and a plan of one rank make of it.
void use(const models::ImportedModel& model) {
  const models::ModelSpec& spec = model.spec;
  models::parse_model_spec(models::to_json(spec), "written");
  const models::ModelGraph graph = models::build_graph(spec);
  models::count_parameters(graph);
  reports::model_json(model);
  reports::model_text(model);
  program::Plan plan = sample_plan();
  plan.model = spec;
  plan.workload.seq_len = std::min<std::int64_t>(64, spec.max_positions);
  if (program::check(plan).empty()) use(plan, sim::load_cluster_preset("dgx-h100"));
}

Consumer read_model(const std::string& text) {
  return [model = models::load_model(text, kFile)] { use(model); };
}

Consumer read_cluster(const std::string& text) {
  const sim::Cluster cluster = sim::parse_cluster(text, kFile);
  return [cluster] {
    sim::parse_cluster(sim::to_json(cluster), "written");
    reports::cluster_text(cluster);
    const int dp = std::min(4, cluster.num_ranks());
    use(sample_plan({.dp = dp}, 2 * dp), cluster);
    if (cluster.num_ranks() > kSmallStep) return;
    const int ranks = cluster.num_ranks();
    use(sample_plan({.dp = ranks}, 2 * ranks), cluster);
  };
}

Consumer read_schedule(const std::string& text) {
  const program::Schedule schedule = program::parse_schedule_csv(text, kFile);
  return [schedule] {
    int microbatches = 0;
    for (const program::Task& task : schedule.tasks.front())
      microbatches = std::max(microbatches, task.microbatch + 1);
    if (!program::schedule_errors(schedule, microbatches).empty()) return;
    reports::to_text(schedule, "schedule", microbatches);
    reports::to_json(schedule, "schedule", microbatches);
    program::parse_schedule_csv(program::to_csv(schedule), "written");
  };
}

/// Choices that change a plan, with commas between them.
Consumer read_choices(const std::string& text) {
  const program::Plan plan = sample_plan({.tp = 2, .pp = 2, .dp = 2, .sp = true}, 16);
  const planner::ChangedChoices changed = planner::change_choices(plan, text);
  return [changed] {
    if (changed.broken || !program::check(changed.plan).empty()) return;
    use(changed.plan, sim::load_cluster_preset("dgx-h100"));
  };
}

std::vector<std::string> plan_seeds() {
  program::Plan full = sample_plan({.tp = 2, .pp = 2, .dp = 2, .sp = true}, 16);
  full.recompute = {program::RecomputeKind::Full, 1};
  full.cluster_json = sim::to_json(sample_cluster());
  program::Plan experts = sample_plan({.dp = 2, .ep = 2}, 4);
  experts.model = models::load_preset("tiny-moe");
  program::Plan chunks = sample_plan({.pp = 2, .vpp = 2}, 8);
  chunks.model.num_layers = 4;
  chunks.schedule = program::ScheduleKind::Interleaved;
  program::Plan sharded = sample_plan({.cp = 2, .dp = 2}, 4);
  sharded.zero_stage = 3;
  program::Plan own = sample_plan({.pp = 2}, 2);
  own.schedule = program::ScheduleKind::Custom;
  own.custom_schedule = {"0F0,0F1,0B0,0B1", "1F0,1B0,1F1,1B1"};
  std::vector<std::string> seeds;
  for (const program::Plan& plan : {sample_plan(), full, experts, chunks, sharded, own})
    seeds.push_back(without_hashes(program::to_json(plan)));
  return seeds;
}

std::vector<std::string> model_seeds() {
  std::vector<std::string> seeds;
  for (const std::string& name : models::preset_names())
    seeds.push_back(models::to_json(models::load_preset(name)));
  return seeds;
}

std::vector<std::string> hugging_face_seeds() {
  std::vector<std::string> seeds;
  for (const std::string& name : models::preset_names()) {
    const models::ModelSpec spec = models::load_preset(name);
    try {
      seeds.push_back(models::export_hugging_face(spec, models::matching_model_type(spec)));
    } catch (const ConfigError&) {
      continue;  // no type of theirs expresses it
    }
  }
  return seeds;
}

std::vector<std::string> cluster_seeds() {
  std::vector<std::string> seeds{sim::to_json(sample_cluster())};
  for (const char* name : {"dgx-h100", "dgx-a100", "gb200-nvl72"})
    seeds.push_back(sim::to_json(sim::load_cluster_preset(name)));
  return seeds;
}

std::vector<std::string> schedule_seeds() {
  using program::ScheduleKind;
  std::vector<std::string> seeds;
  for (const ScheduleKind kind : {ScheduleKind::GPipe, ScheduleKind::OneFOneB, ScheduleKind::ZbH1,
                                  ScheduleKind::ZbV, ScheduleKind::DualPipeV})
    seeds.push_back(program::to_csv(program::make_schedule(kind, 2, 4)));
  for (const ScheduleKind kind : {ScheduleKind::Interleaved, ScheduleKind::OverlappedOneFOneB})
    seeds.push_back(program::to_csv(program::make_schedule(kind, 2, 4, 2)));
  return seeds;
}

}  // namespace

std::vector<Reader> text_readers() {
  return {{"plan", 4, 30, true, read_plan, plan_seeds()},
          {"model", 4, 30, true, read_model, model_seeds()},
          {"hugging-face", 8, 30, true, read_model, hugging_face_seeds()},
          {"cluster", 4, 30, true, read_cluster, cluster_seeds()},
          {"choices",
           20,
           10,
           false,
           read_choices,
           {"tp=4,pp=1", "vpp=2,mbs=2,recompute=full,recompute_layers=1", "no-sp zero=3,cp=2",
            "schedule=zb-v,layers_per_stage=1,1,1,1,order=tp-cp-ep-dp-pp,offload_optimizer"}},
          {"schedule", 20, 4, true, read_schedule, schedule_seeds()}};
}

}  // namespace meshplan::fuzz
