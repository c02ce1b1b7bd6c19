#include "check/changes.hpp"

#include <fmt/format.h>

#include "planner/search/space.hpp"
#include "program/plan/plan_names.hpp"
#include "search/module_choices.hpp"

namespace meshplan::planner {
namespace {

using program::Plan;
using program::RecomputeKind;
using program::ScheduleKind;

std::string on_or_off(bool value) {
  return value ? "true" : "false";
}

class Changes {
 public:
  Changes(const Plan& plan, const sim::Cluster& cluster) : plan_(plan), cluster_(cluster) {}

  std::vector<Change> run() {
    recompute();
    micro_batch();
    zero();
    sequence_parallelism();
    schedule();
    meshes();
    experts();
    offload();
    return std::move(found_);
  }

 private:
  void add(Change change) { found_.push_back(std::move(change)); }

  /// One number of the plan.
  void number(ChangeAxis axis, const std::string& path, int from, int to,
              std::function<void(Plan&)> apply) {
    const std::string name = path.substr(path.rfind('.') + 1);
    add({.axis = axis,
         .words = fmt::format("{} {} -> {}", name, from, to),
         .settings = {fmt::format("{}={}", path, to)},
         .apply = std::move(apply)});
  }

  /// Of all layers again, where the plan says which.
  std::vector<std::string> recompute_settings(const program::Recompute& wanted) const {
    std::vector<std::string> settings{
        fmt::format("recompute.kind={}", meshplan::name_of(wanted.kind))};
    if (wanted.modules != plan_.recompute.modules)
      settings.push_back("recompute.modules=" +
                         (wanted.modules.empty() ? "[]" : models::to_string(wanted.modules, ',')));
    if (plan_.recompute.num_layers) settings.emplace_back("recompute.num_layers=null");
    if (!plan_.recompute.layers_per_stage.empty())
      settings.emplace_back("recompute.layers_per_stage=[]");
    return settings;
  }

  /// The kinds, and the sets of modules that a search tries.
  std::vector<program::Recompute> recompute_choices() const {
    std::vector<program::Recompute> choices{{.kind = RecomputeKind::None},
                                            {.kind = RecomputeKind::Selective},
                                            {.kind = RecomputeKind::Full}};
    for (const models::ModuleSet modules : space_preset("default").refined_modules)
      choices.push_back({.kind = RecomputeKind::Selective, .modules = modules});
    return different_recompute(plan_.model, choices);
  }

  void recompute() {
    const program::Recompute& now = plan_.recompute;
    const bool of_all = !now.num_layers && now.layers_per_stage.empty();
    for (const program::Recompute& wanted : recompute_choices()) {
      const bool same = wanted.kind == now.kind && wanted.modules == now.modules;
      if (same && (of_all || now.kind == RecomputeKind::None)) continue;
      add({.axis = ChangeAxis::Recompute,
           .words = fmt::format("recompute {} -> {}{}", program::recompute_name(now),
                                program::recompute_name(wanted), same ? ", of all layers" : ""),
           .settings = recompute_settings(wanted),
           .apply = [wanted](Plan& plan) { plan.recompute = wanted; }});
    }
  }

  void micro_batch() {
    const int now = plan_.micro_batch_size;
    std::vector<int> sizes;
    if (now > 2) sizes.push_back(1);
    if (now % 2 == 0) sizes.push_back(now / 2);
    sizes.push_back(2 * now);
    for (const int size : sizes)
      number(ChangeAxis::MicroBatch, "micro_batch_size", now, size,
             [size](Plan& plan) { plan.micro_batch_size = size; });
  }

  void zero() {
    if (plan_.parallel.dp * plan_.parallel.cp == 1) return;
    for (int stage = 0; stage <= 3; ++stage) {
      if (stage == plan_.zero_stage) continue;
      const bool drops_group = stage == 0 && plan_.zero_shard_group > 0;
      std::vector<std::string> settings{fmt::format("zero_stage={}", stage)};
      if (drops_group) settings.emplace_back("zero_shard_group=0");
      add({.axis = ChangeAxis::Zero,
           .words = fmt::format("zero_stage {} -> {}", plan_.zero_stage, stage),
           .settings = std::move(settings),
           .apply = [stage, drops_group](Plan& plan) {
             plan.zero_stage = stage;
             if (drops_group) plan.zero_shard_group = 0;
           }});
    }
  }

  void sequence_parallelism() {
    if (plan_.parallel.tp == 1) return;
    const bool to = !plan_.parallel.sp;
    add({.axis = ChangeAxis::Sequence,
         .words = to ? "with sp" : "without sp",
         .settings = {"parallel.sp=" + on_or_off(to)},
         .apply = [to](Plan& plan) { plan.parallel.sp = to; }});
  }

