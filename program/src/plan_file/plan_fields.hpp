// Declarations of the plan's JSON form, shared by the plan and the trace (which embeds one).
#pragma once

#include "core/json_fields.hpp"
#include "core/limits.hpp"
#include "program/plan/plan.hpp"
#include "program/plan/plan_names.hpp"
#include "program/plan_file/stack_fields.hpp"

namespace meshplan::program {

template <class Visitor>
void fields(Visitor& v, OptimizerConfig& c) {
  v.optional("kind", c.kind, "optimizer");
  v.optional("learning_rate", c.learning_rate, "peak learning rate",
             between(limits::kLeastRate, limits::kRate));
  v.optional("beta1", c.beta1, "decay of the first moment", between(0, limits::kBelowOne));
  v.optional("beta2", c.beta2, "decay of the second moment", between(0, limits::kBelowOne));
  v.optional("epsilon", c.epsilon, "added to the root of the second moment",
             between(limits::kLeastRate, 1));
  v.optional("weight_decay", c.weight_decay, "of matrices; norms and biases are never decayed",
             between(0, limits::kRate));
  v.optional("momentum", c.momentum, "of SGD and Muon", between(0, limits::kBelowOne));
  v.optional("orthogonal_steps", c.orthogonal_steps,
             "of Newton and Schulz's iteration in an update of Muon", between(1, 100));
  v.optional("clip_norm", c.clip_norm, "largest global gradient norm; 0 = no clipping",
             between(0, limits::kRate));
  v.optional("schedule", c.schedule, "learning rate over the steps");
  v.optional("warmup_steps", c.warmup_steps, "steps of linear warm-up", at_least(0));
  v.optional("decay_steps", c.decay_steps, "step at which cosine decay ends; 0 = the run's length",
             at_least(0));
  v.optional("minimum_ratio", c.minimum_ratio, "final / peak learning rate", between(0, 1));
}

template <class Visitor>
void fields(Visitor& v, Documents& d) {
  v.optional("packed", d.packed, "sequences hold whole documents, without attention across");
  v.optional("end_of_document", d.end_of_document,
             "token that ends each in the stream; null = none", at_least(0));
  v.optional("pad_multiple", d.pad_multiple, "each is filled up to a multiple of so many tokens",
             between(1, limits::kTokens));
  v.optional("expected_lengths", d.expected_lengths,
             "a sample of their lengths, to predict with; empty = uniform in 1 .. seq_len",
             between(1, limits::kTokens));
}

template <class Visitor>
void fields(Visitor& v, Workload& w) {
  v.required("seq_len", w.seq_len, "tokens of a sequence", between(1, limits::kTokens));
  v.required("global_batch_size", w.global_batch_size, "sequences of a step",
             between(1, limits::kTokens));
  Precision precision = precision_of(w);
  v.optional("precision", precision,
             "of weights and activations in compute; fp8 = bf16 with the products of the layers' "
             "linears in FP8");
  set_precision(w, precision);
  v.optional("optimizer", w.optimizer, "optimizer and its settings");
  v.optional("documents", w.documents, "packed into the sequences");
}

template <class Visitor>
void fields(Visitor& v, ParallelConfig& p) {
  v.optional("tp", p.tp, "tensor parallel size", between(1, limits::kRanks));
  v.optional("cp", p.cp, "context parallel size", between(1, limits::kRanks));
  v.optional("pp", p.pp, "pipeline stages", between(1, limits::kRanks));
  v.optional("vpp", p.vpp, "virtual stages per rank", between(1, limits::kRanks));
  v.optional("dp", p.dp, "data parallel size", between(1, limits::kRanks));
  v.optional("ep", p.ep, "expert parallel size", between(1, limits::kRanks));
  v.optional("etp", p.etp, "expert tensor parallel size", between(1, limits::kRanks));
  v.optional("sp", p.sp, "shard the tokens between tensor-parallel regions");
}

template <class Visitor>
void fields(Visitor& v, Recompute& r) {
  v.optional("kind", r.kind, "what is computed again in the backward pass");
  v.optional("num_layers", r.num_layers, "only the first layers of each virtual stage; null = all",
             at_least(0));
  v.optional("layers_per_stage", r.layers_per_stage,
             "the same for each virtual stage by itself; empty = num_layers everywhere",
             at_least(0));
  std::vector<models::Module> modules = r.modules.list();
  v.optional("modules", modules,
             "selective: what is computed again; empty = norms and activations");
  r.modules = models::ModuleSet(modules);
}

template <class Visitor>
void fields(Visitor& v, GradientCompression& c) {
  v.optional("kind", c.kind, "how gradients travel to their sum over data-parallel ranks");
  v.optional("ratio", c.ratio, "top-k: the part of the elements that travels", between(0, 1));
}

template <class Visitor>
void fields(Visitor& v, Prediction& p) {
  v.required("step_time_s", p.step_time_s, "seconds of one optimizer step",
             between(0, limits::kMagnitude));
  v.required("peak_memory_bytes", p.peak_memory_bytes, "of the largest rank", at_least(0));
  v.optional("mfu", p.mfu, "model FLOP utilization");
  v.optional("reasons", p.reasons, "why this plan was chosen");
}

/// The file's form of a Plan: model and cluster are whole objects of their own.
struct PlanFile {
  int schema_version = 1;
  RawJson model;
  std::string model_hash;
  std::string cluster_name;
  std::string cluster_hash;
  RawJson cluster;
  Plan plan;  // the rest
};

template <class Visitor>
void fields(Visitor& v, PlanFile& f) {
  v.required("schema_version", f.schema_version, "version of this format", between(1, 1));
  v.required("model", f.model, "the resolved model (see the model schema)");
  v.optional("model_hash", f.model_hash, "of the resolved model");
  v.optional("cluster_name", f.cluster_name, "cluster the plan was made for", of_name());
  v.optional("cluster_hash", f.cluster_hash, "of the resolved cluster");
  v.optional("cluster", f.cluster, "the resolved cluster (see the cluster schema)");
  v.required("workload", f.plan.workload, "what a step trains");
  v.optional("stack", f.plan.stack, "what runs it, and how it is asked to");
  v.required("parallel", f.plan.parallel, "degrees of the parallel axes");
  v.optional("context_parallel", f.plan.context_parallel,
             "how attention reaches the keys of other cp ranks");
  v.optional(
      "max_tokens_per_rank", f.plan.max_tokens_per_rank,
      "packed documents: none is divided over more cp ranks than leave each so many tokens of "
      "it; 0 = over all",
      between(0, limits::kTokens));
  v.optional("rank_order", f.plan.rank_order, "axes from innermost to outermost");
  v.optional("schedule", f.plan.schedule, "pipeline schedule");
  v.optional("custom_schedule", f.plan.custom_schedule,
             "schedule custom: the tasks of each stage, such as \"0F0,0F1,0B0,0B1\"",
             at_most(static_cast<double>(limits::kScheduleBytes)));
  v.optional("micro_batch_size", f.plan.micro_batch_size, "sequences of a micro-batch",
             between(1, limits::kTokens));
  v.optional(
      "uneven_batch", f.plan.uneven_batch,
      "replicas may take unequal numbers of sequences of the global batch: empty ones, which "
      "no loss counts, fill the last micro-batches");
  v.optional("recompute", f.plan.recompute, "activation recomputation");
  v.optional("layers_per_stage", f.plan.layers_per_stage,
             "layers of each of the pp * vpp virtual stages; empty = as even as possible",
             at_least(0));
  v.optional("count_ends_as_layers", f.plan.count_ends_as_layers,
             "embedding and head count as one layer each where layers are divided evenly");
  v.optional("expert_imbalance", f.plan.expert_imbalance,
             "rows that buffers hold for a rank's experts, as a multiple of a balanced router's; a "
             "run makes room for more",
             between(1, limits::kRanks));
  v.optional("expected_expert_imbalance", f.plan.expected_expert_imbalance,
             "rows of the busiest ep rank's experts over the mean, to predict with; 1 = balanced",
             between(1, limits::kRanks));
  v.optional("expert_node_ranks", f.plan.expert_node_ranks,
             "tokens travel once to each node of so many neighbouring ep ranks, and are forwarded "
             "inside; 0 = every rank sends to every other",
             between(0, limits::kRanks));
  v.optional("expert_dispatch_fp8", f.plan.expert_dispatch_fp8,
             "tokens travel to their experts in FP8, with a scale for each 128 numbers");
  v.optional("bucket_bytes", f.plan.bucket_bytes, "of a data-parallel gradient bucket",
             between(1, limits::kBytes));
  v.optional(
      "zero_stage", f.plan.zero_stage,
      "ZeRO: what data-parallel ranks divide among them: 0 nothing, 1 optimizer state, 2 also "
      "gradients, 3 also weights",
      between(0, 3));
  v.optional("zero_shard_group", f.plan.zero_shard_group,
             "hybrid ZeRO: so many data-parallel ranks share one copy; 0 = all of them",
             between(0, limits::kRanks));
  v.optional("compression", f.plan.compression,
             "of gradients on their way between data-parallel ranks");
  v.optional("frozen", f.plan.frozen,
             "names of parameters that are not trained; * = anything, 3-7 = a range of numbers, "
             "!name = trained after all");
  v.optional("offload_optimizer", f.plan.offload_optimizer,
             "fp32 master weights and optimizer state lie in host memory");
  v.optional("offload_parameters", f.plan.offload_parameters,
             "with it and zero_stage 3: so do the weights that a rank owns");
  v.optional("offload_activations", f.plan.offload_activations,
             "layers of each virtual stage, its first ones, whose activations lie in host memory "
             "between forward and backward",
             at_least(0));
  v.optional("progress_thread", f.plan.progress_thread,
             "a thread of each rank moves communications while it computes; where the host does");
  v.optional("attention", f.plan.attention,
             "whose attention kernels a GPU runs; auto = cuDNN's where it has one, else our own");
  v.optional(
      "attention_workspace_bytes", f.plan.attention_workspace_bytes,
      "the most that cuDNN's attention may need beside its operands; what needs more runs in "
      "parts, and with auto on our own kernel if one head of a sequence does",
      between(0, limits::kBytes));
  v.optional("deterministic", f.plan.deterministic,
             "a run repeats bit for bit; false: on a GPU cuDNN's attention may add gradients up in "
             "any order, which needs less memory and time");
  v.optional("prediction", f.plan.prediction, "made when the plan was chosen");
}

PlanFile to_file(const Plan& plan);
/// @throws ConfigError
Plan from_file(PlanFile parsed, const std::string& file);

}  // namespace meshplan::program
