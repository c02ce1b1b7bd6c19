// Layouts that reports and guides give, in layouts.json: their groups, what refuses them, whether
// they fit, and how far their memory is from a closed form (derive.py). docs/check/layouts.md.
#include <catch2/catch.hpp>
#include <cmath>
#include <fmt/format.h>
#include <fstream>
#include <iostream>
#include <sstream>

#include "core/error.hpp"
#include "core/json_fields.hpp"
#include "planner/rules/rules.hpp"
#include "program/plan/mesh.hpp"
#include "program/plan/plan_names.hpp"
#include "sim/engine/memory.hpp"
#include "sim/estimator/estimator.hpp"
#include "sim/stacks/cluster_preset.hpp"
#include "support/project_folder.hpp"

namespace meshplan::planner {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;
constexpr double kStateTolerance = 0.01;
constexpr double kActivationTolerance = 0.1;

std::string text_of_file(const std::string& path) {
  std::ifstream file(test::project_folder() / path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

Json layout_file(const std::string& name) {
  return Json::parse(text_of_file("tests/planner/layouts/" + name));
}

/// One layout of the table with what is derived of it.
struct Layout {
  Json told;
  Json derived;

  std::string name() const { return told["name"]; }
  program::Plan plan() const {
    program::Plan plan;
    plan.model = models::load_preset(told["model"].get<std::string>());
    plan.parallel = {.tp = told.value("tp", 1),
                     .cp = told.value("cp", 1),
                     .pp = told.value("pp", 1),
                     .vpp = told.value("vpp", 1),
                     .dp = told.value("dp", 1),
                     .ep = told.value("ep", 1),
                     .etp = told.value("etp", 1),
                     .sp = told.value("sp", told.value("tp", 1) > 1)};
    plan.workload = {
        .seq_len = told["seq"], .global_batch_size = told["batch"], .precision = DType::BF16};
    plan.micro_batch_size = told.value("micro_batch", 1);
    plan.zero_stage = told.value("zero", 0);
    plan.recompute.kind = *from_name<program::RecomputeKind>(told.value("recompute", "none"));
    plan.count_ends_as_layers = told.value("ends", false);
    if (plan.parallel.vpp > 1) plan.schedule = program::ScheduleKind::Interleaved;
    return plan;
  }
  sim::Cluster cluster() const {
    return sim::with_ranks(sim::load_cluster_preset(told["cluster"].get<std::string>()),
                           told["gpus"]);
  }
  std::string refused_by(const std::string& target) const {
    return told["refused"].value(target, "");
  }
};

std::vector<Layout> layouts() {
  const Json told = layout_file("layouts.json");
  const Json derived = layout_file("derived.json");
  REQUIRE(told.size() == derived.size());
  std::vector<Layout> all;
  for (std::size_t i = 0; i < told.size(); ++i) {
    REQUIRE(told[i]["name"] == derived[i]["name"]);
    all.push_back({told[i], derived[i]});
  }
  return all;
}

program::Group group_of(const std::string& axis) {
  const std::vector<std::pair<std::string, program::Group>> groups = {
      {"tp", program::Group::Tp},       {"cp", program::Group::Cp}, {"dp", program::Group::Dp},
      {"pp", program::Group::Pp},       {"ep", program::Group::Ep}, {"etp", program::Group::Etp},
      {"edp", program::Group::ExpertDp}};
  for (const auto& [name, group] : groups)
    if (name == axis) return group;
  throw InvariantError("no axis " + axis);
}

/// The first rule of a target that refuses a layout; empty if none does.
std::string refusing_rule(const Layout& layout, const std::string& target) {
  for (const Judgement& judgement : judge(rules_for(target), layout.plan()))
    if (judgement.refuses()) return judgement.id;
  return "";
}

double state_of(const sim::StageMemory& stage) {
  return stage.parameters + stage.master_parameters + stage.gradients + stage.optimizer;
}

std::string degrees(const Layout& layout) {
  const program::Plan plan = layout.plan();
  std::string text = program::to_string(plan.parallel);
  if (plan.zero_stage > 0) text += fmt::format(" zero{}", plan.zero_stage);
  if (plan.recompute.kind != program::RecomputeKind::None)
    text += fmt::format(" {}", meshplan::name_of(plan.recompute.kind));
  return text;
}

std::string gib(double bytes) {
  return fmt::format("{:.1f}", bytes / kGiB);
}

std::string or_dash(const std::string& text) {
  return text.empty() ? "-" : text;
}

std::string row(const Layout& layout) {
  const Json& told = layout.told;
  std::string text = fmt::format(
      "| {}: {} | {}, {} | {} | {} / {} ", layout.name(), told["said"].get<std::string>(),
      told["gpus"].get<int>(), told["cluster"].get<std::string>(), degrees(layout),
      or_dash(layout.refused_by("meshplan")), or_dash(layout.refused_by("megatron-lm")));
  if (told["fits"].is_null())
    return text + fmt::format("| - | - | - | {} |\n", told["note"].get<std::string>());
  const sim::MemoryReport memory = sim::memory_of(layout.plan(), layout.cluster());
  const sim::StageMemory& first = memory.stages.front();
  const Json& activations = layout.derived["activation_bytes"];
  return text +
         fmt::format(
             "| {} / {} | {} / {} | {} of {} | {}{} |\n", gib(layout.derived["state_bytes"]),
             gib(state_of(first)), activations.is_null() ? "-" : gib(activations),
             gib(first.activations), gib(memory.peak_bytes), gib(memory.capacity_bytes),
             told["fits"].get<bool>() ? "fits" : "does not fit",
             told["note"].get<std::string>().empty() ? "" : "; " + told["note"].get<std::string>());
}

std::string table() {
  std::string text =
      "| layout | GPUs | degrees | refused by meshplan / Megatron-LM | state, first stage | "
      "activations, first stage | fullest rank | |\n"
      "| --- | ---: | --- | --- | ---: | ---: | ---: | --- |\n";
  for (const Layout& layout : layouts()) text += row(layout);
  return text;
}

}  // namespace

TEST_CASE("Groups of known layouts are those that their definition gives", "[planner][layouts]") {
  for (const Layout& layout : layouts()) {
    const program::Mesh mesh(layout.plan().parallel);
    CHECK(mesh.world_size() == layout.told["gpus"]);
    for (const auto& [axis, expected] : layout.derived["groups"].items()) {
      INFO(layout.name() << ", " << axis);
      const std::vector<std::vector<int>> groups = mesh.groups(group_of(axis));
      CHECK(groups.size() == expected["number"]);
      CHECK(groups.front().size() == expected["size"]);
      CHECK(groups.front() == expected["first"].get<std::vector<int>>());
      CHECK(groups.back() == expected["last"].get<std::vector<int>>());
    }
  }
}

TEST_CASE("Known layouts are refused by the rules that the table names, or by none",
          "[planner][layouts]") {
  for (const Layout& layout : layouts())
    for (const std::string target : {"meshplan", "megatron-lm"}) {
      INFO(layout.name() << " by " << target);
      CHECK(refusing_rule(layout, target) == layout.refused_by(target));
    }
}

TEST_CASE("Memory of known layouts is near a closed form, and fits where the table says so",
          "[planner][layouts]") {
  for (const Layout& layout : layouts()) {
    if (layout.told["fits"].is_null()) continue;
    INFO(layout.name());
    const sim::MemoryReport memory = sim::memory_of(layout.plan(), layout.cluster());
    const sim::StageMemory& first = memory.stages.front();
    const double state = layout.derived["state_bytes"];
    CHECK(state_of(first) == Approx(state).epsilon(kStateTolerance));
    const Json& activations = layout.derived["activation_bytes"];
    if (!activations.is_null())
      CHECK(first.activations == Approx(activations.get<double>()).epsilon(kActivationTolerance));
    CHECK(memory.fits() == layout.told["fits"].get<bool>());
    // What no plan can be without decides where it is more than there is.
    const double least = state + (activations.is_null() ? 0.0 : activations.get<double>());
    if (least > memory.capacity_bytes) CHECK_FALSE(layout.told["fits"].get<bool>());
  }
}

TEST_CASE("A layout that is said to be slower is", "[planner][layouts]") {
  const std::vector<Layout> all = layouts();
  int compared = 0;
  for (const Layout& layout : all) {
    if (!layout.told.contains("slower_than")) continue;
    for (const Layout& other : all) {
      if (other.name() != layout.told["slower_than"].get<std::string>()) continue;
      sim::Estimator estimator(layout.cluster());
      const double ratio = estimator.estimate(layout.plan()).step_time_s /
                           estimator.estimate(other.plan()).step_time_s;
      INFO(layout.name() << " takes " << ratio << " times as long as " << other.name());
      CHECK(ratio > 1.5);
      ++compared;
    }
  }
  CHECK(compared > 0);
}

TEST_CASE("The page shows the table as it is", "[planner][layouts]") {
  const bool shown = text_of_file("docs/check/layouts.md").find(table()) != std::string::npos;
  INFO("print it with: test_planner \"[.layouts-page]\"");
  CHECK(shown);
}

TEST_CASE("The table of the page is printed", "[.layouts-page]") {
  std::cout << table();
}

}  // namespace meshplan::planner
