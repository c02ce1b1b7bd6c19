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
  if (sim::software_violations(plan).empty()) {
    const sim::Cluster cluster =
        sim::with_ranks(sim::load_cluster_preset("dgx-h100"), plan.parallel.world_size());
    sim::Estimator(cluster, plan.stack.software).estimate(plan);
  }
  if (format.write != nullptr) planner::exported_folder(format, {.plan = plan});
}

struct FormatFile {
  const char* reader;
  const char* format;
  std::string file;                        // under which name it is read
  std::optional<models::ModelSpec> model;  // given beside it
  std::optional<int> ranks = {};           // likewise
};

Reader reader_of(const FormatFile& target, std::vector<std::string> seeds) {
  const planner::Format& format = planner::format_of(target.format);
  return {.name = target.reader,
          .weight = 4,
          .deep_every = 4,
          .names_file = true,
          .read = [&format, target](const std::string& text) -> Consumer {
            planner::ImportedPlan imported = format.read({.files = {{target.file, text}},
                                                          .main = target.file,
                                                          .model = target.model,
                                                          .ranks = target.ranks});
            return [&format, imported = std::move(imported)] { use(format, imported); };
          },
          .seeds = std::move(seeds)};
}

/// A target's file with an ending, and a small model beside it.
FormatFile with_model(const char* reader, const char* format, const char* ending) {
  return {reader, format, std::string(kFile) + ending, models::load_preset("tiny-llama")};
}

std::string written(const std::string& format, const program::Plan& plan, const std::string& name) {
  for (const planner::ExportedFile& file :
       planner::exported_folder(planner::format_of(format), {.plan = plan}).files)
    if (file.name == name) return file.text;
  throw InvariantError("no such file is written");
}

std::string script_of(const program::Plan& plan) {
  return written("megatron", plan, "run.sh");
}

/// Of the stacks that are configured by files.
std::vector<Reader> configuration_readers(program::Plan plan) {
  plan.model = models::load_preset("tiny-llama");
  plan.parallel = {.dp = 8};
  plan.workload.precision = DType::BF16;
  program::Plan sharded = plan;
  sharded.zero_stage = 3;
  program::Plan titan = sharded;
  titan.model = models::load_preset("llama3-8b");
  titan.parallel = {.pp = 2, .dp = 4};
  program::Plan plugin = plan;
  plugin.recompute.kind = program::RecomputeKind::Full;
  const std::string toml =
      "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[training]\nlocal_batch_size = 4\n"
      "[parallelism]\ndata_parallel_shard_degree = 2\npipeline_parallel_degree = 2\n"
      "module_fqns_per_model_part = [['tok_embeddings', 'layers.0'], [\"layers.1\"]]\n"
      "[activation_checkpoint]\nmode = \"selective\"\nselective_ac_option = '2'\n";
  const std::string python =
      "SEQ = 2 ** 11\ndef b():\n    return Trainer.Config(training=TrainingConfig(\n"
      "        max_context_length=SEQ, num_tokens_per_microbatch_per_dp_rank=2 * SEQ // 1))\n"
      "def f():\n    config = b()\n    config.parallelism = ParallelismConfig(**x, "
      "data_parallel_shard_degree=-(-2))\n    return config\n";
  const std::string yaml = written("accelerate-fsdp", sharded, "accelerate.yaml");
  return {reader_of(with_model("torchtitan-toml", "torchtitan", ".toml"), {toml}),
          reader_of(with_model("torchtitan-python", "torchtitan", ".py"),
                    {written("torchtitan", titan, "torchtitan_plan.py"), python}),
          reader_of(with_model("deepspeed", "deepspeed", ".json"),
                    {written("deepspeed", sharded, "ds_config.json")}),
          reader_of(with_model("nanotron", "nanotron", ".yaml"),
                    {written("nanotron", plan, "nanotron.yaml")}),
          reader_of(with_model("accelerate", "accelerate-fsdp", ".yaml"),
                    {yaml, written("accelerate-megatron", plugin, "accelerate.yaml"),
                     "a: &a {x: [1, *b]}\nb: {<<: *a}\ndistributed_type: DEEPSPEED\n"
                     "num_processes: 8\ndeepspeed_config: {zero_stage: 2}\n"})};
}

}  // namespace

std::vector<Reader> format_readers() {
  program::Plan experts = sample_plan({.tp = 2, .pp = 2, .dp = 2, .ep = 2, .sp = true}, 16);
  experts.model = models::load_preset("tiny-moe");
  experts.workload.precision = DType::BF16;
  program::Plan dense = sample_plan({.tp = 2, .pp = 2, .dp = 2}, 16);
  dense.workload.precision = DType::BF16;
  std::vector<Reader> readers = configuration_readers(dense);
  readers.push_back(
      reader_of({"megatron", "megatron", kFile, {}},
                {script_of(experts), script_of(dense),
                 "#SBATCH --nodes=2 --gpus-per-node=4\nA=\" --num-layers 4 --hidden-size 64\"\n"
                 "if [[ $A == x ]] || [ -z \"$B\" ]; then A+=\" --bf16\"; fi\n"
                 "case $A in a) B=1;; *) B=$((2**3 % 5));; esac\n"
                 "f() { C=(--lr 1e-4 \"${D[@]}\"); }\nf\n"
                 "srun bash -c \"python x.py $A --num-attention-heads 4 --seq-length 64 "
                 "--max-position-embeddings 64 --micro-batch-size 1 --vocab-size 100 ${C[*]} "
                 "--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout "
                 "'E(t|)*2ttL' --moe-layer-freq '([0]*2+[1]*2)' --num-experts 4\""}));
  readers.push_back(reader_of(
      {"megatron-arguments", "megatron", kFile, {}, 8},
      {"# bash " + std::string(kFile) +
       " 7B 2 true\nSIZE=$1\nTP=${2}\nD=$(cd $(dirname $0) && pwd)\n"
       "if [ $SIZE = 7B ]; then L=4; elif [ $SIZE = 8B ]; then L=8; fi\n"
       "[ $3 = true ] && [ $TP -gt 1 ] && O=\" --sequence-parallel\"\n"
       "for i in $(seq 2) a; do if [ $i = a ]; then break; fi; E+=\" --lr 1e-$i\"; done\n"
       "while [ $# -gt 3 ]; do case $1 in --x) X=${2%.*};; esac; shift; done\n"
       "cat > y.sh <<EOF\neval \"$D\" \\$1\nEOF\nbash y.sh a\n"
       "C=\"torchrun x.py --num-layers ${L} --hidden-size 64 --num-attention-heads 4 --seq-length "
       "64 "
       "--max-position-embeddings 64 --micro-batch-size 1 --patch-tokenizer-type Qwen2Tokenizer "
       "--extra-vocab-size 293 --tensor-model-parallel-size ${TP} ${O} ${E}\"\neval $C\n"}));
  readers.push_back(reader_of(
      {"megatron-test-case", "megatron", std::string(kFile) + ".yaml", {}, 8},
      {"ENV_VARS:\n  A: 1\nMODEL_ARGS:\n  --num-layers: 4\n  --hidden-size: 64\n"
       "  --num-attention-heads: 4\n  --seq-length: 64\n  --max-position-embeddings: 64\n"
       "  --micro-batch-size: 1\n  --vocab-size: 100\n  --bf16: true\n  --bf16: true\n"
       "  --recompute-granularity: selective\n  --recompute-modules: \"[core_attn mlp]\"\n"
       "  --data-path: ${D}/x\n  --tensor-model-parallel-size: 2\n"}));
  return readers;
}

}  // namespace meshplan::fuzz
