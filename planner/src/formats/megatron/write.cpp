// A launch script out of a plan.
#include "formats/megatron/write.hpp"

#include <algorithm>
#include <fmt/format.h>

#include "core/error.hpp"
#include "core/quoting.hpp"
#include "formats/megatron/inexpressible.hpp"
#include "formats/megatron/megatron.hpp"
#include "formats/megatron/rule_facts.hpp"
#include "formats/nodes.hpp"
#include "formats/readme.hpp"

namespace meshplan::planner {
namespace megatron {
namespace {

struct ArrayInfo {
  Group group;
  std::string_view name;
  std::string_view comment;
};

constexpr ArrayInfo kArrays[] = {
    {Group::Model, "MODEL_ARGS", "The model, as the plan describes it."},
    {Group::Experts, "EXPERT_ARGS", "Mixture of experts: how wide, and how tokens are routed."},
    {Group::Parallel, "PARALLEL_ARGS",
     "Parallel axes. Ranks lie {} from the innermost to the outermost."},
    {Group::Memory, "MEMORY_ARGS", "What is computed again in backward, or kept elsewhere."},
    {Group::Precision, "PRECISION_ARGS", "Numbers of products, weights and gradients."},
    {Group::Training, "TRAINING_ARGS", "Batch and optimizer."},
    {Group::Overlap, "OVERLAP_ARGS", "Communication beside computation, as predicted."}};

const ArrayInfo& info_of(Group group) {
  for (const ArrayInfo& info : kArrays)
    if (info.group == group) return info;
  throw InvariantError("unknown group of flags");
}

}  // namespace

const std::vector<Group>& groups() {
  static const std::vector<Group> all = [] {
    std::vector<Group> listed;
    for (const ArrayInfo& info : kArrays) listed.push_back(info.group);
    return listed;
  }();
  return all;
}

std::string_view array_name(Group group) {
  return info_of(group).name;
}

std::string array_text(Group group, const program::Plan& plan) {
  const ArrayInfo& info = info_of(group);
  std::string lines;
  for (const Flag& flag : flags()) {
    if (flag.group != group) continue;
    const std::optional<Values> values = flag.write(plan);
    if (!values) continue;
    std::string line = fmt::format("  {}", flag.name);
    for (const std::string& value : *values) line += " " + shell_quoted(value);
    if (!flag.why.empty()) line += fmt::format("  # {}", comment_text(flag.why));
    lines += line + "\n";
  }
  if (lines.empty()) return fmt::format("{}=()\n", info.name);
  const std::string comment = fmt::format(fmt::runtime(info.comment), plan.rank_order);
  return fmt::format("# {}\n{}=(\n{})\n", comment_text(comment), info.name, lines);
}

}  // namespace megatron

namespace {

constexpr const char* kCommit = "d98e8a64";

std::string head_text(const ExportRequest& request) {
  const Nodes nodes = nodes_of(request);
  return fmt::format(
      R"(#!/bin/bash
# {title}
# Written by meshplan export for Megatron-LM {commit}; README.md says why this plan. On every node:
#   NODE_RANK=0 MASTER_ADDR=first-node DATA_PATH=... TOKENIZER_MODEL=... ./run.sh [more flags]
set -euo pipefail

{environment}MEGATRON_PATH=${{MEGATRON_PATH:-.}}  # where pretrain_gpt.py lies
GPUS_PER_NODE={each}
NNODES={nodes}
NODE_RANK=${{NODE_RANK:-0}}
MASTER_ADDR=${{MASTER_ADDR:-localhost}}
MASTER_PORT=${{MASTER_PORT:-29500}}
TRAIN_ITERS=${{TRAIN_ITERS:-{steps}}}  # a plan does not say how long to train

DISTRIBUTED_ARGS=(
  --nproc_per_node "$GPUS_PER_NODE"
  --nnodes "$NNODES"
  --node_rank "$NODE_RANK"
  --master_addr "$MASTER_ADDR"
  --master_port "$MASTER_PORT"
)

)",
      fmt::arg("title", comment_text(title_of(request))), fmt::arg("commit", kCommit),
      fmt::arg("environment", megatron_environment(request)), fmt::arg("each", nodes.ranks_each),
      fmt::arg("nodes", nodes.count),
      fmt::arg("steps", std::max(1000, request.plan.workload.optimizer.decay_steps)));
}

constexpr const char* kDataText = R"(
# Data: MOCK_DATA=1 trains on tokens that Megatron-LM makes up, as validate.sh does.
if [ "${MOCK_DATA:-0}" = 1 ]; then
  DATA_ARGS=(--mock-data --tokenizer-type NullTokenizer)
else
  DATA_ARGS=(
    --data-path ${DATA_PATH:?the prefix of your .bin and .idx files, or MOCK_DATA=1}
    --tokenizer-type "${TOKENIZER_TYPE:-HuggingFaceTokenizer}"
    --tokenizer-model "${TOKENIZER_MODEL:?its folder or file, or MOCK_DATA=1}"
    --split "${SPLIT:-99,1,0}"
  )
fi

OUTPUT_ARGS=(
  --log-interval 1
  --log-throughput  # TFLOP/s of each GPU beside every step
  --eval-iters 0
)

)";

