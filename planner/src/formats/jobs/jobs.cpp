#include "formats/jobs/jobs.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/error.hpp"
#include "core/quoting.hpp"
#include "formats/nodes.hpp"
#include "formats/readme.hpp"

namespace meshplan::planner {
namespace {

/// Letters, digits and '-' as job names and DNS labels take them.
std::string job_name(const program::Plan& plan) {
  std::string name;
  for (const char c : plan.model.name.substr(0, 40)) {
    const bool kept = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    const bool upper = c >= 'A' && c <= 'Z';
    name += kept ? c : upper ? static_cast<char>(c - 'A' + 'a') : '-';
  }
  while (!name.empty() && (name.back() == '-')) name.pop_back();
  while (!name.empty() && (name.front() == '-')) name.erase(0, 1);
  return "train-" + (name.empty() ? "plan" : name);
}

struct Launched {
  std::vector<ExportedFile> files;  // without their README.md
  std::string starting;             // which that one says
};

/// What the launch script's own format writes.
/// @throws ConfigError for a format that starts nothing
Launched launched_files(const ExportRequest& request) {
  const Format& launch = format_of(request.launch.empty() ? "megatron" : request.launch);
  if (launch.write == nullptr || launch.software.empty())
    throw ConfigError(fmt::format(
        "--launch {}: is no training stack's launch script; nearest: megatron", launch.name));
  Launched launched{.files = launch.write(request)};
  const bool has_script = std::ranges::any_of(
      launched.files, [](const ExportedFile& file) { return file.name == "run.sh"; });
  if (!has_script)
    throw ConfigError(fmt::format(
        "--launch {}: writes no run.sh that a job could start; nearest: megatron", launch.name));
  for (const ExportedFile& file : launched.files)
    if (file.name == "README.md") launched.starting = file.text;
  std::erase_if(launched.files, [](const ExportedFile& file) { return file.name == "README.md"; });
  return launched;
}

std::string sbatch_text(const ExportRequest& request) {
  const Nodes nodes = nodes_of(request);
  return fmt::format(R"(#!/bin/bash
# {title}
# Written by meshplan export; run.sh beside it is what every node starts:
#   DATA_PATH=... TOKENIZER_MODEL=... sbatch --partition=... --account=... job.sbatch
#SBATCH --job-name={name}
#SBATCH --nodes={nodes}
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node={each}
#SBATCH --exclusive
#SBATCH --time=04:00:00
#SBATCH --output=%x-%j.log
set -euo pipefail

FOLDER=${{SLURM_SUBMIT_DIR:-$(dirname "$0")}}
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000))  # two jobs of a node do not meet
export MASTER_ADDR MASTER_PORT

# One task a node, in the order of the nodes: torchrun starts the ranks of each. More options of
# srun, such as --container-image of enroot, belong into SRUN_ARGS.
srun ${{SRUN_ARGS:-}} bash -c 'NODE_RANK=$SLURM_NODEID exec "$0/run.sh"' "$FOLDER"
)",
                     fmt::arg("title", comment_text(title_of(request))),
                     fmt::arg("name", job_name(request.plan)), fmt::arg("nodes", nodes.count),
                     fmt::arg("each", nodes.ranks_each));
}

constexpr const char* kSlurmStarting = R"(## Submitting it

`DATA_PATH=... TOKENIZER_MODEL=... sbatch job.sbatch`, from this folder, with your `--partition`, `--account` and `--time`. `MOCK_DATA=1 TRAIN_ITERS=10
sbatch job.sbatch` is a short run on made-up data. Options that `srun` needs, such as a container's, go into `SRUN_ARGS`.

)";

std::string kubernetes_text(const ExportRequest& request, const std::string& sources) {
  const Nodes nodes = nodes_of(request);
  return fmt::format(R"(# {title}
# Written by meshplan export. First the scripts, then the job:
#   kubectl create configmap {name}-scripts {from_files}
#   kubectl apply -f job.yaml
apiVersion: v1
kind: Service
metadata:
  name: {name}
spec:
  clusterIP: None  # gives each pod a name: the first one's is where ranks meet
  publishNotReadyAddresses: true
  selector:
    job-name: {name}
---
apiVersion: batch/v1
kind: Job
metadata:
  name: {name}
spec:
  completionMode: Indexed  # pod i is node i
  completions: {nodes}
  parallelism: {nodes}
  backoffLimit: 0
  template:
    spec:
      subdomain: {name}
      restartPolicy: Never
      affinity:
        podAntiAffinity:  # a pod a node
          requiredDuringSchedulingIgnoredDuringExecution:
            - labelSelector:
                matchLabels: {{job-name: {name}}}
              topologyKey: kubernetes.io/hostname
      containers:
        - name: train
          image: IMAGE  # one that holds the stack
          command: ["bash", "/scripts/run.sh"]
          env:
            - name: NODE_RANK
              valueFrom:
                fieldRef:
                  fieldPath: metadata.annotations['batch.kubernetes.io/job-completion-index']
            - {{name: MASTER_ADDR, value: {name}-0.{name}}}
            - {{name: MASTER_PORT, value: "29500"}}
            - {{name: MOCK_DATA, value: "1"}}  # made-up data; else DATA_PATH and TOKENIZER_MODEL
            - {{name: TRAIN_ITERS, value: "10"}}
            - {{name: MEGATRON_PATH, value: /opt/Megatron-LM}}  # for Megatron-LM: in the image
          resources:
            limits:
              nvidia.com/gpu: {each}
          volumeMounts:
            - {{name: scripts, mountPath: /scripts}}
            - {{name: shm, mountPath: /dev/shm}}
      volumes:
        - name: scripts
          configMap:
            name: {name}-scripts
            defaultMode: 0755
        - name: shm  # NCCL and data loaders exchange through it
          emptyDir: {{medium: Memory}}
)",
                     fmt::arg("title", comment_text(title_of(request))),
                     fmt::arg("name", job_name(request.plan)), fmt::arg("from_files", sources),
                     fmt::arg("nodes", nodes.count), fmt::arg("each", nodes.ranks_each));
}

constexpr const char* kKubernetesStarting = R"(## Submitting it

The first lines of `job.yaml` say the two commands. It is an indexed Job with a headless service, and needs no operator; the image (`IMAGE`), networks of your
cluster (`rdma/...` resources, host networking) and volumes with your data are yours to add. As it stands it trains ten steps on made-up data.

)";

std::vector<ExportedFile> around(Launched launched, ExportedFile job, std::string_view starting) {
  launched.files.insert(launched.files.begin(), std::move(job));
  launched.files.push_back(
      {.name = "README.md", .text = std::string(starting) + launched.starting});
  return std::move(launched.files);
}

}  // namespace

std::vector<ExportedFile> write_slurm(const ExportRequest& request) {
  return around(launched_files(request), {.name = "job.sbatch", .text = sbatch_text(request)},
                kSlurmStarting);
}

std::vector<ExportedFile> write_kubernetes(const ExportRequest& request) {
  Launched launched = launched_files(request);
  std::vector<std::string> sources;
  for (const ExportedFile& file : launched.files)
    sources.push_back("--from-file=" + shell_quoted(file.name));
  std::string text = kubernetes_text(request, fmt::format("{}", fmt::join(sources, " ")));
  return around(std::move(launched), {.name = "job.yaml", .text = std::move(text)},
                kKubernetesStarting);
}

}  // namespace meshplan::planner
