#include "fuzz/samples.hpp"

#include "core/json_fields.hpp"
#include "program/lower/lower.hpp"
#include "sim/engine/engine.hpp"
#include "sim/fit/published_table.hpp"

namespace meshplan::fuzz {

program::Plan sample_plan(program::ParallelConfig parallel, std::int64_t global_batch) {
  program::Plan plan;
  plan.model = models::load_preset("tiny-llama");
  plan.model.num_layers = 2;
  plan.workload = {.seq_len = 64, .global_batch_size = global_batch};
  plan.parallel = parallel;
  return plan;
}

std::string without_hashes(const std::string& plan_or_trace) {
  Json root = Json::parse(plan_or_trace);
  Json& plan = root.contains("plan") ? root["plan"] : root;
  plan.erase("model_hash");
  plan.erase("cluster_hash");
  return root.dump();
}

sim::Cluster sample_cluster() {
  sim::Cluster cluster;
  cluster.name = "here";
  cluster.devices_per_node = 2;
  cluster.cores_per_host = 2;
  cluster.host_memory_gb_per_s = 20;
  cluster.device = {.name = "core",
                    .kind = sim::DeviceKind::Cpu,
                    .peak_tflop_per_s = {{"fp32", 0.1}},
                    .memory_gib = 16,
                    .memory_gb_per_s = 10,
                    .launch_us = 1};
  cluster.fabric = {{.name = "shared-memory", .latency_us = 1, .link_gb_per_s = 5}};
  cluster.communication.needs_host = true;
  cluster.operators = {{.signature = "linear.forward fp32 t=64 out=64 in=64",
                        .seconds = 1e-4,
                        .seconds_busy = 2e-4,
                        .flops = 524288,
                        .bytes = 49152},
                       {.signature = "adamw fp32 4096", .seconds = 1e-5, .bytes = 114688}};
  for (const std::int64_t bytes : {8, 65536})
    cluster.collectives.push_back({.op = "all_reduce",
                                   .group_size = 2,
                                   .ranks_on_host = 2,
                                   .bytes = bytes,
                                   .seconds = 1e-6 * static_cast<double>(bytes)});
  return cluster;
}

program::Trace sample_trace(bool measured) {
  const program::Plan plan = sample_plan({.dp = 2}, 2);
  program::Trace trace =
      sim::simulate(program::lower_all(plan), sample_cluster(), {.fold = false}).trace;
  trace.plan = plan;
  trace.measured = measured;
  trace.step_times_s = {0.01, 0.011, 0.012};
  constexpr std::size_t kSpans = 24;  // enough for every kind, few enough to be read quickly
  if (trace.spans.size() > kSpans) trace.spans.resize(kSpans);
  return trace;
}

std::string sample_table() {
  return R"(id,family,suite,source,cluster,software,model,layers,hidden,ffn_hidden,heads,kv_heads,head_dim,vocab,activation,experts,topk,moe_ffn_hidden,shared_expert_ffn,arch_notes,seq_len,num_gpus,tp,pp,vpp,cp,ep,etp,dp,zero_stage,sequence_parallel,micro_batch_size,global_batch_size,precision,recompute,attention,overlap,switches,step_time_s,step_time_basis,peak_mem_gib,peak_mem_kind,notes
a,f1,s1,made up,dgx-h100,megatron-core,m,32,4096,11008,32,8,128,32000,swiglu,,,,,,4096,64,2,4,2,1,1,,8,1,yes,1,128,bf16,selective:core_attn,flash,dp+tp+p2p,dropout:0.1;cuda_graphs:full,5.5,from tokens/s,40,torch max allocated,
b,f2,s1,made up,dgx-a100-80g,torchtitan,m,16,2048,8192,16,,,50257,gelu,,,,,"sliding window 512 every 2nd layer; ""x""",2048,8,1,1,1,1,1,,8,3,no,2,32,bf16,full:5,flash,dp,compile;offload_activations:4_layers,1.5,published,,,
c,f3,s2,made up,dgx-h100,megatron-core,m,27,2048,10944,16,16,192,102400,swiglu,64,6,1408,2816,MLA kv_lora512; first layer dense,4096,32,1,1,1,1,8,1,32,1,no,1,256,fp8,,unfused,none,token_drop;mtp,2.5,published,30,nvidia-smi GB,note
)";
}

sim::PreparedTable prepared(const std::string& table) {
  return {sim::parse_published_table(table, "table"), sim::one_by_one};
}

}  // namespace meshplan::fuzz
