// The frame around all formats: folders and job files.
#include "planner/formats/formats.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <set>

#include "core/error.hpp"
#include "planner/explain/priced_plan.hpp"
#include "planner/formats/plans.hpp"
#include "planner/rules/rules.hpp"
#include "planner/search/reasons.hpp"
#include "program/plan_file/plan_file.hpp"
#include "sim/stacks/cluster_preset.hpp"

namespace meshplan::planner {
namespace {

std::map<std::string, std::string> folder_of(const std::string& name, ExportRequest request) {
  std::map<std::string, std::string> files;
  for (const ExportedFile& file : exported_folder(format_of(name), request).files)
    files[file.name] = file.text;
  return files;
}

ImportedPlan read_of(const Format& format, const ImportRequest& request) {
  return format.read(request);
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("formats are found by name, and the nearest is named", "[planner][formats]") {
  CHECK(format_of("megatron").software == "megatron-core");
  CHECK_THROWS_WITH(format_of("megatrn"), "unknown format 'megatrn'; nearest: megatron");
  std::set<std::string_view> names;
  for (const Format& format : formats()) {
    CHECK(names.insert(format.name).second);
    CHECK((format.write != nullptr || format.read != nullptr));
  }
}

TEST_CASE("a folder holds the plan and says why", "[planner][formats]") {
  program::Plan plan = dense_70b();
  plan.prediction = {.step_time_s = 50, .peak_memory_bytes = 64.0 * (1 << 30), .mfu = 0.5};
  const auto files =
      folder_of("megatron", {.plan = plan, .reasons = {"0.5 s faster than #2, tp4 pp8"}});
  CHECK(program::parse_plan(files.at("plan.json"), "plan.json") ==
        program::parse_plan(program::to_json(plan), "plan.json"));
  const std::string& readme = files.at("README.md");
  CHECK(contains(readme, "# llama3-70b: tp8 sp pp4 dp4 on 16 nodes of 8 GPUs\n"));
  CHECK(contains(readme, "- 0.5 s faster than #2, tp4 pp8\n"));
  // 1,024 sequences of 8,192 tokens in 50 s
  CHECK(contains(readme,
                 "A step takes 50.0 s, 167772 tokens/s; MFU 50.0 %; the fullest GPU holds "
                 "64.0 GiB."));
  CHECK(contains(readme, "## Starting it"));
}

// Other stacks keep and recompute what ours does not, so ours is not what their users will see.
TEST_CASE("a folder says what its own stack makes of it", "[planner][formats]") {
  program::Plan plan = dense_70b();
  plan.recompute.kind = program::RecomputeKind::Selective;
  const sim::Cluster cluster = sim::with_ranks(sim::load_cluster_preset("dgx-h100"), 128);
  const ExportRequest request{.plan = plan, .cluster = cluster};
  const Format& megatron = format_of("megatron");
  const auto [files, said] = exported_folder(megatron, request);

  // The same of the script alone, as another user reads it.
  ImportRequest script{.files = {}, .main = "run.sh"};
  for (const ExportedFile& file : files) script.files[file.name] = file.text;
  const sim::StepPrediction step = price(read_of(megatron, script).plan, cluster).step;
  CHECK(contains(
      said, "As megatron-core runs these files a step takes " + format_seconds(step.step_time_s)));
  CHECK(contains(said, format_bytes(step.peak_memory_bytes) + " of 79.6 GiB: "));
  for (const ExportedFile& file : files)
    if (file.name == "README.md") CHECK(contains(file.text, said));
  const ExportedFolder nowhere = exported_folder(megatron, {.plan = plan});
  CHECK(nowhere.predicted.empty());
  CHECK(nowhere.files.size() == files.size());
}

TEST_CASE("export tells its stack what a plan leaves open", "[planner][formats]") {
  program::Plan plan = dense_70b();  // 80 layers
  plan.parallel = {.tp = 8, .pp = 4, .vpp = 3, .dp = 4, .sp = true};
  plan.schedule = program::ScheduleKind::Interleaved;
  const auto refused = [&](const std::string& target, const Facts& told) {
    std::vector<std::string> rules;
    for (const Judgement& judgement : judge(rules_for(target), plan, told))
      if (judgement.refuses()) rules.push_back(judgement.id);
    return rules;
  };
  const std::vector<std::string> divides{"M12a"};
  CHECK(refused("megatron-lm", {}) == divides);
  CHECK(refused("megatron-lm", facts_of_export(format_of("megatron"), {.plan = plan})).empty());
  CHECK(facts_of_export(format_of("slurm"), {.plan = plan}).empty());
}

TEST_CASE("job files start another target's script on as many nodes", "[planner][formats]") {
  ExportRequest request{.plan = dense_70b(), .devices_per_node = 4};
  const auto launched = folder_of("megatron", request);
  for (const char* job : {"slurm", "kubernetes"}) {
    const auto files = folder_of(job, request);
    CHECK(files.at("run.sh") == launched.at("run.sh"));
    CHECK(contains(files.at("README.md"), "## Submitting it"));
    CHECK(contains(files.at("README.md"), "## Starting it"));
  }
  const std::string slurm = folder_of("slurm", request).at("job.sbatch");
  CHECK(contains(slurm, "#SBATCH --nodes=32\n"));
  CHECK(contains(slurm, "#SBATCH --gpus-per-node=4\n"));
  const std::string kubernetes = folder_of("kubernetes", request).at("job.yaml");
  CHECK(contains(kubernetes, "completions: 32\n  parallelism: 32\n"));
  CHECK(contains(kubernetes, "nvidia.com/gpu: 4\n"));
  CHECK(contains(kubernetes, "--from-file=run.sh --from-file=validate.sh"));
  request.launch = "megatron-bridge";
  CHECK(folder_of("slurm", request).contains("recipe.py"));
  request.launch = "kubernetes";
  CHECK_THROWS_WITH(folder_of("slurm", request),
                    Catch::Contains("--launch kubernetes: is no training stack's launch script"));
}

TEST_CASE("a job on part of a node asks for these GPUs", "[planner][formats]") {
  program::Plan plan = dense_70b();
  plan.parallel = {.tp = 2, .dp = 2, .sp = true};
  const auto files = folder_of("slurm", {.plan = plan, .devices_per_node = 8});
  CHECK(contains(files.at("job.sbatch"), "#SBATCH --nodes=1\n"));
  CHECK(contains(files.at("job.sbatch"), "#SBATCH --gpus-per-node=4\n"));
  CHECK(contains(files.at("run.sh"), "\nGPUS_PER_NODE=4\nNNODES=1\n"));
}

TEST_CASE("ranks that do not fill nodes are spread evenly", "[planner][formats]") {
  program::Plan plan = dense_70b();
  plan.parallel = {.tp = 4, .dp = 3, .sp = true};
  plan.workload.global_batch_size = 1023;
  const auto files = folder_of("megatron", {.plan = plan, .devices_per_node = 8});
  CHECK(contains(files.at("run.sh"), "\nGPUS_PER_NODE=6\nNNODES=2\n"));
}

TEST_CASE("names of jobs are those that Kubernetes takes", "[planner][formats]") {
  program::Plan plan = dense_70b();
  plan.model.name = "My Model_v1.5!";
  const auto files = folder_of("kubernetes", {.plan = plan});
  CHECK(contains(files.at("job.yaml"), "  name: train-my-model-v1-5\n"));
}

}  // namespace meshplan::planner
