// Flags of Megatron-LM that are settings of a plan's stack, read and written.
#include <catch2/catch.hpp>

#include "formats/megatron/megatron.hpp"
#include "program/plan/stack.hpp"

namespace meshplan::planner {
namespace {

using program::AttentionBackend;
using program::CudaGraphs;
using program::ExpertDispatch;
using program::Fp8Scaling;
using program::LossKernel;
using program::StackSettings;
using program::StateDType;

ImportedPlan read_script(const std::string& text) {
  return read_megatron({.files = {{"run.sh", text}}, .main = "run.sh"});
}

StackSettings settings_of(const std::string& flags, const std::string& type = "--bf16") {
  return read_script(
             "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 4 --hidden-size 512 "
             "--num-attention-heads 8 --seq-length 512 --max-position-embeddings 512 --num-experts "
             "8 "
             "--expert-model-parallel-size 8 --use-distributed-optimizer --micro-batch-size 1 "
             "--global-batch-size 16 --vocab-size 32000 --lr 1e-4 " +
             type + " " + flags)
      .plan.stack.settings;
}

}  // namespace

TEST_CASE("A launch script's flags are settings of its stack", "[planner][formats][stack]") {
  const StackSettings none = settings_of("");
  CHECK(none.overlap_dp == false);
  CHECK(none.overlap_p2p == true);
  CHECK(none.overlap_ep == false);
  CHECK(none.grouped_experts == false);
  CHECK(none.cuda_graphs == CudaGraphs::None);
  CHECK(none.gradient_dtype == StateDType::F32);  // Megatron-LM's, unless --grad-reduce-in-bf16
  CHECK(none.dropout == 0.1);                     // its default
  CHECK(none.expert_dispatch == ExpertDispatch::AllGather);  // its default, too
  CHECK(none.recipes == false);
  CHECK_FALSE(none.attention);
  CHECK_FALSE(none.first_moment_dtype);

  const auto flex = [](const std::string& more) {
    return settings_of("--moe-token-dispatcher-type flex " + more);
  };
  CHECK(flex("").expert_dispatch == ExpertDispatch::DeepEp);
  CHECK(flex("--moe-flex-dispatcher-backend hybridep --moe-hybridep-num-sms 16").expert_dispatch ==
        ExpertDispatch::HybridEp);
  CHECK(flex("--moe-flex-dispatcher-backend hybridep --moe-hybridep-num-sms 16")
            .expert_dispatch_sms == 16);
  CHECK(settings_of("--moe-token-dispatcher-type alltoall").expert_dispatch ==
        ExpertDispatch::AllToAll);
  CHECK(settings_of("--attention-backend unfused").attention == AttentionBackend::Unfused);
  CHECK(settings_of("--transformer-impl local").attention == AttentionBackend::Unfused);
  CHECK_FALSE(settings_of("--transformer-impl local --use-flash-attn").attention);
  CHECK(settings_of("--enable-cuda-graph").cuda_graphs == CudaGraphs::Full);
  CHECK(settings_of("--cuda-graph-impl transformer_engine --cuda-graph-modules moe_router")
            .cuda_graphs == CudaGraphs::Partial);
  CHECK(settings_of("--cross-entropy-loss-fusion").loss == LossKernel::Fused);
  CHECK(settings_of("--hidden-dropout 0").dropout == 0);
  CHECK(settings_of("--grad-reduce-in-bf16").gradient_dtype == StateDType::BF16);
  CHECK(settings_of("--fp8-format e4m3 --fp8-recipe mxfp8").fp8_scaling == Fp8Scaling::MxFp8);
  CHECK(settings_of("--fp8-format hybrid").fp8_scaling == Fp8Scaling::Delayed);
}

TEST_CASE("Four bits, and layers that stay in sixteen", "[planner][formats][stack]") {
  const StackSettings four = settings_of(
      "--fp4-format e2m1 --fp4-recipe nvfp4 --first-last-layers-bf16 "
      "--num-layers-at-end-in-bf16 4");
  CHECK(four.fp8_scaling == Fp8Scaling::NvFp4);
  CHECK(four.bf16_layers_at_start == 1);
  CHECK(four.bf16_layers_at_end == 4);
  const StackSettings all =
      settings_of("--fp8-format e4m3 --fp8-recipe tensorwise --num-layers-at-end-in-bf16 4");
  CHECK_FALSE(all.bf16_layers_at_end);  // without the switch a count says nothing
}

TEST_CASE("Dtypes of moments count with the precision-aware optimizer alone",
          "[planner][formats][stack]") {
  const std::string dtypes = "--main-grads-dtype bf16 --exp-avg-dtype bf16 --exp-avg-sq-dtype fp8 ";
  const StackSettings aware = settings_of(dtypes + "--use-precision-aware-optimizer");
  CHECK(aware.gradient_dtype == StateDType::BF16);
  CHECK(aware.first_moment_dtype == StateDType::BF16);
  CHECK(aware.second_moment_dtype == StateDType::Fp8);
  const StackSettings other = settings_of(dtypes);
  CHECK(other.gradient_dtype == StateDType::F32);
  CHECK_FALSE(other.first_moment_dtype);
}

TEST_CASE("Settings of a plan come back from the script that it is exported to",
          "[planner][formats][stack]") {
  program::Plan plan =
      read_script(
          "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 4 --hidden-size 512 "
          "--num-attention-heads 8 --seq-length 512 --max-position-embeddings 512 "
          "--num-experts 8 --expert-model-parallel-size 8 --use-distributed-optimizer "
          "--micro-batch-size 1 --global-batch-size 16 --vocab-size 32000 --lr 1e-4 "
          "--bf16 --moe-grouped-gemm --hidden-dropout 0 --attention-dropout 0")
          .plan;
  const auto round = [&](const auto& change) {
    program::Plan changed = plan;
    change(changed.stack.settings);
    std::string script;
    for (const ExportedFile& file : format_of("megatron").write({.plan = changed}))
      if (file.name == "run.sh") script = file.text;
    INFO(script);
    const StackSettings back = read_script(script).plan.stack.settings;
    CHECK(back == changed.stack.settings);
  };
  round([](StackSettings&) {});
  round([](StackSettings& s) {
    s.overlap_dp = s.overlap_ep = true;
    s.expert_dispatch = ExpertDispatch::AllToAll;  // which overlapping needs
  });
  round([](StackSettings& s) { s.expert_dispatch = ExpertDispatch::AllToAll; });
  round([](StackSettings& s) { s.expert_dispatch = ExpertDispatch::DeepEp; });
  round([](StackSettings& s) { s.expert_dispatch = ExpertDispatch::HybridEp; });
  round([](StackSettings& s) { s.cuda_graphs = CudaGraphs::Partial; });
  round([](StackSettings& s) { s.cuda_graphs = CudaGraphs::Full; });
  round([](StackSettings& s) { s.attention = AttentionBackend::Unfused; });
  round([](StackSettings& s) { s.loss = LossKernel::Fused; });
  round([](StackSettings& s) { s.dropout = 0.1; });
  round([](StackSettings& s) { s.gradient_dtype = StateDType::BF16; });
  round([](StackSettings& s) { s.balanced_routing = true; });
  round([](StackSettings& s) {
    s.first_moment_dtype = StateDType::BF16;
    s.second_moment_dtype = StateDType::Fp8;
  });
}

}  // namespace meshplan::planner
