// What the free text of a published row says about its architecture.
#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "sim/fit/published_table.hpp"

namespace meshplan::sim {
namespace {

PublishedRow row_with(const std::string& notes, const std::string& head_dim = "128",
                      const std::string& switches = "", const std::string& recompute = "none",
                      const std::string& software = "megatron-core",
                      const std::string& precision = "bf16") {
  const std::string header =
      "id,family,suite,source,cluster,software,model,layers,hidden,ffn_hidden,heads,kv_heads,"
      "head_dim,vocab,activation,experts,topk,moe_ffn_hidden,shared_expert_ffn,arch_notes,seq_len,"
      "num_gpus,tp,pp,vpp,cp,ep,etp,dp,zero_stage,sequence_parallel,micro_batch_size,"
      "global_batch_size,precision,recompute,attention,overlap,switches,step_time_s,"
      "step_time_basis,peak_mem_gib,peak_mem_kind,notes\n";
  return parse_published_table(
             header +
                 fmt::format(",,,,dgx-h100,{},,12,2048,8192,16,16,{},32000,swiglu,8,"
                             "2,1024,,{},4096,8,1,1,1,1,1,,8,1,no,1,8,{},{},flash,dp,{},,,,,\n",
                             software, head_dim, notes, precision, recompute, switches),
             "made.csv")
      .front();
}

}  // namespace

TEST_CASE("Windows are read from the clause that names them", "[sim][validation]") {
  using enum models::Mixer;
  const auto model = [](const std::string& notes) { return row_with(notes).run.model; };
  CHECK(model("sliding window 4096 every 2nd layer").window == 4096);
  CHECK(model("sliding window 4096 every 2nd layer").layer_pattern == std::vector{Sliding, Full});
  CHECK(model("every 2nd layer a 128-token window").window == 128);
  CHECK(model("windows of 1024 alternating").layer_pattern == std::vector{Sliding, Full});
  CHECK(model("window=512 5:1").layer_pattern ==
        std::vector{Sliding, Sliding, Sliding, Sliding, Sliding, Full});
  CHECK(model("window 8192; every 4th layer full").layer_pattern ==
        std::vector{Sliding, Sliding, Sliding, Full});
  CHECK(model("sliding window 4096").layer_pattern == std::vector{Sliding});
  CHECK(model("first 3 layers dense").window == 0);
}

TEST_CASE("Latent heads are DeepSeek's where a row does not say otherwise", "[sim][validation]") {
  const std::string notes = "MLA q_lora1536 kv_lora512; first 3 layers dense";
  for (const char* head_dim : {"192", "128", ""}) {
    const auto model = row_with(notes, head_dim).run.model;
    CAPTURE(head_dim);
    REQUIRE(model.mla);
    CHECK(model.mla->q_lora_rank == 1536);
    CHECK(model.mla->qk_nope_head_size == 128);
    CHECK(model.mla->qk_rope_head_size == 64);
    CHECK(model.mla->v_head_size == 128);
    CHECK(model.moe->dense_layers.size() == 3);
  }
  CHECK(row_with("MLA kv_lora256 nope64 rope32 v_head96").run.model.mla->v_head_size == 96);
}

TEST_CASE("Experts may be in some layers only", "[sim][validation]") {
  const auto dense = [](const std::string& notes) {
    return row_with(notes).run.model.moe->dense_layers;
  };
  CHECK(dense("first layer dense") == std::vector{0});
  CHECK(dense("MoE every 2nd layer") == std::vector{0, 2, 4, 6, 8, 10});
  CHECK(dense("").empty());
}

// DeepSeek-V2, section 2.2.2, and -V3, section 2.1.2; other models say so.
TEST_CASE("Groups of experts are DeepSeek's where attention is latent", "[sim][validation]") {
  CHECK(row_with("groups 4 top 2").run.model.moe->router.num_groups == 4);
  CHECK(row_with("groups 4 top 2").run.model.moe->router.top_groups == 2);
  CHECK(row_with("MLA kv_lora512").run.model.moe->router.num_groups == 1);
}

TEST_CASE("A run that does not say so is compiled if its stack's configurations are",
          "[sim][validation]") {
  using program::CompiledPart;
  const auto compiled = [](const char* software, const char* precision, const char* switches) {
    return row_with("", "128", switches, "none", software, precision).run.settings.compile;
  };
  CHECK(compiled("torchtitan", "bf16", "") == CompiledPart::None);
  CHECK(compiled("torchtitan", "bf16", "compile") == CompiledPart::All);
  CHECK_FALSE(compiled("torchtitan", "fp8", ""));
  CHECK_FALSE(compiled("fms-fsdp-2024", "bf16", ""));
}

TEST_CASE("An unknown switch is named with the nearest known one", "[sim][validation]") {
  CHECK_THAT(row_with("", "128", "cp_rings").error, Catch::Contains("cp_ring"));
  CHECK(row_with("", "128", "cp_ring;mtp").error.empty());
}

TEST_CASE("Modules are recomputed by Megatron's names or ours", "[sim][validation]") {
  using models::Module;
  const auto run = [](const std::string& recompute) {
    return row_with("", "128", "", recompute).run;
  };
  CHECK(run("selective:core_attn").recompute == RunRecompute::CoreAttention);
  CHECK(run("selective").recompute == RunRecompute::CoreAttention);
  for (const char* list :
       {"mla_up_proj+layernorm", "mla_up_proj|norms", "['mla_up_proj' 'layernorm']"}) {
    const TrainingRun listed = run(fmt::format("selective:{}", list));
    CHECK(listed.recompute == RunRecompute::Modules);
    CHECK(listed.recompute_modules == models::ModuleSet{Module::MlaUpProj, Module::Norms});
    CHECK(listed.recompute_stated);
  }
  CHECK_FALSE(run("").recompute_stated);
  CHECK_THAT(row_with("", "128", "", "selective:moe_acts").error, Catch::Contains("moe_act"));
}

TEST_CASE("Sinks, clamps and biases are read from what a row says", "[sim][validation]") {
  const models::ModelSpec oss =
      row_with("attention sinks; clamped SwiGLU; biases; sliding window 128 every 2nd layer")
          .run.model;
  CHECK(oss.attention_sinks);
  CHECK(oss.activation == models::ActivationKind::ClampedSilu);
  CHECK(oss.qkv_bias);
  CHECK(oss.attention_out_bias);
  CHECK(oss.moe->expert_bias);
  CHECK(oss.window == 128);
  const models::ModelSpec qwen = row_with("QKV bias").run.model;
  CHECK(qwen.qkv_bias);
  CHECK_FALSE(qwen.attention_out_bias);
  CHECK_FALSE(qwen.moe->expert_bias);
  const models::ModelSpec plain = row_with("no biases").run.model;
  CHECK_FALSE(plain.qkv_bias);
  CHECK_FALSE(plain.attention_sinks);
  CHECK(plain.activation == models::ActivationKind::Silu);
}

}  // namespace meshplan::sim
