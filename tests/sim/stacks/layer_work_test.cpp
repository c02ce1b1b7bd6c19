// The work of a sharded layer, counted by hand.
#include "stacks/layer/layer_work.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>

#include "models/counts.hpp"
#include "sim/run_cases.hpp"
#include "sim/stacks/work_sums.hpp"

namespace meshplan::sim {
namespace {

using program::Collective;

LayerWork work_of(const TrainingRun& run, bool recomputed = false) {
  const models::ModelGraph graph = models::build_graph(run.model);
  return layer_work(graph.kinds.front(), run, load_execution_profile(run.profile), recomputed);
}

double product_flops(const std::vector<WorkItem>& items) {
  return std::accumulate(items.begin(), items.end(), 0.0, [](double sum, const WorkItem& item) {
    return item.kind == WorkKind::Product ? sum + 2 * item.count * item.m * item.n * item.k : sum;
  });
}

double kernels(const std::vector<WorkItem>& items) {
  return std::accumulate(items.begin(), items.end(), 0.0,
                         [](double sum, const WorkItem& item) { return sum + item.kernels; });
}

double collective_bytes(const std::vector<WorkItem>& items, Collective kind) {
  double bytes = 0;
  for (const WorkItem& item : items)
    if (item.kind == WorkKind::Collective && item.collective == kind) bytes += item.bytes;
  return bytes;
}

constexpr double kTokens = 2 * 1024;
constexpr double kHidden = 1024;

}  // namespace

// 24 T D^2 forward (Narayanan et al. 2021, appendix), twice that backward.
TEST_CASE("A GPT layer multiplies 24 T D^2 forward and twice that backward", "[sim][work]") {
  const LayerWork work = work_of(small_gpt());
  const double forward = 24 * kTokens * kHidden * kHidden;
  CHECK(product_flops(work.forward) == Approx(forward));
  CHECK(product_flops(work.backward) == Approx(2 * forward));
  CHECK(work.recompute.empty());
}

TEST_CASE("Tensor parallelism divides the products and the matrices", "[sim][work]") {
  TrainingRun run = small_gpt();
  const LayerWork whole = work_of(run);
  run.parallel.tp = 4;
  const LayerWork shard = work_of(run);
  CHECK(product_flops(shard.forward) == Approx(product_flops(whole.forward) / 4));
  CHECK(shard.parameters.dense < whole.parameters.dense / 4 + 8 * kHidden);
}

// Autograd sums the output gradients of queries, keys and values (3 D), of the projection (D) and
// of the feed-forward products (4 D, D) once more for their biases.
TEST_CASE("Eager PyTorch reads output gradients again for biases", "[sim][work]") {
  TrainingRun run = small_gpt();
  run.profile = "llm-foundry-2023";
  const double without = stream_bytes(work_of(run).backward);
  run.model.qkv_bias = run.model.attention_out_bias = run.model.mlp_bias = true;
  CHECK(stream_bytes(work_of(run).backward) - without ==
        Approx((3 + 1 + 4 + 1) * kHidden * kTokens * 2));
}

// Two all-reduces of T D forward and two backward (Shoeybi et al. 2019, section 3).
TEST_CASE("Without sequence parallelism a layer all-reduces four times", "[sim][work]") {
  TrainingRun run = small_gpt();
  run.parallel.tp = 2;
  const LayerWork work = work_of(run);
  const double message = kTokens * kHidden * 2;
  CHECK(collective_bytes(work.forward, Collective::AllReduce) == Approx(2 * message));
  CHECK(collective_bytes(work.backward, Collective::AllReduce) == Approx(2 * message));
}

// Gathers and scatters move the bytes of all-reduces; backward gathers the inputs again
// (Korthikanti et al. 2022, section 4.2.2).
TEST_CASE("Sequence parallelism gathers and scatters", "[sim][work]") {
  TrainingRun run = small_gpt();
  run.parallel.tp = 2;
  run.parallel.sp = true;
  const LayerWork work = work_of(run);
  const double whole = kTokens * kHidden * 2;
  CHECK(collective_bytes(work.forward, Collective::AllGather) == Approx(2 * whole / 2));
  CHECK(collective_bytes(work.forward, Collective::ReduceScatter) == Approx(2 * whole));
  CHECK(collective_bytes(work.backward, Collective::AllGather) == Approx(4 * whole / 2));
  CHECK(collective_bytes(work.backward, Collective::ReduceScatter) == Approx(2 * whole));
  CHECK(collective_bytes(work.backward, Collective::AllReduce) == 0);
}

// In each of two scatters forward a rank reads the whole output and writes a half; backward in one:
// of queries, keys and values the input gradients are added up before their scatter, which waits.
TEST_CASE("Asynchronous tensor parallelism sums partial results in memory", "[sim][work]") {
  TrainingRun run = small_gpt();
  run.profile = "torchtitan";
  run.parallel.tp = 2;
  run.parallel.sp = true;
  const LayerWork synchronous = work_of(run);
  run.settings.async_tp = true;
  const LayerWork work = work_of(run);
  const double whole = kTokens * kHidden * 2;
  CHECK(stream_bytes(work.forward) - stream_bytes(synchronous.forward) == Approx(2 * 1.5 * whole));
  CHECK(stream_bytes(work.backward) - stream_bytes(synchronous.backward) == Approx(1.5 * whole));
  const auto waits = [](const WorkItem& item) {
    return item.kind == WorkKind::Collective && !item.beside_product;
  };
  CHECK(std::ranges::count_if(synchronous.backward, waits) == 0);
  CHECK(std::ranges::count_if(work.backward, waits) == 1);
}

// Two sequences lie apart along the first dimension: two gathers and two scatters each way are
// copied, read and written, but those that move beside products.
TEST_CASE("PyTorch copies what it gathers of several sequences", "[sim][work]") {
  TrainingRun run = small_gpt();
  run.profile = "torchtitan";
  run.parallel.tp = 2;
  run.parallel.sp = true;
  const auto copied = [&] {
    const LayerWork work = work_of(run);
    double bytes = 0;
    for (const auto* items : {&work.forward, &work.backward})
      for (const WorkItem& item : *items) bytes += item.copied;
    return bytes;
  };
  const double whole = kTokens * kHidden * 2;
  CHECK(copied() == Approx(8 * 2 * whole));
  run.settings.async_tp = true;
  CHECK(copied() == Approx(2 * whole));
  run.micro_batch_size = 1;
  CHECK(copied() == 0);
}

// With tp 4 a rank casts a quarter of the inputs of queries, keys and values and of the first
// feed-forward product (D each) and of the output gradients behind the others (D each); its parts
// of the rest are D/4 and 4 D/4 of inputs, 3 D/4 and 4 D/4 of gradients. Gathered tensors are laid
// out anew: 1 + 1 bytes. All gathers move one byte instead of two.
TEST_CASE("FP8 operands are cast before they are gathered", "[sim][work]") {
  TrainingRun run = small_gpt();
  run.profile = "megatron-core";
  run.parallel.tp = 4;
  run.parallel.sp = true;
  const LayerWork half = work_of(run);
  run.precision = RunPrecision::Fp8;
  const LayerWork work = work_of(run);
  const double elements = kTokens * kHidden;
  CHECK(stream_bytes(work.forward) - stream_bytes(half.forward) ==
        Approx(4 * elements * (2 * 0.25 + 0.25 + 1)));
  CHECK(stream_bytes(work.backward) - stream_bytes(half.backward) ==
        Approx(4 * elements * (0.75 + 1 + 2 * 0.25) + 2 * 4 * elements));
  for (const auto items : {&LayerWork::forward, &LayerWork::backward})
    CHECK(collective_bytes(work.*items, Collective::AllGather) ==
          Approx(collective_bytes(half.*items, Collective::AllGather) / 2));
}

// Head: norm 2, product 2, cross entropy 20, a layer's own 12, and 20 that load labels and mask.
// The first of several stages loads its tokens, too.
TEST_CASE("The stages at both ends load a micro-batch", "[sim][work]") {
  TrainingRun run = small_gpt();
  run.profile = "megatron-deepspeed-2022";
  const ExecutionProfile& profile = load_execution_profile(run.profile);
  const models::ModelGraph graph = models::build_graph(run.model);
  const auto forward_kernels = [&](const models::LayerGraph& layer) {
    return kernels(layer_work(layer, run, profile, false).forward);
  };
  CHECK(forward_kernels(graph.head) == 56);
  const double alone = forward_kernels(graph.embedding);
  run.parallel.pp = 2;
  CHECK(forward_kernels(graph.head) == 56);
  CHECK(forward_kernels(graph.embedding) == alone + 20);
}

TEST_CASE("Full recompute repeats the forward and keeps a layer's input", "[sim][work]") {
  TrainingRun run = small_gpt();
  run.recompute = RunRecompute::Full;
  run.profile = "megatron-core";
  const LayerWork work = work_of(run, true);
  CHECK(product_flops(work.recompute) == Approx(product_flops(work.forward)));
  CHECK(work.saved_bytes == Approx(kTokens * kHidden * 2));
}

// The product back to the hidden size is 8 T D^2 of 24 T D^2.
TEST_CASE("This project's runtime does not recompute a layer's last product", "[sim][work]") {
  TrainingRun run = small_gpt();
  run.recompute = RunRecompute::Full;
  const LayerWork work = work_of(run, true);
  CHECK(product_flops(work.recompute) == Approx(16 * kTokens * kHidden * kHidden));
}

// PyTorch drops that product, too, with the scatter behind it, but gathers again what goes in.
// Megatron-LM recomputes all.
TEST_CASE("PyTorch stops a recomputed layer at what backward reads", "[sim][work][recompute]") {
  TrainingRun run = small_gpt();
  run.recompute = RunRecompute::Full;
  run.parallel.tp = 2;
  run.parallel.sp = true;
  const auto work = [&](const char* software) {
    run.profile = software;
    return work_of(run, true);
  };
  const LayerWork all = work("megatron-core"), stopped = work("torchtitan");
  CHECK(product_flops(all.recompute) == Approx(product_flops(all.forward)));
  CHECK(product_flops(stopped.recompute) == Approx(product_flops(stopped.forward) * 16 / 24));
  CHECK(collective_bytes(stopped.recompute, Collective::AllGather) ==
        collective_bytes(stopped.forward, Collective::AllGather));
  CHECK(collective_bytes(stopped.recompute, Collective::ReduceScatter) ==
        collective_bytes(stopped.forward, Collective::ReduceScatter) / 2);
}

// Of 24 T D^2, an MLP of width 4 D is 16; it keeps its input, which the norm made, and makes 2 * 4
// D again.
TEST_CASE("A stack that recomputes modules repeats these and keeps what goes in",
          "[sim][work][recompute]") {
  TrainingRun run = small_gpt();
  run.profile = "megatron-core";
  const LayerWork kept = work_of(run);
  run.recompute = RunRecompute::Modules;
  const auto with = [&](models::ModuleSet modules) {
    run.recompute_modules = modules;
    return work_of(run, true);
  };
  using models::Module;
  const LayerWork mlp = with({Module::Mlp});
  CHECK(product_flops(mlp.recompute) == Approx(16 * kTokens * kHidden * kHidden));
  CHECK(kept.saved_bytes - mlp.saved_bytes == Approx(kTokens * 2 * 4 * kHidden * 2));
  // Norms alone: their outputs are made again, no product.
  const LayerWork norms = with({Module::Norms});
  CHECK(product_flops(norms.recompute) == 0);
  CHECK(kept.saved_bytes - norms.saved_bytes == Approx(2 * kTokens * kHidden * 2));
  const LayerWork both = with({Module::Norms, Module::Mlp});
  CHECK(both.saved_bytes == Approx(mlp.saved_bytes + norms.saved_bytes - kept.saved_bytes));
  // A fused core keeps what the projection behind it keeps anyway.
  CHECK(with({Module::Attention}).saved_bytes == Approx(kept.saved_bytes));
  CHECK(with({}).saved_bytes == Approx(kept.saved_bytes));
}

// s b h (34 + 5 a s / h) without parallelism, with masks of dropout; this layer's norms keep their
// inputs once and its two dropout masks, so all of the paper's terms (Korthikanti et al. 2022,
// equation 1).
TEST_CASE("Unfused attention keeps the bytes of Korthikanti's equation 1", "[sim][work]") {
  TrainingRun run = small_gpt();
  run.attention = AttentionKernel::Unfused;
  run.profile = "megatron-2022";
  const LayerWork work = work_of(run);
  const double expected = kTokens * kHidden * (34 + 5 * 16 * 1024.0 / kHidden);
  CHECK(work.saved_bytes == Approx(expected).epsilon(0.02));
}

// Every token goes to two of four experts: 2 * 3 * 2 T k D F / ep.
TEST_CASE("Experts multiply the routed tokens", "[sim][work]") {
  TrainingRun run = small_gpt();
  run.model.mlp = models::Mlp::Gated;
  run.model.activation = models::ActivationKind::Silu;
  run.model.ffn_size = 0;
  run.model.moe = models::MoeSpec{.num_experts = 4, .top_k = 2, .expert_ffn_size = 2048};
  run.parallel.dp = run.parallel.ep = 2;
  const LayerWork work = work_of(run);
  double experts = 0;
  for (const WorkItem& item : work.forward)
    if (item.kind == WorkKind::Product && item.count == 2)
      experts += 2 * item.count * item.m * item.n * item.k;
  CHECK(experts == Approx(2 * 3 * kTokens * 2 * kHidden * 2048));
  CHECK(collective_bytes(work.forward, Collective::AllToAll) ==
        Approx(2 * kTokens * 2 * kHidden * 2));
}

namespace {

/// Sixteen experts of 4,096, top 2, like gpt-oss's but for what `set` takes away.
LayerWork gpt_oss_work(const char* profile, void (*set)(models::ModelSpec&)) {
  TrainingRun run = small_gpt(2);
  run.profile = profile;
  run.cluster = "dgx-h100";
  run.model.mlp = models::Mlp::Gated;
  run.model.activation = models::ActivationKind::ClampedSilu;
  run.model.moe = models::MoeSpec{.num_experts = 16, .top_k = 2, .expert_ffn_size = 4096};
  run.model.moe->expert_bias = true;
  run.model.ffn_size = 0;
  set(run.model);
  return work_of(run);
}

}  // namespace

// 2 T rows of 4,096: 16 bytes an element more forward and 20 backward, three kernels each.
TEST_CASE("A clamped unit that a stack does not fuse passes memory more often", "[sim][work]") {
  const auto unclamped = [](models::ModelSpec& spec) {
    spec.activation = models::ActivationKind::Silu;
  };
  const LayerWork with = gpt_oss_work("megatron-core", [](models::ModelSpec&) {});
  const LayerWork without = gpt_oss_work("megatron-core", unclamped);
  const double elements = 2 * kTokens * 4096;
  CHECK(stream_bytes(with.forward) - stream_bytes(without.forward) == Approx(16 * elements));
  CHECK(stream_bytes(with.backward) - stream_bytes(without.backward) == Approx(20 * elements));
  CHECK(kernels(with.forward) - kernels(without.forward) == Approx(3));
  CHECK(kernels(with.backward) - kernels(without.backward) == Approx(3));
  const LayerWork fused = gpt_oss_work("torchtitan", [](models::ModelSpec&) {});
  const LayerWork plain = gpt_oss_work("torchtitan", unclamped);
  CHECK(stream_bytes(fused.forward) == stream_bytes(plain.forward));
}

// Of 2 T rows of the model's width: 28 bytes an element forward and 36 backward, and kernels for
// each of the sixteen experts.
TEST_CASE("Biases of experts' outputs are added expert by expert", "[sim][work]") {
  const LayerWork with = gpt_oss_work("megatron-core", [](models::ModelSpec&) {});
  const LayerWork without =
      gpt_oss_work("megatron-core", [](models::ModelSpec& spec) { spec.moe->expert_bias = false; });
  const double elements = 2 * kTokens * kHidden;
  CHECK(stream_bytes(with.forward) - stream_bytes(without.forward) == Approx(28 * elements));
  CHECK(stream_bytes(with.backward) - stream_bytes(without.backward) == Approx(36 * elements));
  CHECK(kernels(with.forward) - kernels(without.forward) == Approx(16 * 2));
  CHECK(kernels(with.backward) - kernels(without.backward) == Approx(16 * 6));
}

// 2 T N forward, 2 T N for the gradient of the input and 2 T N for that of the weight (Kaplan et
// al. 2020, section 2.1): what is frozen has no last part, and below the lowest trained layer no
// second.
TEST_CASE("A frozen layer has no weight gradients, and none at all below what is trained",
          "[sim][work]") {
  const TrainingRun run = small_gpt();
  const models::ModelGraph graph = models::build_graph(run.model);
  const models::LayerGraph& layer = graph.kinds.front();
  const auto parameters = std::ranges::count(layer.tensors, models::TensorClass::Parameter,
                                             &models::Tensor::tensor_class);
  const FrozenLayer all{.parameters =
                            std::vector<bool>(static_cast<std::size_t>(parameters), true)};
  FrozenLayer below = all;
  below.needs_input_gradient = false;
  const auto work_with = [&](const FrozenLayer& frozen) {
    return layer_work(layer, run, load_execution_profile(run.profile), false, frozen);
  };
  const LayerWork trained = work_of(run), above = work_with(all), lowest = work_with(below);
  CHECK(product_flops(above.forward) == product_flops(trained.forward));
  CHECK(product_flops(above.backward) == Approx(product_flops(trained.backward) / 2));
  CHECK(above.trained.all() == 0);
  CHECK(above.parameters.all() == trained.trained.all());
  // Inputs of the four products: T D of queries, keys and values, T D of the output projection,
  // which attention keeps, too, T D and T 4 D of the feed-forward part.
  CHECK(trained.saved_bytes - above.saved_bytes == Approx(2 * kTokens * kHidden * (1 + 1 + 4)));
  CHECK(lowest.backward.empty());
  CHECK(lowest.saved_bytes == 0);
  CHECK(lowest.forward == trained.forward);
}

}  // namespace meshplan::sim
