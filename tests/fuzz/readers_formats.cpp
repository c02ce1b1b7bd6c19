// Configurations of other training stacks.
#include "core/error.hpp"
#include "fuzz/reader.hpp"
#include "fuzz/samples.hpp"
#include "planner/formats/formats.hpp"
#include "program/checks/check.hpp"
#include "program/plan_file/plan_file.hpp"
#include "sim/estimator/estimator.hpp"
#include "sim/stacks/cluster_preset.hpp"
#include "sim/stacks/software.hpp"

namespace meshplan::fuzz {
namespace {

/// What is accepted is a plan's file, and is written and priced or refused by name.
void use(const planner::Format& format, const planner::ImportedPlan& imported) {
  const program::Plan& plan = imported.plan;
  if (!program::check(plan).empty()) return;
  program::parse_plan(program::to_json(plan), "written");
  const sim::ExecutionProfile& software = sim::load_execution_profile(imported.software);
  if (sim::software_violations(plan, software).empty()) {
    const sim::Cluster cluster =
        sim::with_ranks(sim::load_cluster_preset("dgx-h100"), plan.parallel.world_size());
    sim::Estimator(cluster, imported.software).estimate(plan);
  }
  if (format.write != nullptr) planner::exported_folder(format, {.plan = plan});
}

Reader reader_of(const planner::Format& format, std::vector<std::string> seeds) {
  return {.name = std::string(format.name),
          .weight = 4,
          .deep_every = 4,
          .names_file = true,
          .read = [&format](const std::string& text) -> Consumer {
            planner::ImportedPlan imported = format.read({.files = {{kFile, text}}, .main = kFile});
            return [&format, imported = std::move(imported)] { use(format, imported); };
          },
          .seeds = std::move(seeds)};
}

std::string script_of(const program::Plan& plan) {
  for (const planner::ExportedFile& file :
       planner::exported_folder(planner::format_of("megatron"), {.plan = plan}))
    if (file.name == "run.sh") return file.text;
  throw InvariantError("a launch script is written");
}

}  // namespace

std::vector<Reader> format_readers() {
  program::Plan experts = sample_plan({.tp = 2, .pp = 2, .dp = 2, .ep = 2, .sp = true}, 16);
  experts.model = models::load_preset("tiny-moe");
  experts.workload.precision = DType::BF16;
  program::Plan dense = sample_plan({.tp = 2, .pp = 2, .dp = 2}, 16);
  dense.workload.precision = DType::BF16;
  return {reader_of(planner::format_of("megatron"),
                    {script_of(experts), script_of(dense),
                     "#SBATCH --nodes=2 --gpus-per-node=4\nA=\" --num-layers 4 --hidden-size 64\"\n"
                     "if [[ $A == x ]] || [ -z \"$B\" ]; then A+=\" --bf16\"; fi\n"
                     "case $A in a) B=1;; *) B=$((2**3 % 5));; esac\n"
                     "f() { C=(--lr 1e-4 \"${D[@]}\"); }\nf\n"
                     "srun bash -c \"python x.py $A --num-attention-heads 4 --seq-length 64 "
                     "--max-position-embeddings 64 --micro-batch-size 1 --vocab-size 100 ${C[*]} "
                     "--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout "
                     "'E(t|)*2ttL' --moe-layer-freq '([0]*2+[1]*2)' --num-experts 4\""})};
}

}  // namespace meshplan::fuzz