std::string start_text() {
  std::string args = "ALL_ARGS=(\n";
  for (const megatron::Group group : megatron::groups())
    args += fmt::format("  \"${{{}[@]}}\"\n", megatron::array_name(group));
  args +=
      "  \"${DATA_ARGS[@]}\"\n  \"${OUTPUT_ARGS[@]}\"\n  --train-iters \"$TRAIN_ITERS\"\n  "
      "\"$@\"\n)\n\n";
  return args + R"(if [ -n "${FAKE_RANK:-}" ]; then
  # One GPU stands for this rank of the whole job; nothing is communicated.
  RANK=$FAKE_RANK LOCAL_RANK=0 WORLD_SIZE=$((GPUS_PER_NODE * NNODES)) \
    exec python "$MEGATRON_PATH/pretrain_gpt.py" "${ALL_ARGS[@]}" --fake-process-group
fi
exec torchrun "${DISTRIBUTED_ARGS[@]}" "$MEGATRON_PATH/pretrain_gpt.py" "${ALL_ARGS[@]}"
)";
}

constexpr const char* kValidate = R"(#!/bin/bash
# A few steps on made-up data: do the flags agree with each other, does it fit, how fast is it?
#   ./validate.sh                        as run.sh, on all GPUs of the job
#   ./validate.sh --fake-process-group [RANK]   on one GPU, which stands for that rank (0)
set -euo pipefail
export MOCK_DATA=1 TRAIN_ITERS=${TRAIN_ITERS:-10}
if [ "${1:-}" = --fake-process-group ]; then
  export FAKE_RANK=${2:-0}
  shift
  if [ $# -gt 0 ]; then shift; fi
fi
exec "$(dirname "$0")/run.sh" "$@"
)";

std::string starting_text(const ExportRequest& request) {
  const int ranks = request.plan.parallel.world_size();
  return fmt::format(R"(## Starting it

`run.sh` starts Megatron-LM's `pretrain_gpt.py` with `torchrun`, once on each node. It takes `MEGATRON_PATH`, `NODE_RANK`, `MASTER_ADDR`, `DATA_PATH`,
`TOKENIZER_MODEL` and `TRAIN_ITERS` from its surroundings, and passes on flags of its own, such as `--save DIR --save-interval 500`.

1. `./validate.sh --fake-process-group` on one GPU: all flags, the memory of rank 0 of {ranks} (`--fake-process-group R`: of rank R), no communication.
2. `MOCK_DATA=1 TRAIN_ITERS=10 ./run.sh` or `./validate.sh` on all nodes: step time to compare with the prediction.
3. `./run.sh` with your data.

The flags are those of Megatron-LM {commit}. `meshplan simulate run.sh --cluster CLUSTER` reads the script back and prices it.
)",
                     fmt::arg("ranks", ranks), fmt::arg("commit", kCommit));
}

}  // namespace

/// The connections of a device: one makes kernels start in the order in which they were issued, so
/// that communication begins before the products beside it (arguments.py, validate_args).
std::string megatron_environment(const ExportRequest& request) {
  const program::ParallelConfig& p = request.plan.parallel;
  const bool blackwell = request.device.find("B200") != std::string::npos ||
                         request.device.find("B300") != std::string::npos;
  if ((p.tp == 1 && p.cp == 1) || blackwell) return "";
  return "# Kernels start in the order in which they were issued: Megatron-LM requires it beside "
         "tp "
         "and cp\n# before Blackwell.\n"
         "export CUDA_DEVICE_MAX_CONNECTIONS=1\n\n";
}

void require_expressible_by_megatron(const program::Plan& plan) {
  const auto refuse = [](std::string message, const std::vector<std::string>& reasons) {
    if (reasons.empty()) return;
    for (const std::string& reason : reasons) message += "\n  " + reason;
    throw ConfigError(message);
  };
  refuse("Megatron-LM has no words for this plan:", megatron::inexpressible(plan));
  refuse("Megatron-LM refuses this plan (`meshplan check --for megatron-lm` says more):",
         megatron::refusals(plan));
}

std::vector<ExportedFile> write_megatron(const ExportRequest& request) {
  require_expressible_by_megatron(request.plan);
  std::string script = head_text(request);
  for (const megatron::Group group : megatron::groups())
    script += (group == megatron::groups().front() ? "" : "\n") +
              megatron::array_text(group, request.plan);
  script += kDataText + start_text();
  return {{.name = "run.sh", .text = std::move(script), .executable = true},
          {.name = "validate.sh", .text = kValidate, .executable = true},
          {.name = "README.md", .text = starting_text(request)}};
}

}  // namespace meshplan::planner
