// Figures are from the formulas of transformers' modeling_rope_utils.py, run in NumPy in fp64.
#include "models/rope_scaling.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <string>

#include "core/error.hpp"
#include "models/graph.hpp"
#include "models/refusal.hpp"

namespace meshplan::models {
namespace {

using Catch::Contains;

struct Figure {
  std::size_t pair;
  double frequency;
};

void check_figures(const std::vector<double>& frequencies, const std::vector<Figure>& figures) {
  for (const Figure& figure : figures) {
    INFO("pair " << figure.pair);
    CHECK(frequencies.at(figure.pair) == Approx(figure.frequency).epsilon(1e-12));
  }
}

RopeScaling scaling_of(const std::string& preset) {
  const ModelSpec spec = load_preset(preset);
  REQUIRE(spec.rope_scaling);
  RopeScaling scaling = *spec.rope_scaling;
  if (!scaling.original_max_positions) scaling.original_max_positions = spec.max_positions;
  return scaling;
}

const Op& op_of(const LayerGraph& layer, OpKind kind) {
  for (const Op& op : layer.ops)
    if (op.kind == kind) return op;
  FAIL("no such operation");
  return layer.ops.front();
}

}  // namespace

TEST_CASE("llama3 keeps short wavelengths, divides long ones and blends between",
          "[models][rope]") {
  check_figures(rope_inverse_frequencies(500000.0, 64, scaling_of("llama3.2-1b"), 2048),
                {{0, 1.0},
                 {14, 0.0032114459947525913},
                 {15, 0.001290547928209264},
                 {16, 0.00042955679655936837},
                 {17, 9.70828780262767e-05},
                 {18, 1.9461638184831128e-05},
                 {31, 9.418306725434911e-08}});
  CHECK(rope_attention_factor(scaling_of("llama3.2-1b")) == 1.0);
}

TEST_CASE("yarn ramps between pairs, whole ones or not", "[models][rope]") {
  check_figures(rope_inverse_frequencies(150000.0, 64, scaling_of("gpt-oss-20b"), 2048),
                {{0, 1.0},
                 {8, 0.050813274815461475},
                 {9, 0.03170569618466377},
                 {12, 0.00679495948973222},
                 {17, 0.00012931870124506317},
                 {18, 3.8308812373753384e-05},
                 {31, 3.0235114281192144e-07}});
  CHECK(rope_attention_factor(scaling_of("gpt-oss-20b")) ==
        Approx(1.3465735902799727).epsilon(1e-14));
  check_figures(rope_inverse_frequencies(10000.0, 64, scaling_of("deepseek-v3"), 2048),
                {{0, 1.0},
                 {10, 0.056234132519034905},
                 {11, 0.03900692656714386},
                 {15, 0.008334508951020777},
                 {22, 0.0001778279410038922},
                 {23, 3.33380358040831e-05},
                 {31, 3.33380358040831e-06}});
}

TEST_CASE("yarn's factor of cos and sin is given, a quotient of mscales or the paper's",
          "[models][rope]") {
  RopeScaling yarn{.kind = RopeScalingKind::Yarn, .factor = 40.0, .original_max_positions = 4096};
  CHECK(rope_attention_factor(yarn) == Approx(1.3688879454113936).epsilon(1e-14));
  CHECK(rope_latent_score_factor(yarn) == 1.0);
  yarn.mscale = 0.5;
  CHECK(rope_attention_factor(yarn) == Approx(1.3688879454113936).epsilon(1e-14));
  yarn.mscale_all_dim = 1.0;
  CHECK(rope_attention_factor(yarn) ==
        Approx((0.05 * std::log(40.0) + 1.0) / 1.3688879454113936).epsilon(1e-14));
  CHECK(rope_latent_score_factor(yarn) == Approx(1.8738542070926265).epsilon(1e-14));
  yarn.attention_factor = 0.75;
  CHECK(rope_attention_factor(yarn) == 0.75);
  yarn.attention_factor.reset();
  yarn.factor = 1.0;
  CHECK(rope_attention_factor(yarn) == 1.0);
}

TEST_CASE("linear divides all frequencies; dynamic none up to the original length",
          "[models][rope]") {
  const RopeScaling linear{.kind = RopeScalingKind::Linear, .factor = 8.0};
  check_figures(rope_inverse_frequencies(10000.0, 8, linear, 4096),
                {{0, 0.125}, {1, 0.0125}, {2, 0.00125}, {3, 0.000125}});
  const RopeScaling dynamic{
      .kind = RopeScalingKind::Dynamic, .factor = 2.0, .original_max_positions = 2048};
  for (const std::int64_t length : {128, 2048})
    check_figures(rope_inverse_frequencies(10000.0, 8, dynamic, length),
                  {{0, 1.0}, {1, 0.1}, {2, 0.01}, {3, 0.001}});
  check_figures(rope_inverse_frequencies(10000.0, 8, dynamic, 3072),
                {{0, 1.0}, {1, 0.07937005259840998}, {2, 0.006299605249474366}, {3, 0.0005}});
}

TEST_CASE("layers carry the scaling, sliding ones with their own base do not", "[models][rope]") {
  const ModelGraph gemma = build_graph(load_preset("gemma3-4b"));
  for (const LayerGraph& layer : gemma.kinds) {
    const OpAttributes& rope = op_of(layer, OpKind::Rope).attributes;
    CHECK(rope.rope_scaling.has_value() == (layer.name == "dense"));
    CHECK(rope.rope_base == (layer.name == "dense" ? 1000000.0 : 10000.0));
  }
  const ModelGraph gpt_oss = build_graph(load_preset("gpt-oss-20b"));
  for (const LayerGraph& layer : gpt_oss.kinds)
    CHECK(op_of(layer, OpKind::Rope).attributes.rope_scaling.has_value());
}

TEST_CASE("mscale_all_dim scales the scores of latent attention alone", "[models][rope]") {
  const ModelSpec deepseek = load_preset("deepseek-v3");
  CHECK(op_of(build_graph(deepseek).kinds.front(), OpKind::LatentAttention).attributes.scale ==
        Approx(1.8738542070926265 / std::sqrt(192.0)).epsilon(1e-14));
  ModelSpec llama = load_preset("tiny-llama");
  llama.rope_scaling = deepseek.rope_scaling;
  CHECK(op_of(build_graph(llama).kinds.front(), OpKind::Attention).attributes.scale ==
        1.0 / std::sqrt(32.0));
}

TEST_CASE("norms inside latent attention have their own epsilon", "[models][rope]") {
  ModelSpec spec = load_preset("deepseek-v3");
  spec.norm_epsilon = 1e-5;
  const ModelGraph graph = build_graph(spec);
  for (const Op& op : graph.kinds.front().ops)
    if (op.kind == OpKind::RmsNorm)
      CHECK(op.attributes.epsilon ==
            (op.name.find("_low_norm") == std::string::npos ? 1e-5 : 1e-6));
}

TEST_CASE("fields of another kind of scaling and impossible bounds are refused", "[models][rope]") {
  ModelSpec spec = load_preset("tiny-llama");
  spec.rope_scaling = RopeScaling{.kind = RopeScalingKind::Linear, .factor = 2.0};
  CHECK(refusal(spec).empty());
  spec.rope_scaling->beta_fast = 16.0;
  CHECK_THAT(refusal(spec), Contains("rope_scaling.beta_fast belongs to type 'yarn'") &&
                                Contains("type is 'linear'"));
  spec.rope_scaling =
      RopeScaling{.kind = RopeScalingKind::Llama3, .factor = 8.0, .high_frequency_factor = 0.5};
  CHECK_THAT(refusal(spec), Contains("high_frequency_factor(0.5) must not be less than"));
  spec.rope_scaling = RopeScaling{.kind = RopeScalingKind::Yarn, .factor = 0.5};
  CHECK_THAT(refusal(spec), Contains("rope_scaling.factor: expected a number of at least 1"));
  spec.rope_scaling = RopeScaling{.kind = RopeScalingKind::Linear, .factor = 2.0};
  spec.positions = Positions::None;
  CHECK_THAT(refusal(spec), Contains("positions is not 'rope'"));
}

}  // namespace meshplan::models
