// Releases of training stacks: their order, what is said of those that nobody knows, and what one
// changes of a run, beside the same run that states it.
#include "sim/stacks/release.hpp"

#include <catch2/catch.hpp>
#include <string>

#include "core/error.hpp"
#include "models/model_spec.hpp"
#include "sim/estimator/estimator.hpp"
#include "sim/run_cases.hpp"
#include "sim/stacks/cluster_preset.hpp"
#include "sim/stacks/software.hpp"
#include "stacks/layer/layer_work.hpp"

namespace meshplan::sim {
namespace {

Release release(const char* text) {
  const auto parsed = Release::parse(text);
  REQUIRE(parsed);
  return *parsed;
}

std::string profile_error(const std::string& software) {
  try {
    load_execution_profile(software);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// 128 experts of 768 over 8 devices in two nodes of one NVLink rack, in MXFP8.
TrainingRun experts(const char* software) {
  TrainingRun run;
  run.model = models::load_preset("qwen3-30b-a3b");
  run.seq_len = 4096;
  run.parallel.dp = run.parallel.ep = 8;
  run.micro_batch_size = 4;
  run.global_batch_size = 64;
  run.precision = RunPrecision::MxFp8;
  run.zero_stage = 1;
  run.recompute_stated = true;
  run.cluster = "gb200-nvl72";
  run.profile = software;
  return run;
}

TrainingRun large_heads(const char* software, int head) {
  TrainingRun run = small_gpt();
  run.model.head_size = head;
  run.precision = RunPrecision::Bf16;
  run.cluster = "dgx-b200";
  run.profile = software;
  return run;
}

/// Work of the first layer's forward pass, with what a recipe sets.
std::vector<WorkItem> forward_work(bool fused) {
  TrainingRun run = experts("megatron-core");
  run.settings.fused_experts = fused;
  const models::ModelGraph graph = models::build_graph(run.model);
  return layer_work(graph.kinds.front(), run, load_execution_profile(run.profile), false).forward;
}

double launches(const std::vector<WorkItem>& items) {
  double sum = 0;
  for (const WorkItem& item : items) sum += item.kernels;
  return sum;
}

double streamed(const std::vector<WorkItem>& items) {
  double sum = 0;
  for (const WorkItem& item : items)
    if (item.kind == WorkKind::Stream) sum += item.bytes;
  return sum;
}

}  // namespace

TEST_CASE("Releases are ordered number by number", "[sim][software]") {
  CHECK(release("25.09") < release("25.11"));
  CHECK(release("25.9") < release("25.11"));  // 9 < 11, not "9" > "1"
  CHECK(release("25.09") < release("25.09.01"));
  CHECK(release("25.09") == release("25.9.0"));
  CHECK(release("25.11") < release("26.02"));
  CHECK(release("2025-06") == release("2025.6"));
  CHECK(release("v0.2.1") > release("v0.2"));
  for (const char* text :
       {"", "new", "25.", ".25", "25..9", "25.09rc1", "25.-9", "25,09", " 25", "99999999999"}) {
    CAPTURE(text);
    CHECK_FALSE(Release::parse(text));
  }
}

TEST_CASE("What is wrong with a release is said, and what was expected", "[sim][software]") {
  CHECK(profile_error("megatron-core@25.09").empty());
  CHECK(profile_error("torchtitan@2025-06").empty());
  CHECK(says(profile_error("megatron-cor@25.09"), "did you mean 'megatron-core'"));
  CHECK(says(profile_error("megatron-core@"), "not numbers"));
  CHECK(says(profile_error("megatron-core@new"), "as in 'megatron-core@24.07'"));
  CHECK(says(profile_error("megatron-core@23.05"), "nothing is known of a release before 24.07"));
  // Numbers of another scheme would pass as newer than any.
  CHECK(says(profile_error("megatron-core@2025-06"), "does not number its releases so"));
  CHECK(says(profile_error("torchtitan@25.06"), "expected 2024-10 or later"));
  CHECK(says(profile_error("meshplan@1.0"), "expected 'meshplan' alone"));
}

TEST_CASE("Each change of a release says where it is public, and makes a profile",
          "[sim][software]") {
  int releases = 0;
  for (const std::string& name : execution_profile_names()) {
    CAPTURE(name);
    const Releases& known = load_execution_profile(name).releases;
    for (const ReleaseChange& change : known.changes) {
      CHECK_FALSE(change.source.empty());
      CHECK_NOTHROW(load_execution_profile(name + "@" + change.since));
    }
    for (const ReleaseRecipe& recipe : known.recipes) CHECK_FALSE(recipe.source.empty());
    if (known.oldest.empty()) continue;
    ++releases;
    CHECK_NOTHROW(load_execution_profile(name + "@" + known.oldest));
  }
  CHECK(releases >= 2);
}

TEST_CASE("A release's change holds from it on, and without a release", "[sim][software]") {
  CHECK_FALSE(load_execution_profile("torchtitan@2025-07").can.expert_parallel);
  CHECK(load_execution_profile("torchtitan@2025-08").can.expert_parallel);
  CHECK(load_execution_profile("torchtitan").can.expert_parallel);
  CHECK(load_execution_profile("torchtitan@2025-07").can.tensor_parallel);  // the rest stays

  program::Plan plan;
  plan.model = models::load_preset("qwen3-30b-a3b");
  plan.zero_stage = 3;
  plan.parallel = {.dp = 8, .ep = 8};
  plan.workload.precision = DType::BF16;
  const auto broken = [&](const char* software) {
    return software_violations(on_stack(plan, software));
  };
  REQUIRE(broken("torchtitan@2025-06").size() == 1);
  CHECK(broken("torchtitan@2025-06").front().rule == "software.ep");
  CHECK(broken("torchtitan").empty());
}

TEST_CASE("Runs of an unknown release are not taken to have all that the newest has",
          "[sim][software]") {
  CHECK(load_execution_profile("torchtitan@2025-03").logit_bytes == 12);
  CHECK(load_execution_profile("torchtitan@2025-04").logit_bytes == 4);
  CHECK(load_execution_profile("torchtitan").logit_bytes == 4);
  CHECK(load_undated_profile("torchtitan").logit_bytes == 12);
  CHECK(load_undated_profile("torchtitan").experts_in_one_kernel);  // a change of 2025-04, too
  CHECK_FALSE(load_execution_profile("nanotron").keeps_gathered_inputs);
  CHECK(load_execution_profile("nanotron@2024-07").keeps_gathered_inputs);
  CHECK(load_undated_profile("nanotron").keeps_gathered_inputs);

  TrainingRun run = small_gpt();
  run.parallel.dp = 4;
  run.profile = "torchtitan";
  const double newest = predict(run).memory.transient;
  run.undated = true;
  CHECK(predict(run).memory.transient > newest);
}

// Rotary positions in eager PyTorch until 0.3.0; XLA's norms read their input twice until 2025.
TEST_CASE("Fusions of newer releases take less time", "[sim][software]") {
  const auto seconds = [](TrainingRun run, const char* software) {
    run.profile = software;
    return predict(run).step_time_s;
  };
  TrainingRun dense;
  dense.model = models::load_preset("llama3-8b");
  dense.parallel.dp = 8;
  dense.global_batch_size = 8;
  dense.seq_len = 8192;
  dense.zero_stage = 3;
  dense.recompute = RunRecompute::Full;
  dense.cluster = "dgx-h100";
  CHECK(seconds(dense, "nemo-automodel@0.2.0") > seconds(dense, "nemo-automodel@0.3.0"));
  CHECK(seconds(dense, "nemo-automodel@0.3.0") == seconds(dense, "nemo-automodel"));
  CHECK(seconds(dense, "jax-xla@2024-12") > seconds(dense, "jax-xla@2025-01"));
  CHECK(seconds(dense, "jax-xla@2025-02") == seconds(dense, "jax-xla"));
}

TEST_CASE("Recipes of a release choose what a run leaves open", "[sim][software]") {
  const double open = predict(experts("megatron-core")).step_time_s;
  CHECK(predict(experts("megatron-core@25.09")).step_time_s == open);

  TrainingRun stated = experts("megatron-core");
  stated.settings.expert_dispatch = program::ExpertDispatch::HybridEp;
  stated.settings.expert_dispatch_sms = 32;
  stated.settings.cuda_graphs = program::CudaGraphs::Partial;
  const double hybrid = predict(stated).step_time_s;
  CHECK(hybrid < open);
  CHECK(predict(experts("megatron-core@25.11")).step_time_s == hybrid);
  CHECK(predict(experts("megatron-core@26.04.01")).step_time_s == hybrid);

  stated.settings.cuda_graphs = program::CudaGraphs::Full;
  stated.settings.overlap_ep = true;
  stated.settings.fused_experts = stated.settings.fp8_attention = true;
  const double newest = predict(stated).step_time_s;
  CHECK(newest < hybrid);
  CHECK(predict(experts("megatron-core@26.08")).step_time_s == newest);
}

// A table that says no more than "fused": HybridEP on racks, and on nodes of eight since 26.02.
TEST_CASE("A fused dispatcher without a name is the release's", "[sim][software]") {
  using program::ExpertDispatch;
  const auto dispatch = [](const char* cluster, const char* software) {
    TrainingRun run = experts(software);
    run.cluster = cluster;
    run.any_fused_dispatch = true;
    run.settings.expert_dispatch = ExpertDispatch::DeepEp;
    return PreparedRun(run).run().settings.expert_dispatch;
  };
  CHECK(dispatch("gb200-nvl72", "megatron-core") == ExpertDispatch::HybridEp);
  CHECK(dispatch("gb200-nvl72", "megatron-core@25.09") == ExpertDispatch::HybridEp);
  CHECK(dispatch("dgx-b200", "megatron-core@25.11") == ExpertDispatch::DeepEp);
  CHECK(dispatch("dgx-b200", "megatron-core@26.02") == ExpertDispatch::HybridEp);
  TrainingRun stated = experts("megatron-core@26.02");  // a name stands
  stated.cluster = "dgx-b200";
  stated.settings.expert_dispatch = ExpertDispatch::DeepEp;
  CHECK(PreparedRun(stated).run().settings.expert_dispatch == ExpertDispatch::DeepEp);
}

TEST_CASE("Recipes choose only where they are for such runs", "[sim][software]") {
  const auto same = [](TrainingRun run) {
    run.profile = "megatron-core";
    const double open = predict(run).step_time_s;
    run.profile = "megatron-core@26.08";
    return predict(run).step_time_s == open;
  };
  CHECK_FALSE(same(experts("")));
  TrainingRun box = experts("");  // NVLink joins no more than a node
  box.cluster = "dgx-b200";
  CHECK(same(box));
  TrainingRun script = experts("");  // a launch script says what it turns on
  script.settings.recipes = false;
  CHECK(same(script));
  TrainingRun dropped = experts("");  // no fused dispatcher has capacities
  dropped.settings.token_drop = true;
  CHECK(same(dropped));
  TrainingRun dense = small_gpt();
  dense.cluster = "gb200-nvl72";
  CHECK(same(dense));
  TrainingRun half = experts("");  // MXFP8's recipe is not bf16's, which has the older one
  half.precision = RunPrecision::Bf16;
  half.profile = "megatron-core@26.08";
  const double newest = predict(half).step_time_s;
  half.profile = "megatron-core@25.11";
  CHECK(predict(half).step_time_s == newest);
  TrainingRun partial = experts("megatron-core@26.08");  // so the recipe of whole steps is not used
  partial.settings.cuda_graphs = program::CudaGraphs::Partial;
  CHECK(predict(partial).step_time_s == predict(experts("megatron-core@25.11")).step_time_s);
}

// Of 16 experts a rank: a product is issued 16 times for each of two matrices, or once. Casts of
// their inputs are 4 kernels for each expert and matrix, or one for all in front of the first. The
// activation's kernel goes, and so do its bytes, 6 for each of R F elements; the second input's 6 R
// F are cast in the epilogue, the first one's 6 R D become 4 R D. Rows are not padded before the
// first product and after the second: two kernels of 4 R D.
TEST_CASE("Fused experts are few kernels, and pass memory less often", "[sim][software]") {
  const std::vector<WorkItem> apart = forward_work(false), fused = forward_work(true);
  CHECK(launches(apart) - launches(fused) == 2 * 16 - 2 + 2 * 16 * 4 - 1 + 1 + 2);
  const double routed = 4.0 * 4096 * 8, d = 2048, f = 768;
  CHECK(streamed(apart) - streamed(fused) ==
        Approx(routed * ((6 - 4) * d + (6 + 6) * f + 2 * 4 * d)));
}

// In four bits products take less time than in MXFP8, and their inputs 0.5625 bytes instead of 1.
// Layers that stay in 16 bit take theirs: with all of them so, a step is one in bf16.
TEST_CASE("Products in four bits are Blackwell's", "[sim][software]") {
  TrainingRun run;
  run.model = models::load_preset("llama3-8b");
  run.parallel.dp = 8;
  run.global_batch_size = 8;
  run.seq_len = 8192;
  run.zero_stage = 1;
  run.cluster = "dgx-b200";
  run.profile = "megatron-core";
  const auto of = [&](RunPrecision precision) {
    run.precision = precision;
    return predict(run);
  };
  const RunPrediction half = of(RunPrecision::Bf16), eight = of(RunPrecision::MxFp8);
  const RunPrediction four = of(RunPrecision::NvFp4);
  CHECK(four.seconds.products < eight.seconds.products);
  CHECK(eight.seconds.products < half.seconds.products);
  CHECK(four.memory.activations < eight.memory.activations);
  run.settings.bf16_layers_at_start = 16;
  const RunPrediction mixed = of(RunPrecision::NvFp4);
  CHECK(mixed.seconds.products == Approx((half.seconds.products + four.seconds.products) / 2));
  run.settings.bf16_layers_at_end = 16;
  CHECK(of(RunPrecision::NvFp4).seconds.products == Approx(half.seconds.products));
  run.cluster = "dgx-h100";
  CHECK_THROWS_WITH(of(RunPrecision::NvFp4),
                    Catch::Contains("nvfp4") && Catch::Contains("Blackwell"));
}

// With one head size 2 products of attention are twice as fast in FP8, its exponentials are not:
// less than half of the time is saved, and casts of three inputs take some of it.
TEST_CASE("Attention in FP8 saves time of its products alone", "[sim][software]") {
  TrainingRun run = experts("megatron-core");
  const double half = predict(run).seconds.attention;
  run.settings.fp8_attention = true;
  const double low = predict(run).seconds.attention;
  CHECK(low < half);
  CHECK(low > 0.5 * half);
}

TEST_CASE("Heads that a stack's fused attention refuses take an older one, or none",
          "[sim][software]") {
  // At 128 the third generation, above the second, which is published with a lower rate.
  const auto rate = [](int head) {
    const RunPrediction prediction = predict(large_heads("megatron-core", head));
    return prediction.seconds.attention_flops / prediction.seconds.attention;
  };
  CHECK(rate(256) < 0.95 * rate(128) * 256 / 128);
  CHECK(PreparedRun(large_heads("megatron-core", 256)).profile().flash == FlashGeneration::Two);
  CHECK(PreparedRun(large_heads("megatron-core", 128)).profile().flash == FlashGeneration::Three);
  CHECK(PreparedRun(large_heads("megatron-core", 256)).run().attention == AttentionKernel::Flash);
  TrainingRun run = large_heads("megatron-core", 512);
  CHECK(PreparedRun(run).run().attention == AttentionKernel::Unfused);
  run.settings.attention = program::AttentionBackend::Flash;  // a table says what ran
  CHECK(PreparedRun(run).run().attention == AttentionKernel::Flash);
}

// Transformer Engine has had them in fused attention since 2.8.
TEST_CASE("Learned sinks are fused from the release on that knows them", "[sim][software]") {
  const auto attention = [](const char* software) {
    TrainingRun run = large_heads(software, 128);
    run.model.attention_sinks = true;
    return PreparedRun(run).run().attention;
  };
  CHECK(attention("megatron-core@25.09") == AttentionKernel::Unfused);
  CHECK(attention("megatron-core@25.11") == AttentionKernel::Flash);
  CHECK(attention("megatron-core") == AttentionKernel::Flash);
}

}  // namespace meshplan::sim
