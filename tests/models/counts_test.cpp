// Totals are derived by hand from layer shapes; the literal beside each is the published total.
// h hidden, f FFN width, q/kv elements of all query/key heads, V vocabulary, L layers, X experts.
#include "models/counts.hpp"

#include <catch2/catch.hpp>
#include <cstdint>
#include <string>
#include <vector>

namespace meshplan::models {
namespace {

using Int = std::int64_t;

/// A layer of the Llama family: fused attention of four projections and a gated MLP, two norms.
Int attention(Int h, Int q, Int kv) {
  return h * (q + 2 * kv) + q * h;
}
Int gated(Int h, Int f) {
  return 3 * h * f;
}
Int moe(Int h, Int f, Int experts) {
  return experts * gated(h, f) + h * experts;
}
Int embeddings(Int vocab, Int h, bool tied) {
  return (tied ? 1 : 2) * vocab * h;
}

/// Token and position tables, 12 h^2 + 13 h per layer (4h^2 + 4h attention, 8h^2 + 5h MLP, 4h
/// norms), final norm; the head is tied.
Int gpt2(Int layers, Int h, Int vocab, Int positions) {
  return (vocab + positions) * h + layers * (12 * h * h + 13 * h) + 2 * h;
}

/// Grouped-query attention, gated MLP, RMS norms; `extra` per layer: biases, q/k-norms, more norms.
Int llama(Int layers, Int per_layer, Int h, Int vocab, bool tied) {
  return embeddings(vocab, h, tied) + layers * (per_layer + 2 * h) + h;
}

/// h=7168, 128 heads, ranks 1536 and 512, heads of 128+64 (q, k) and 128 (v); 3 dense layers.
Int deepseek_v3() {
  const Int h = 7168;
  const Int q = h * 1536 + 1536 + Int{1536} * 128 * 192;
  const Int kv = h * (512 + 64) + 512 + Int{512} * 128 * 256;
  const Int out = Int{128} * 128 * h;
  const Int expert_layer = moe(h, 2048, 256) + 256 + gated(h, 2048);  // + correction bias + shared
  return embeddings(129280, h, false) + h + 61 * (q + kv + out + 2 * h) + 3 * gated(h, 18432) +
         58 * expert_layer;
}

/// 12 full and 36 linear layers; h=2048, 512 experts of 512, a gated shared expert of 512.
Int qwen3_next() {
  const Int h = 2048;
  const Int full = attention(h, 4096, 512) + h * 4096 + 2 * 256;  // + output gate, q/k-norms
  const Int linear = h * (2 * 2048 + 2 * 4096) + h * 64 + (2 * 2048 + 4096) * 4 + 2 * 32 + 128 +
                     4096 * h;  // qkvz, ba, convolution, dt and A, norm, output
  const Int ffn = moe(h, 512, 512) + gated(h, 512) + h;
  return embeddings(151936, h, false) + h + 48 * (ffn + 2 * h) + 12 * full + 36 * linear;
}

/// q = 4096, kv = 512; biases on q, k, v, o, router and experts; 64 sinks.
Int gpt_oss(Int layers, Int experts) {
  const Int h = 2880;
  const Int f = 2880;
  const Int attn = attention(h, 4096, 512) + 4096 + 2 * 512 + h + 64;
  const Int ffn = experts * (3 * h * f + 2 * f + h) + h * experts + experts;
  return llama(layers, attn + ffn, h, 201088, false);
}

struct KnownTotal {
  std::string preset;
  Int by_hand;
  Int published;
};

std::vector<KnownTotal> known_totals() {
  const auto llama3 = [](Int layers, Int h, Int q, Int kv, Int f, bool tied) {
    return llama(layers, attention(h, q, kv) + gated(h, f), h, 128256, tied);
  };
  const auto qwen2 = [](Int layers, Int h, Int kv, Int f, Int vocab, bool tied) {
    return llama(layers, attention(h, h, kv) + h + 2 * kv + gated(h, f), h, vocab, tied);
  };
  const auto gemma = [](Int layers, Int h, Int q, Int kv, Int f, Int vocab, Int qk_norm) {
    return llama(layers, attention(h, q, kv) + gated(h, f) + 2 * h + qk_norm, h, vocab, true);
  };
  return {
      {"gpt2-124m", gpt2(12, 768, 50257, 1024), 124'439'808},
      {"llama2-7b", llama(32, attention(4096, 4096, 4096) + gated(4096, 11008), 4096, 32000, false),
       6'738'415'616},
      {"llama3.2-1b", llama3(16, 2048, 2048, 512, 8192, true), 1'235'814'400},
      {"llama3-8b", llama3(32, 4096, 4096, 1024, 14336, false), 8'030'261'248},
      {"llama3-70b", llama3(80, 8192, 8192, 1024, 28672, false), 70'553'706'496},
      {"llama3.1-405b", llama3(126, 16384, 16384, 1024, 53248, false), 405'853'388'800},
      {"qwen2.5-0.5b", qwen2(24, 896, 128, 4864, 151936, true), 494'032'768},
      {"qwen2.5-7b", qwen2(28, 3584, 512, 18944, 152064, false), 7'615'616'512},
      {"qwen3-8b",
       llama(36, attention(4096, 4096, 1024) + gated(4096, 12288) + 2 * 128, 4096, 151936, false),
       8'190'735'360},
      {"qwen3-30b-a3b",
       llama(48, attention(2048, 4096, 512) + moe(2048, 768, 128) + 2 * 128, 2048, 151936, false),
       30'532'122'624},
      {"qwen3-235b-a22b",
       llama(94, attention(4096, 8192, 512) + moe(4096, 1536, 128) + 2 * 128, 4096, 151936, false),
       235'093'634'560},
      {"qwen3-next-80b-a3b", qwen3_next(), 79'674'391'296},
      {"mixtral-8x7b",
       llama(32, attention(4096, 4096, 1024) + moe(4096, 14336, 8), 4096, 32000, false),
       46'702'792'704},
      {"deepseek-v3", deepseek_v3(), 671'026'419'200},
      {"gpt-oss-20b", gpt_oss(24, 32), 20'914'757'184},
      {"gpt-oss-120b", gpt_oss(36, 128), 116'829'156'672},
      {"gemma2-2b", gemma(26, 2304, 2048, 1024, 9216, 256000, 0), 2'614'341'888},
      {"gemma3-1b", gemma(26, 1152, 1024, 256, 6912, 262144, 2 * 256), 999'885'952},
      {"gemma3-4b", gemma(34, 2560, 2048, 1024, 10240, 262208, 2 * 256), 3'880'263'168},
  };
}

/// The other sizes of families: config.json of the checkpoints that docs/models.md names, totals of
/// their safetensors (of Gemma 3 without the vision tower and its projector).
std::vector<KnownTotal> known_totals_of_sizes() {
  const auto dense = [](Int layers, Int h, Int q, Int kv, Int f, Int vocab, bool tied) {
    return llama(layers, attention(h, q, kv) + gated(h, f), h, vocab, tied);
  };
  const auto qwen2 = [](Int layers, Int h, Int kv, Int f, Int vocab, bool tied) {
    return llama(layers, attention(h, h, kv) + h + 2 * kv + gated(h, f), h, vocab, tied);
  };
  const auto qwen3 = [](Int layers, Int h, Int q, Int f, bool tied) {
    return llama(layers, attention(h, q, 1024) + gated(h, f) + 2 * 128, h, 151936, tied);
  };
  const auto gemma = [](Int layers, Int h, Int q, Int kv, Int f, Int vocab, Int qk_norm) {
    return llama(layers, attention(h, q, kv) + gated(h, f) + 2 * h + qk_norm, h, vocab, true);
  };
  return {
      {"llama2-13b", dense(40, 5120, 5120, 5120, 13824, 32000, false), 13'015'864'320},
      {"llama2-70b", dense(80, 8192, 8192, 1024, 28672, 32000, false), 68'976'648'192},
      {"llama3.1-8b", dense(32, 4096, 4096, 1024, 14336, 128256, false), 8'030'261'248},
      {"llama3.1-70b", dense(80, 8192, 8192, 1024, 28672, 128256, false), 70'553'706'496},
      {"llama3.2-3b", dense(28, 3072, 3072, 1024, 8192, 128256, true), 3'212'749'824},
      {"codellama-34b", dense(48, 8192, 8192, 1024, 22016, 32000, false), 33'743'970'304},
      {"tinyllama-1.1b", dense(22, 2048, 2048, 256, 5632, 32000, false), 1'100'048'384},
      {"smollm2-135m", dense(30, 576, 576, 192, 1536, 49152, true), 134'515'008},
      {"mistral-7b-v0.3", dense(32, 4096, 4096, 1024, 14336, 32768, false), 7'248'023'552},
      {"mixtral-8x22b",
       llama(56, attention(6144, 6144, 1024) + moe(6144, 16384, 8), 6144, 32000, false),
       140'620'634'112},
      {"qwen2.5-1.5b", qwen2(28, 1536, 256, 8960, 151936, true), 1'543'714'304},
      {"qwen2.5-3b", qwen2(36, 2048, 256, 11008, 151936, true), 3'085'938'688},
      {"qwen2.5-14b", qwen2(48, 5120, 1024, 13824, 152064, false), 14'770'033'664},
      {"qwen2.5-32b", qwen2(64, 5120, 1024, 27648, 152064, false), 32'763'876'352},
      {"qwen2.5-72b", qwen2(80, 8192, 1024, 29568, 152064, false), 72'706'203'648},
      {"qwen3-0.6b", qwen3(28, 1024, 2048, 3072, true), 596'049'920},
      {"qwen3-1.7b", qwen3(28, 2048, 2048, 6144, true), 1'720'574'976},
      {"qwen3-4b", qwen3(36, 2560, 4096, 9728, true), 4'022'468'096},
      {"qwen3-14b", qwen3(40, 5120, 5120, 17408, false), 14'768'307'200},
      {"qwen3-32b", qwen3(64, 5120, 8192, 25600, false), 32'762'123'264},
      {"gemma2-9b", gemma(42, 3584, 4096, 2048, 14336, 256000, 0), 9'241'705'984},
      {"gemma2-27b", gemma(46, 4608, 4096, 2048, 36864, 256000, 0), 27'227'128'320},
      {"gemma3-270m", gemma(18, 640, 1024, 256, 2048, 262144, 2 * 256), 268'098'176},
      {"gemma3-12b", gemma(48, 3840, 4096, 2048, 15360, 262208, 2 * 256),
       12'187'325'040 - 421'290'864},
      {"gemma3-27b", gemma(62, 5376, 4096, 2048, 21504, 262208, 2 * 128),
       27'432'406'640 - 423'060'336},
  };
}

ParameterCounts counts_of(const std::string& preset) {
  return count_parameters(build_graph(load_preset(preset)));
}

/// Forward matrix work of a Llama layer per token, without attention scores.
double dense_layer_flops(double h, double q, double kv, double f) {
  return 2.0 * (h * (q + 2 * kv) + q * h + 3 * h * f);
}

}  // namespace

TEST_CASE("parameter totals equal hand-derived and published ones", "[models][counts]") {
  std::vector<KnownTotal> all = known_totals();
  for (const KnownTotal& size : known_totals_of_sizes()) all.push_back(size);
  for (const KnownTotal& known : all) {
    INFO(known.preset);
    CHECK(known.by_hand == known.published);
    CHECK(counts_of(known.preset).total == known.published);
  }
}

TEST_CASE("the other GPT-2 sizes have their published parameters", "[models][counts]") {
  // Radford et al. 2019 as released: medium, large and XL; GPT-3 is 12 L h^2 + 13 L h and tables.
  CHECK(counts_of("gpt2-medium").total == 354'823'168);
  CHECK(counts_of("gpt2-large").total == 774'030'080);
  CHECK(counts_of("gpt2-xl").total == 1'557'611'200);
  CHECK(counts_of("gpt3-175b").total == gpt2(96, 12288, 50257, 2048));
}

TEST_CASE("an encoder counts its token types, pooler and classifier", "[models][counts]") {
  // BertModel has 109,482,240 parameters; a classifier of two classes adds 2 * 768 + 2.
  CHECK(counts_of("bert-base").total == 109'482'240 + 1'538);
}

TEST_CASE("active parameters use top-k experts", "[models][counts]") {
  // Mixtral: 6 of 8 experts idle in each of 32 layers.
  CHECK(counts_of("mixtral-8x7b").active == 46'702'792'704 - 32 * 6 * gated(4096, 14336));
  CHECK(counts_of("qwen3-30b-a3b").active == 30'532'122'624 - 48 * 120 * gated(2048, 768));
  CHECK(counts_of("deepseek-v3").active == 671'026'419'200 - 58 * 248 * gated(7168, 2048));
  // An expert of gpt-oss has biases: 2f on gate and up, h on down.
  const ParameterCounts oss = counts_of("gpt-oss-120b");
  CHECK(oss.active == 116'829'156'672 - 36 * 124 * (3 * Int{2880} * 2880 + 3 * 2880));
  // Published: 3.35, 12.88, 37.55 and 5.71 billion; 5.13 without the input embedding.
  CHECK(static_cast<double>(oss.active) == Approx(5.71e9).epsilon(1e-3));
  CHECK(static_cast<double>(oss.active - oss.embedding) == Approx(5.13e9).epsilon(1e-3));
  CHECK(static_cast<double>(counts_of("mixtral-8x7b").active) == Approx(12.88e9).epsilon(1e-3));
  CHECK(static_cast<double>(counts_of("deepseek-v3").active) == Approx(37.55e9).epsilon(1e-3));
  CHECK(static_cast<double>(counts_of("qwen3-30b-a3b").active) == Approx(3.353e9).epsilon(1e-3));
  CHECK(static_cast<double>(counts_of("qwen3-235b-a22b").active) == Approx(22.19e9).epsilon(1e-3));
}

TEST_CASE("dense models are active in full", "[models][counts]") {
  const ParameterCounts counts = counts_of("llama3-8b");
  CHECK(counts.active == counts.total);
  CHECK(counts.embedding == Int{128256} * 4096);
}

TEST_CASE("multi-token prediction is counted apart from the main model", "[models][counts]") {
  ModelSpec spec = load_preset("deepseek-v3");
  const ParameterCounts main = count_parameters(build_graph(spec));
  spec.mtp_layers = 1;
  const ParameterCounts with_mtp = count_parameters(build_graph(spec));
  CHECK(with_mtp.total == main.total);
  // An expert layer, a projection of 2h to h and three norms. DeepSeek-V3's release names 14B for
  // the module with embedding and head, which it shares with the main model.
  const Int h = 7168;
  const Int mla = h * 1536 + 1536 + Int{1536} * 128 * 192 + h * 576 + 512 + Int{512} * 128 * 256 +
                  Int{128} * 128 * h;
  CHECK(with_mtp.mtp == mla + 2 * h + moe(h, 2048, 256) + 256 + gated(h, 2048) + 2 * h * h + 3 * h);
  CHECK(main.mtp == 0);
}

TEST_CASE("GPT-2 training work equals 6(12LC^2 + VC) + 12LTC per token", "[models][flops]") {
  const ModelGraph graph = build_graph(load_preset("gpt2-124m"));
  const double C = 768;
  const double L = 12;
  const double T = 1024;
  const double matrices = 6.0 * (12 * L * C * C + 50257 * C);
  const double attention_work = 12.0 * L * T * C;
  CHECK(model_flops_per_token(graph, 1024, AttentionCount::AllPairs).value ==
        Approx(matrices + attention_work).epsilon(1e-12));
  CHECK(model_flops_per_token(graph, 1024).value ==
        Approx(matrices + attention_work / 2).epsilon(1e-12));
  // A step of 4 x 64 tokens is 191.6 GFLOP.
  CHECK(256 * model_flops_per_token(graph, 64, AttentionCount::AllPairs).value ==
        Approx(191.6e9).epsilon(1e-3));
}

TEST_CASE("grouped-query attention computes scores for every query head", "[models][flops]") {
  const ModelGraph graph = build_graph(load_preset("llama3-8b"));
  const double layer = dense_layer_flops(4096, 4096, 1024, 14336) + 4.0 * 8192 / 2 * 4096;
  CHECK(model_flops_per_token(graph, 8192).value ==
        Approx(3 * (32 * layer + 2.0 * 128256 * 4096)).epsilon(1e-12));
}

TEST_CASE("a sliding window of W keys counts W - W^2/2S per query", "[models][flops]") {
  // Sum over queries i of min(i, W) is WS - W^2/2 when the diagonal is left out of both.
  const ModelGraph graph = build_graph(load_preset("mistral-7b"));
  const double S = 16384;
  const double W = 4096;
  const double layer =
      dense_layer_flops(4096, 4096, 1024, 14336) + 4.0 * 4096 * (W - W * W / 2 / S);
  CHECK(model_flops_per_token(graph, 16384).value ==
        Approx(3 * (32 * layer + 2.0 * 32000 * 4096)).epsilon(1e-12));
}

TEST_CASE("a window as long as the sequence costs what full attention costs", "[models][flops]") {
  ModelSpec spec = load_preset("mistral-7b");
  const Flops windowed = model_flops_per_token(build_graph(spec), 4096);
  spec.layer_pattern.clear();
  spec.window = 0;
  CHECK(windowed == model_flops_per_token(build_graph(spec), 4096));
}

TEST_CASE("an encoder attends to all pairs and classifies once per sequence", "[models][flops]") {
  const ModelGraph graph = build_graph(load_preset("bert-base"));
  const double S = 512;
  const double layer = 2.0 * 12 * 768 * 768 + 4.0 * S * 768;
  const double head = 2.0 * (768.0 * 768 + 768 * 2) / S;
  CHECK(model_flops_per_token(graph, 512).value == Approx(3 * (12 * layer + head)).epsilon(1e-12));
}

TEST_CASE("each token meets top-k experts and the router", "[models][flops]") {
  const ModelGraph graph = build_graph(load_preset("mixtral-8x7b"));
  const double S = 4096;
  const double layer =
      dense_layer_flops(4096, 4096, 1024, 2 * 14336) + 2.0 * 4096 * 8 + 4.0 * 4096 * S / 2;
  CHECK(model_flops_per_token(graph, 4096).value ==
        Approx(3 * (32 * layer + 2.0 * 32000 * 4096)).epsilon(1e-12));
}

TEST_CASE("latent attention scores use 192 and its values 128 elements", "[models][flops]") {
  const ModelGraph graph = build_graph(load_preset("deepseek-v3"));
  const LayerGraph& dense = graph.kinds.front();
  REQUIRE(dense.name == "dense");
  const double S = 4096;
  for (const Op& op : dense.ops)
    if (op.kind == OpKind::LatentAttention)
      CHECK(forward_flops(op, dense, {.tokens = 4096, .sequences = 1}, 4096).value ==
            Approx(2.0 * 128 * (192 + 128) * S * S / 2).epsilon(1e-12));
}

TEST_CASE("a multi-token prediction module costs a layer, its projection and a head",
          "[models][flops]") {
  ModelSpec spec = load_preset("deepseek-v3");
  const double S = 4096;
  const double main = model_flops_per_token(build_graph(spec), 4096).value;
  spec.mtp_layers = 1;
  const double h = 7168;
  const double mla = h * 1536 + 1536.0 * 128 * 192 + h * 576 + 512.0 * 128 * 256 + 16384 * h;
  const double scores = 128.0 * (192 + 128) * S / 2;
  const double ffn = h * 256 + 9 * 3 * h * 2048;  // router, 8 routed experts and a shared one
  const double module = 2 * (mla + scores + ffn + 2 * h * h + 129280 * h);
  CHECK(model_flops_per_token(build_graph(spec), 4096).value - main ==
        Approx(3 * module).epsilon(1e-9));
}

TEST_CASE("a gated delta net costs the same per token at any length", "[models][flops]") {
  const ModelGraph graph = build_graph(load_preset("qwen3-next-80b-a3b"));
  const LayerGraph& linear = graph.kinds.front();
  REQUIRE(linear.name == "linear_moe");
  for (const Op& op : linear.ops)
    if (op.kind == OpKind::LinearAttention)
      for (const Int S : {Int{128}, Int{4096}})
        CHECK(forward_flops(op, linear, {.tokens = S, .sequences = 1}, S).value ==
              Approx(static_cast<double>(S) * 6.0 * 32 * 128 * 128).epsilon(1e-12));
    else if (op.kind == OpKind::ShortConvolution)
      CHECK(forward_flops(op, linear, {.tokens = 128, .sequences = 1}, 128).value ==
            Approx(128 * 2.0 * 8192 * 4).epsilon(1e-12));
}

TEST_CASE("training costs three forwards per operation and lookups are free", "[models][flops]") {
  const ModelGraph graph = build_graph(load_preset("tiny-llama"));
  const SymbolValues values{.tokens = 128, .sequences = 2};
  CHECK(forward_flops(graph.embedding, values, 64).value == 0.0);
  for (const Op& op : graph.kinds.front().ops)
    CHECK(training_flops(op, graph.kinds.front(), values, 64) ==
          3.0 * forward_flops(op, graph.kinds.front(), values, 64));
}

TEST_CASE("the work of a sharded layer is the local one", "[models][flops]") {
  // Halving every sharded dimension of a column- and a row-parallel linear halves both.
  LayerGraph layer = build_graph(load_preset("tiny-llama")).kinds.front();
  const SymbolValues values{.tokens = 128, .sequences = 2};
  std::vector<Flops> whole;
  for (const Op& op : layer.ops) whole.push_back(forward_flops(op, layer, values, 64));
  for (const Op& op : layer.ops) {
    auto& tensors = layer.tensors;
    const auto at = [&](TensorId id) -> Tensor& { return tensors[static_cast<std::size_t>(id)]; };
    if (op.kind == OpKind::Linear)
      at(op.parameters[0]).shape[op.split == Split::Column ? 0 : 1].divisor = 2;
    if (op.kind == OpKind::Attention) at(op.outputs[0]).shape[1].divisor = 2;
  }
  for (std::size_t i = 0; i < layer.ops.size(); ++i)
    CHECK(forward_flops(layer.ops[i], layer, values, 64).value == whole[i].value / 2);
}

}  // namespace meshplan::models
