// Launch scripts as people write them. Expected degrees are worked out by hand from the flags.
#include <algorithm>
#include <catch2/catch.hpp>

#include "core/error.hpp"
#include "formats/megatron/megatron.hpp"

namespace meshplan::planner {
namespace {

using program::Plan;

/// A dense model in the shape of most scripts: arrays, defaults and a string.
const std::string kScript = R"(#!/bin/bash
export CUDA_DEVICE_MAX_CONNECTIONS=1
GPUS_PER_NODE=8
NNODES=${SLURM_NNODES:-4}
TP=${TP:-4}
PP=2
SAVE=$1
DISTRIBUTED="--nproc_per_node $GPUS_PER_NODE --nnodes $NNODES --node_rank ${RANK:-0}"
MODEL=(
  --num-layers 24 --hidden-size 2048   # a comment
  --num-attention-heads=16
  --seq-length 4096 --max-position-embeddings 4096
  --swiglu --normalization RMSNorm --position-embedding-type rope
  --disable-bias-linear --untie-embeddings-and-output-weights
  --attention-dropout 0 --hidden-dropout 0.0
  --vocab-size 32000
)
if [ "$TP" -gt 1 ]; then MODEL+=(--sequence-parallel); fi
torchrun $DISTRIBUTED \
  pretrain_gpt.py "${MODEL[@]}" \
  --tensor-model-parallel-size $TP --pipeline-model-parallel-size ${PP} \
  --num-layers-per-virtual-pipeline-stage 3 \
  --micro-batch-size 2 --global-batch-size $((GPUS_PER_NODE * NNODES * 8)) \
  --lr 1e-4 --min-lr 1e-5 --lr-decay-style cosine --lr-warmup-fraction 0.01 --train-iters 5000 \
  --bf16 --use-distributed-optimizer --overlap-grad-reduce \
  --save $SAVE --log-interval 10 2>&1 | tee log.txt
)";

ImportedPlan read(const std::string& text, std::map<std::string, std::string> environment = {}) {
  return read_megatron(
      {.files = {{"run.sh", text}}, .main = "run.sh", .environment = std::move(environment)});
}

std::string refusal(const std::string& text) {
  try {
    read(text);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

std::string with(std::string script, const std::string& from, const std::string& to) {
  const auto at = script.find(from);
  REQUIRE(at != std::string::npos);
  return script.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("a launch script becomes a plan", "[planner][formats]") {
  const ImportedPlan imported = read(kScript);
  const Plan& plan = imported.plan;
  CHECK(plan.parallel.tp == 4);
  CHECK(plan.parallel.pp == 2);
  CHECK(plan.parallel.vpp == 4);  // 24 / 2 / 3
  CHECK(plan.parallel.dp == 4);   // 32 / (4 * 2)
  CHECK(plan.parallel.sp);
  CHECK(plan.schedule == program::ScheduleKind::Interleaved);
  CHECK(plan.zero_stage == 1);
  CHECK(plan.micro_batch_size == 2);
  CHECK(plan.workload.global_batch_size == 256);
  CHECK(plan.workload.seq_len == 4096);
  CHECK(plan.workload.precision == DType::BF16);
  CHECK(plan.workload.optimizer.warmup_steps == 50);
  CHECK(plan.workload.optimizer.minimum_ratio == Approx(0.1));
  CHECK(plan.workload.optimizer.beta2 == 0.999);  // Megatron-LM's default, not ours
  CHECK(plan.workload.optimizer.weight_decay == 0.01);
  const models::ModelSpec& model = plan.model;
  CHECK(model.ffn_size == 5440);  // int(4 * 2048 * 2 / 3 / 64) * 64
  CHECK(model.head_size == 128);
  CHECK(model.num_kv_heads == 16);
  CHECK_FALSE(model.tied_embeddings);
  CHECK_FALSE(model.qkv_bias);
  CHECK(model.name == "run");
  CHECK(imported.plan.stack.software == "megatron-core");
  CHECK(imported.plan.stack.settings.overlap_dp == true);
  CHECK(imported.plan.stack.settings.overlap_tp == false);
  CHECK(imported.plan.stack.settings.gradient_dtype == program::StateDType::F32);
  CHECK(imported.facts.at("overlap_grad_reduce") == 1);
  CHECK(imported.facts.at("num_layers_per_virtual_pipeline_stage") == 3);
  CHECK(imported.facts.at("overlap_param_gather") == 0);
  CHECK_FALSE(imported.facts.contains("num_layers"));  // the plan's own
  CHECK(imported.ignored == std::vector<std::string>{"--save $1", "--log-interval 10"});
  CHECK(imported.assumptions.empty());
}

TEST_CASE("what the caller sets changes the plan", "[planner][formats]") {
  const Plan plan = read(kScript, {{"SLURM_NNODES", "16"}, {"TP", "1"}}).plan;
  CHECK(plan.parallel.tp == 1);
  CHECK_FALSE(plan.parallel.sp);
  CHECK(plan.parallel.dp == 64);
  CHECK(plan.workload.global_batch_size == 1024);
}

TEST_CASE("what is needed and not known is asked for", "[planner][formats]") {
  CHECK(refusal(with(kScript, "TP=${TP:-4}", "TP=$(python choose.py)")) ==
        "run.sh:19: --tensor-model-parallel-size $(python choose.py): $(python choose.py) is a "
        "command's output; give it with --env NAME=VALUE");
  CHECK(refusal(with(kScript, "NNODES=${SLURM_NNODES:-4}", "NNODES=$SLURM_NNODES")) ==
        "run.sh: the number of GPUs is not known (SLURM_NNODES is not set); give it with --gpus");
  CHECK(refusal(with(kScript, "--num-layers 24", "")) ==
        "run.sh: --num-layers is not given, and Megatron-LM has no default for it; add it, or name "
        "the model with --model");
  CHECK(refusal("echo hello\n") ==
        "run.sh: starts nothing with Megatron-LM's flags, such as --num-layers and "
        "--tensor-model-parallel-size");
}

/// Pai-Megatron-Patch's way: arguments by number, branches over them.
const std::string kArguments = R"sh(ENV=$1
MODEL_SIZE=$2
BATCH_SIZE=$3
TP=${4}
SP=$5
DATA=$6
if [ $ENV = dsw ]; then GPUS_PER_NODE=`python -c "print(8)"`; elif [ $ENV = dlc ]; then
  NNODES=${WORLD_SIZE}; GPUS_PER_NODE=${KUBERNETES_CONTAINER_RESOURCE_GPU}; fi
DISTRIBUTED_ARGS="--nproc_per_node $GPUS_PER_NODE --nnodes $NNODES --master_addr $MASTER_ADDR"
if [ $MODEL_SIZE = 7B ]; then NUM_LAYERS=32; elif [ $MODEL_SIZE = 1B ]; then NUM_LAYERS=16; fi
if [ $SP = true ] && [ $TP -gt 1 ]; then sp_options=" --sequence-parallel"; fi
options=" --num-layers ${NUM_LAYERS} --hidden-size 2048 --num-attention-heads 16 --seq-length 128 \
  --max-position-embeddings 128 --micro-batch-size ${BATCH_SIZE} --global-batch-size 64 --bf16 \
  --tensor-model-parallel-size ${TP} --vocab-size 1000 --data-path ${DATA} ${sp_options}"
run_cmd="torchrun $DISTRIBUTED_ARGS pretrain.py ${options}"
eval ${run_cmd}
)sh";

ImportedPlan read_arguments(std::optional<std::string> arguments,
                            std::map<std::string, std::string> files = {}) {
  files["x/run.sh"] = kArguments;
  return read_megatron({.files = std::move(files),
                        .main = "x/run.sh",
                        .ranks = 8,
                        .arguments = std::move(arguments)});
}

TEST_CASE("arguments that are missing are named at once, with a command line that would do",
          "[planner][formats]") {
  std::string message;
  try {
    read_arguments(std::nullopt);
  } catch (const ConfigError& error) {
    message = error.what();
  }
  CHECK(message ==
        "x/run.sh: settings depend on what is not given: MODEL_SIZE ($2) one of 7B, 1B, for "
        "--num-layers; BATCH_SIZE ($3) for --micro-batch-size; TP ($4) for --sequence-parallel "
        "--tensor-model-parallel-size; SP ($5) one of true, for --sequence-parallel; for example: "
        "meshplan import x/run.sh --gpus 8 --args 'dsw 7B 1 1 true none'");
  const Plan plan = read_arguments("dsw 7B 1 1 true x").plan;
  CHECK(plan.model.num_layers == 32);
  CHECK_FALSE(plan.parallel.sp);
  CHECK(read_arguments("dlc 1B 2 4 true /data").plan.parallel.sp);
  CHECK_FALSE(read_arguments("dlc 1B 2 4 false /data").plan.parallel.sp);
  CHECK_THROWS_WITH(read_arguments("dsw 1B 1"), Catch::Contains("depend on what is not given: TP"));
}

TEST_CASE("a page beside the script says how it is started", "[planner][formats]") {
  const std::string page =
      "Edit `run.sh`:\n```\nsh run.sh <env> <size>\ncd /x\nsh run.sh  \\\ndsw \\ \n1B   \\\n4 "
      "\\\n2 "
      "\\\ntrue \\\n/data\n```\n";
  const ImportedPlan imported = read_arguments(std::nullopt, {{"x/README.md", page}});
  CHECK(imported.plan.model.num_layers == 16);
  CHECK(imported.plan.micro_batch_size == 4);
  CHECK(imported.plan.parallel.tp == 2);
  CHECK(imported.plan.parallel.sp);
  CHECK(imported.assumptions.front() ==
        "arguments: dsw 1B 4 2 true /data (as README.md:5 has it); others with --args");
  // Given ones are not looked up, and others' scripts are not this one.
  CHECK(read_arguments("dsw 7B 1 1 false x", {{"x/README.md", page}}).plan.model.num_layers == 32);
  CHECK_THROWS_AS(read_arguments(std::nullopt, {{"x/README.md", "sh other_run.sh a b c d e f\n"}}),
                  ConfigError);
}

TEST_CASE("what trains no decoder of text says what it starts", "[planner][formats]") {
  const std::string flags = " --num-layers 2 --hidden-size 8 --vocab-size 10";
  CHECK(refusal("torchrun a/evaluate_gpt.py" + flags) ==
        "run.sh:1: starts no training, but a/evaluate_gpt.py, which evaluates");
  CHECK(refusal("python -m examples.inference.server" + flags) ==
        "run.sh:1: starts no training, but examples.inference.server, which generates text or "
        "serves");
  CHECK(refusal("torchrun --nproc_per_node 8 pretrain_bert.py" + flags) ==
        "run.sh: pretrain_bert.py trains an encoder (BERT); plans of Megatron-LM are read of "
        "decoders of text");
  CHECK(refusal("torchrun --nproc_per_node 8 x.py --hybrid-layer-pattern M-M*" + flags) ==
        "run.sh:1: --hybrid-layer-pattern M-M*: is of a hybrid with layers of Mamba; plans of "
        "Megatron-LM are read of decoders of text");
}

TEST_CASE("a missing vocabulary is the tokenizer's, or that of the nearest preset",
          "[planner][formats]") {
  const auto vocabulary = [](const std::string& flags) {
    const ImportedPlan imported = read(with(kScript, "--vocab-size 32000", flags));
    const auto said = std::ranges::find_if(imported.assumptions, [](const std::string& each) {
      return each.starts_with("vocab_size = ");
    });
    REQUIRE(said != imported.assumptions.end());
    return imported.plan.model.vocab_size;
  };
  CHECK(vocabulary("--tokenizer-type GPT2BPETokenizer") == 50257);
  CHECK(vocabulary("--tokenizer-type Llama2Tokenizer --tokenizer-model $2") == 32000);
  CHECK(vocabulary("--patch-tokenizer-type Qwen2Tokenizer --extra-vocab-size 421") == 152064);
  CHECK(vocabulary("--patch-tokenizer-type DeepSeekV2Tokenizer --extra-vocab-size 467") == 129280);
  CHECK(vocabulary("--patch-tokenizer-type DeepSeekV2Tokenizer --extra-vocab-size 2400") == 102400);
  CHECK(vocabulary("--patch-tokenizer-type LLama3Tokenizer --extra-vocab-size 256") == 128256);
  CHECK(vocabulary("--tokenizer-type HuggingFaceTokenizer --tokenizer-model Qwen/Qwen3-8B") ==
        151936);
  CHECK(vocabulary("--padded-vocab-size 1024 --tokenizer-type GPT2BPETokenizer") == 1024);
  CHECK(vocabulary("--merge-file m --vocab-file v") == 50257);
  CHECK(vocabulary("--tokenizer-type HuggingFaceTokenizer --tokenizer-model $TOKENIZER") > 30000);
}

TEST_CASE("flags of older versions and of forks are read as what they became",
          "[planner][formats]") {
  const Plan old = read(with(kScript, "--swiglu",
                             "--swiglu --activations-checkpoint-method uniform --fp8-hybrid"))
                       .plan;
  CHECK(program::recompute_name(old.recompute) == "full");
  CHECK(old.workload.fp8 == program::Float8Recipe::Hybrid);
  const Plan fork = read(with(kScript, "--disable-bias-linear",
                              "--disable-bias-linear-fc --disable-bias-attn-fc"))
                        .plan;
  CHECK(fork.model.qkv_bias);
  CHECK_FALSE(fork.model.mlp_bias);
  CHECK_FALSE(fork.model.attention_out_bias);
  CHECK(
      read(with(kScript, "--lr 1e-4", "--lr 1e-4 --optimizer hybridadam")).plan.offload_optimizer);
  CHECK_THROWS_WITH(
      read(with(kScript, "--swiglu", "--swiglu --patch-tokenizer-type Qwen2VLTokenizer")),
      Catch::Contains("is of a model of images and text"));
}

TEST_CASE("test cases of Megatron-LM hold flags as a map", "[planner][formats]") {
  const auto read_case = [](const std::string& text, const std::string& model = "gpt") {
    const std::string file = "test_cases/" + model + "/a_case/model_config.yaml";
    return read_megatron({.files = {{file, text}}, .main = file, .ranks = 8});
  };
  const std::string text =
      "ENV_VARS:\n  A: 1\nMODEL_ARGS:\n  --num-layers: 12\n  --hidden-size: 512\n"
      "  --num-attention-heads: 8\n  --seq-length: 1024\n  --max-position-embeddings: 1024\n"
      "  --micro-batch-size: 4\n  --global-batch-size: 32\n  --tensor-model-parallel-size: 2\n"
      "  --pipeline-model-parallel-size: 2\n  --sequence-parallel: true\n  --swiglu: false\n"
      "  --bf16: true\n  --lr: 1.0e-4\n  --recompute-granularity: selective\n"
      "  --recompute-modules: \"[core_attn mlp]\"\n  --data-path: ${DATA}/x\n"
      "  --vocab-file: ${DATA}/v\n  --merge-file: ${DATA}/m\n";
  CHECK(recognizes_megatron("a/model_config.yaml", text));
  const Plan plan = read_case(text).plan;
  CHECK(plan.model.num_layers == 12);
  CHECK(plan.model.mlp == models::Mlp::Plain);
  CHECK(plan.model.vocab_size == 50257);
  CHECK(plan.parallel.sp);
  CHECK(plan.parallel.dp == 2);
  CHECK(plan.workload.optimizer.learning_rate == 1e-4);
  CHECK(program::recompute_name(plan.recompute) == "attention+mlp");
  const ImportedPlan twice = read_case(text + "  --num-layers: 16\n");
  CHECK(twice.plan.model.num_layers == 16);
  CHECK(
      twice.assumptions.front().ends_with("--num-layers: 12 is given again: the last one counts"));
  CHECK_THROWS_WITH(read_case(text, "t5"), Catch::Contains("t5 trains an encoder and a decoder"));
  CHECK_THROWS_WITH(read_case(with(text, "ENV_VARS", "MODE: inference\nENV_VARS")),
                    Catch::Contains("MODE inference: starts no training"));
  CHECK_THROWS_WITH(read_case("MODEL_ARGS:\n  num-layers: 2\n"),
                    Catch::Contains("MODEL_ARGS.num-layers: expected a flag with one value"));
}

TEST_CASE("wrong values are refused with their place", "[planner][formats]") {
  CHECK(refusal(with(kScript, "PP=2", "PP=two")) ==
        "run.sh:19: --pipeline-model-parallel-size two: expected a whole number from 1 to 1048576");
  CHECK(refusal(with(kScript, "PP=2", "PP=3")) ==
        "run.sh:19: --num-layers-per-virtual-pipeline-stage 3: 24 layers are no multiple of 3 * "
        "pp(3); nearest: 2");
  CHECK(refusal(with(kScript, "RMSNorm", "RMSnorm")) ==
        "run.sh:19: --normalization RMSnorm: is not read here; nearest: RMSNorm");
  CHECK(refusal(with(kScript, "TP=${TP:-4}", "TP=5")) ==
        "run.sh: 32 ranks are no multiple of tp(5) * pp(2) * cp(1) = 10; nearest: 30");
  CHECK(refusal(with(kScript, "--swiglu", "--swiglu yes")) ==
        "run.sh:19: --swiglu takes no value, and 'yes' follows it");
}

TEST_CASE("flags that Megatron-LM does not have are named with the nearest", "[planner][formats]") {
  const ImportedPlan imported = read(with(kScript, "--swiglu", "--swiglu --moe-router-topkk 2"));
  CHECK(imported.assumptions ==
        std::vector<std::string>{"run.sh:19: Megatron-LM d98e8a64 has no --moe-router-topkk; "
                                 "nearest: --moe-router-topk"});
  CHECK(imported.ignored.front() == "--moe-router-topkk 2");
}

TEST_CASE("Megatron-LM's defaults are meant where nothing is said", "[planner][formats]") {
  const ImportedPlan imported = read(
      "torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 12 --hidden-size 768 "
      "--num-attention-heads 12 --seq-length 1024 --max-position-embeddings 1024 "
      "--micro-batch-size 4 --vocab-file v --merge-file m --tensor-model-parallel-size 2 "
      "--num-experts 8 --lr 1e-4");
  const Plan& plan = imported.plan;
  CHECK(plan.model.vocab_size == 50257);
  CHECK(plan.model.ffn_size == 0);                 // every layer has experts,
  CHECK(plan.model.moe->expert_ffn_size == 3072);  // as wide as a dense one
  CHECK(plan.model.moe->top_k == 2);
  CHECK(plan.model.moe->expert_bias);
  CHECK(plan.model.norm == models::Norm::LayerNorm);
  CHECK(plan.model.activation == models::ActivationKind::GeluTanh);
  CHECK(plan.model.positions == models::Positions::Learned);
  CHECK(plan.model.tied_embeddings);
  CHECK(plan.parallel.etp == 2);
  CHECK(plan.parallel.dp == 4);
  CHECK(plan.workload.global_batch_size == 16);
  CHECK(plan.workload.precision == DType::F32);
  CHECK(plan.workload.optimizer.schedule == program::LearningRateSchedule::Cosine);
  CHECK(imported.assumptions ==
        std::vector<std::string>{
            "vocab_size = 50257 (GPT-2's, which --merge-file stands for)",
            "--attention-dropout 0.1 (where it is not given)",
            "--hidden-dropout 0.1 (where it is not given)", "etp = tp = 2 (Megatron-LM's default)",
            "the learning rate falls as a cosine (the script's: linear)",
            "global_batch_size = micro_batch_size * dp = 16 (Megatron-LM's default)"});
}

TEST_CASE("divisions are read in all of Megatron-LM's ways", "[planner][formats]") {
  const auto layers = [](const std::string& flags, int num_layers) {
    const Plan plan = read("torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers " +
                           std::to_string(num_layers) +
                           " --hidden-size 512 --num-attention-heads 8 --seq-length 512 "
                           "--max-position-embeddings 512 --micro-batch-size 1 --vocab-size 1000 "
                           "--global-batch-size 32 --pipeline-model-parallel-size 4 " +
                           flags)
                          .plan;
    return resolved_layers_per_stage(plan);
  };
  using Layers = std::vector<int>;
  CHECK(layers("", 16) == Layers{4, 4, 4, 4});
  CHECK(layers("--num-virtual-stages-per-pipeline-rank 2", 16) == Layers(8, 2));
  CHECK(layers("--decoder-first-pipeline-num-layers 3 --decoder-last-pipeline-num-layers 2", 13) ==
        Layers{3, 4, 4, 2});
  CHECK(layers("--decoder-last-pipeline-num-layers 1", 16) == Layers{5, 5, 5, 1});
  CHECK(layers("--decoder-first-pipeline-num-layers 2 --num-virtual-stages-per-pipeline-rank 2",
               14) == Layers{1, 2, 2, 2, 1, 2, 2, 2});
  CHECK(layers("--account-for-embedding-in-pipeline-split "
               "--account-for-loss-in-pipeline-split",
               14) == Layers{3, 4, 4, 3});
  CHECK(layers("--account-for-loss-in-pipeline-split", 15) == Layers{4, 4, 4, 3});
  CHECK(layers("--pipeline-model-parallel-layout 'E|(t|)*6t*8L'", 14) ==
        Layers{0, 1, 1, 1, 1, 1, 1, 8});
  CHECK_THROWS_WITH(layers("", 15), Catch::Contains("Megatron-LM refuses it without"));
  CHECK_THROWS_WITH(layers("--decoder-first-pipeline-num-layers 3", 16),
                    Catch::Contains("leaves 13 layers for 3 stages between"));
  CHECK_THROWS_WITH(layers("--pipeline-model-parallel-layout 'Et|t|tL'", 3),
                    Catch::Contains("has 3 stages, no multiple of"));
}

TEST_CASE("degrees that no model has layers for are refused before anything is listed",
          "[planner][formats]") {
  CHECK(refusal(with(kScript, "PP=2", "PP=1048576")) ==
        "run.sh: pp(1048576) * vpp(1) = 1048576 stages for --num-layers 24; nearest pp: 24");
  CHECK(refusal(with(kScript, "--num-layers-per-virtual-pipeline-stage 3",
                     "--num-virtual-stages-per-pipeline-rank 16000")) ==
        "run.sh: pp(2) * vpp(16000) = 32000 stages for --num-layers 24; nearest pp: 1");
  std::string many = "torchrun --nproc_per_node 8 x.py --num-layers 2 --hidden-size 8";
  for (int i = 0; i < 20000; ++i) many += " --unknown-" + std::to_string(i);
  CHECK(refusal(many).starts_with("run.sh: --num-attention-heads is not given"));
}

TEST_CASE("Megatron-LM's rules find what a script does wrong", "[planner][formats]") {
  const auto refused = [](const std::string& script) {
    const ImportedPlan imported = read(script);
    std::vector<std::string> ids;
    for (const Judgement& judgement :
         judge(rules_for("megatron-lm"), imported.plan, imported.facts))
      if (judgement.refuses()) ids.push_back(judgement.id);
    return ids;
  };
  using Ids = std::vector<std::string>;
  CHECK(refused(kScript).empty());
  // Gathered beside computation, though gradients are not.
  CHECK(refused(with(kScript, "--overlap-grad-reduce", "--overlap-param-gather")) == Ids{"M20"});
  CHECK(refused(with(kScript, "--num-attention-heads=16",
                     "--num-attention-heads=2 --kv-channels 8")) == Ids{"M4"});
  CHECK(refused(with(kScript, "--global-batch-size $((GPUS_PER_NODE * NNODES * 8))",
                     "--global-batch-size 250")) == Ids{"M9", "M14"});
  CHECK(refused(with(kScript, "--bf16",
                     "--bf16 --recompute-granularity selective "
                     "--recompute-modules core_attn moe_act")) == Ids{"M17b"});
  // Megatron-LM's test case gpt3_mcore_te_tp2_pp2_cp2_etp4_dp_last: a dense model's etp counts in
  // how its ranks are laid out (kScript's are 64: tp 4, pp 2).
  const std::string last = "--use-tp-pp-dp-mapping --expert-tensor-parallel-size ";
  CHECK(refused(with(kScript, "--bf16", "--bf16 " + last + "4")).empty());
  CHECK(refused(with(kScript, "--bf16", "--bf16 " + last + "2")) == Ids{"M3"});
  // A layout has as many prediction modules as the model.
  const std::string experts = "--num-layers-per-virtual-pipeline-stage 3";
  CHECK(refused(with(kScript, experts,
                     "--mtp-num-layers 1 --pipeline-model-parallel-layout 'Et*12|t*12mL'"))
            .empty());
  CHECK(refused(with(kScript, experts, "--pipeline-model-parallel-layout 'Et*12|t*12mL'")) ==
        Ids{"M12c"});
}

TEST_CASE("gated delta nets, indexers and prediction modules are read from a script",
          "[planner][formats]") {
  const auto read_with = [](const std::string& flags) {
    return read(with(kScript, "--bf16", "--bf16 " + flags));
  };
  const std::string delta =
      "--experimental-attention-variant gated_delta_net --linear-conv-kernel-dim 4 "
      "--linear-key-head-dim 64 --linear-value-head-dim 128 --linear-num-key-heads 8 "
      "--linear-num-value-heads 16 --attention-output-gate ";
  const models::ModelSpec hybrid = read_with(delta + "--linear-attention-freq 4").plan.model;
  using models::Mixer;
  CHECK(hybrid.layer_pattern ==
        std::vector<Mixer>{Mixer::Linear, Mixer::Linear, Mixer::Linear, Mixer::Full});
  CHECK(hybrid.attention_output_gate);
  REQUIRE(hybrid.linear_attention);
  CHECK(*hybrid.linear_attention == models::LinearAttentionSpec{.num_key_heads = 8,
                                                                .num_value_heads = 16,
                                                                .key_head_size = 64,
                                                                .value_head_size = 128,
                                                                .conv_size = 4});
  CHECK(read_with(delta + "--linear-attention-freq '([1]*23+[0]*1)'")
            .plan.model.layer_pattern.size() == 24);
  const std::string latent =
      "--multi-latent-attention --q-lora-rank 96 --experimental-attention-variant dsa ";
  // Megatron-LM's own sizes, but which layers they are must be said.
  const models::ModelSpec plain =
      read_with("--experimental-attention-variant gated_delta_net --linear-attention-freq 2")
          .plan.model;
  CHECK(plain.linear_attention == models::LinearAttentionSpec{.num_key_heads = 16,
                                                              .num_value_heads = 32,
                                                              .key_head_size = 128,
                                                              .value_head_size = 128,
                                                              .conv_size = 4});
  const auto refused = [&](const std::string& flags) {
    return refusal(with(kScript, "--bf16", "--bf16 " + flags));
  };
  CHECK_THAT(refused(delta), Catch::Contains("--linear-attention-freq is not given"));
  CHECK_THAT(refused("--experimental-attention-variant dsa"),
             Catch::Contains("add --multi-latent-attention"));
  const std::string indexer = latent + "--dsa-indexer-n-heads 4 --dsa-indexer-head-dim 32 ";
  CHECK_THAT(refused(indexer + "--dsa-indexer-topk 512 --dsa-indexer-topk-freq 4"),
             Catch::Contains("--dsa-indexer-topk-freq") && Catch::Contains("share choices"));
  const ImportedPlan sparse =
      read_with(indexer +
                "--dsa-indexer-topk 512 --dsa-indexer-loss-coeff 0.01 --mtp-num-layers 1 "
                "--mtp-loss-scaling-factor 0.3 --mtp-detach-heads");
  REQUIRE(sparse.plan.model.sparse_attention);
  CHECK(*sparse.plan.model.sparse_attention ==
        models::SparseAttentionSpec{.index_heads = 4, .index_head_size = 32, .top_k = 512});
  CHECK(sparse.plan.model.mtp_layers == 1);
  CHECK(sparse.plan.model.mtp_loss_coefficient == 0.3);
  const auto assumes = [&](std::string_view what) {
    return std::ranges::any_of(sparse.assumptions, [&](const std::string& assumption) {
      return assumption.find(what) != std::string::npos;
    });
  };
  CHECK(assumes("the indexer's loss has the weight 1 (the script's is 0.01)"));
  CHECK(assumes("the script has no --dsa-indexer-use-sparse-loss"));
  CHECK(assumes("gradients of prediction modules reach the model"));
}

TEST_CASE("modules that a script recomputes are kept, but for those that the model has not",
          "[planner][formats][recompute]") {
  const auto imported = [](const std::string& modules) {
    return read(with(kScript, "--bf16", "--bf16 --recompute-granularity selective" + modules));
  };
  CHECK(program::recompute_name(imported("").plan.recompute) == "selective");
  const ImportedPlan known = imported(" --recompute-modules core_attn layernorm mlp");
  CHECK(program::recompute_name(known.plan.recompute) == "norms+attention+mlp");
  const ImportedPlan some = imported(" --recompute-modules mlp moe_act gdn_norm_out");
  CHECK(program::recompute_name(some.plan.recompute) == "mlp");
  CHECK(std::ranges::any_of(some.assumptions, [](const std::string& assumption) {
    return assumption.find("without moe_act, gdn_norm_out") != std::string::npos;
  }));
}

TEST_CASE("a job file's directives say how many ranks there are", "[planner][formats]") {
  const std::string flags =
      " pretrain_gpt.py --num-layers 12 --hidden-size 768 --num-attention-heads 12 "
      "--seq-length 1024 --max-position-embeddings 1024 --micro-batch-size 1 --vocab-size 50257 "
      "--global-batch-size 64 --tensor-model-parallel-size 2";
  const auto ranks = [&](const std::string& head) {
    return read(head + flags).plan.parallel.world_size();
  };
  CHECK(ranks("#SBATCH --nodes=4\n#SBATCH --gpus-per-node=8\nsrun python") == 32);
  CHECK(ranks("#SBATCH -N 2\n#SBATCH --gres=gpu:4\nsrun python") == 8);
  CHECK(ranks("srun -N 2 --ntasks-per-node=8 python") == 16);
  CHECK(ranks("mpirun -np 16 python") == 16);
  CHECK(ranks("torchrun --nnodes=2 --nproc-per-node=8") == 16);
  CHECK(ranks("python -m torch.distributed.run --nnodes 2 --nproc_per_node 4") == 8);
  // A command in a string, as containers take it.
  CHECK(read("#SBATCH --nodes=4 --gpus-per-node=8\nTP=2\nsrun bash -c \"cd x; python" + flags +
             " --sequence-parallel\"")
            .plan.parallel.sp);
}

TEST_CASE("a model beside the script describes it", "[planner][formats]") {
  const ImportedPlan imported =
      read_megatron({.files = {{"run.sh",
                                "torchrun --nproc_per_node 8 pretrain_gpt.py --use-checkpoint-args "
                                "--load ckpt --seq-length 4096 --micro-batch-size 1 "
                                "--global-batch-size 64 --tensor-model-parallel-size 4 "
                                "--pipeline-model-parallel-size 2 --bf16"}},
                     .main = "run.sh",
                     .model = models::load_preset("llama3-8b")});
  CHECK(imported.plan.model == models::load_preset("llama3-8b"));
  CHECK(imported.plan.parallel.dp == 1);
}

TEST_CASE("launch scripts are recognized by content, plans and others are not",
          "[planner][formats]") {
  CHECK(recognizes_megatron("train.sh", kScript));
  CHECK(recognizes_megatron("job", "python x.py --num-layers 2 --hidden-size 4"));
  CHECK_FALSE(recognizes_megatron("train.sh", "echo --num-layers"));
  CHECK_FALSE(recognizes_megatron("plan.json", "{\"note\": \"--tensor-model-parallel-size\"}"));
  CHECK(recognized_format("train.sh", kScript)->name == "megatron");
}

}  // namespace meshplan::planner