  void schedule() {
    if (plan_.schedule == ScheduleKind::Custom) return;
    std::vector<ScheduleChoice> choices = chunked_schedules(plan_.parallel, plan_.model.num_layers);
    if (choices.empty()) return;
    choices.insert(choices.begin(), {.schedule = ScheduleKind::OneFOneB, .vpp = 1});
    for (const ScheduleChoice& choice : choices) {
      if (choice.schedule == plan_.schedule && choice.vpp == plan_.parallel.vpp) continue;
      const std::string name(meshplan::name_of(choice.schedule));
      add({.axis = ChangeAxis::Schedule,
           .words = fmt::format("schedule {} vpp{} -> {} vpp{}", meshplan::name_of(plan_.schedule),
                                plan_.parallel.vpp, name, choice.vpp),
           .settings = {"schedule=" + name, fmt::format("parallel.vpp={}", choice.vpp)},
           .apply = [choice](Plan& plan) {
             plan.schedule = choice.schedule;
             plan.parallel.vpp = choice.vpp;
           }});
    }
  }

  /// Up to eight times, or half as much of an axis, at the cost or to the gain of data parallelism.
  void meshes() {
    mesh("tp", &program::ParallelConfig::tp);
    mesh("pp", &program::ParallelConfig::pp);
    mesh("cp", &program::ParallelConfig::cp);
  }

  /// One stage has neither chunks nor an order of its own.
  static void without_stages(Plan& plan) {
    plan.parallel.vpp = 1;
    plan.schedule = ScheduleKind::OneFOneB;
  }

  void mesh(const char* name, int program::ParallelConfig::*axis) {
    const int now = plan_.parallel.*axis, dp = plan_.parallel.dp;
    const auto turn = [&](int to, int to_dp) {
      Change change{.axis = ChangeAxis::Mesh,
                    .words = fmt::format("{} {} -> {}, dp {} -> {}", name, now, to, dp, to_dp),
                    .settings = {fmt::format("parallel.{}={}", name, to),
                                 fmt::format("parallel.dp={}", to_dp)},
                    .apply = [axis, to, to_dp](Plan& plan) {
                      plan.parallel.*axis = to;
                      plan.parallel.dp = to_dp;
                      if (plan.parallel.tp == 1) plan.parallel.sp = false;
                      if (plan.parallel.pp == 1) without_stages(plan);
                    }};
      if (name == std::string_view("tp") && to == 1 && plan_.parallel.sp)
        change.settings.emplace_back("parallel.sp=false");
      if (name == std::string_view("pp") && to == 1 && plan_.schedule != ScheduleKind::OneFOneB) {
        change.settings.emplace_back("parallel.vpp=1");
        change.settings.emplace_back("schedule=1f1b");
      }
      add(std::move(change));
    };
    for (const int times : {2, 4, 8})
      if (dp % times == 0) turn(times * now, dp / times);
    if (now % 2 == 0) turn(now / 2, 2 * dp);
  }

  void experts() {
    if (!plan_.model.moe) return;
    const int now = plan_.parallel.ep;
    for (const int to : {2 * now, 4 * now, 8 * now, now % 2 == 0 ? now / 2 : 0})
      if (to > 0 && plan_.model.moe->num_experts % to == 0)
        number(ChangeAxis::Experts, "parallel.ep", now, to,
               [to](Plan& plan) { plan.parallel.ep = to; });
  }

  void offload() {
    if (cluster_.device.kind != sim::DeviceKind::Gpu) return;
    const bool to = !plan_.offload_optimizer;
    add({.axis = ChangeAxis::Offload,
         .words = to ? "optimizer in the host's memory" : "optimizer in the device's memory",
         .settings = {"offload_optimizer=" + on_or_off(to)},
         .apply = [to](Plan& plan) { plan.offload_optimizer = to; }});
  }

  const Plan& plan_;
  const sim::Cluster& cluster_;
  std::vector<Change> found_;
};

}  // namespace

std::vector<Change> changes_of(const Plan& plan, const sim::Cluster& cluster) {
  return Changes(plan, cluster).run();
}

Change partial_recompute(const Plan& plan, int layers) {
  std::vector<std::string> settings{"recompute.kind=full",
                                    fmt::format("recompute.num_layers={}", layers)};
  if (!plan.recompute.layers_per_stage.empty())
    settings.emplace_back("recompute.layers_per_stage=[]");
  if (!plan.recompute.modules.empty()) settings.emplace_back("recompute.modules=[]");
  return {
      .axis = ChangeAxis::Recompute,
      .words = fmt::format("recompute {} -> full of {} layer{} a stage",
                           program::recompute_name(plan.recompute), layers, layers == 1 ? "" : "s"),
      .settings = std::move(settings),
      .apply = [layers](Plan& changed) {
        changed.recompute = {.kind = RecomputeKind::Full, .num_layers = layers};
      }};
}

Plan changed(const Plan& plan, const Change& change) {
  Plan other = plan;
  change.apply(other);
  other.prediction.reset();
  const bool other_stages =
      other.parallel.pp * other.parallel.vpp != plan.parallel.pp * plan.parallel.vpp;
  if (other_stages) {
    other.layers_per_stage.clear();
    other.recompute.layers_per_stage.clear();
  }
  return other;
}

}  // namespace meshplan::planner
