// Multi-token prediction: modules behind the head, which share the embedding with the other end of
// the pipeline and the output projection with the head. Any plan gives the losses of model and
// modules, the gradients and the gradient norm of one rank.
#include <catch2/catch.hpp>

#include "runtime/parity/parity_check.hpp"
#include "runtime/parity/parity_models.hpp"

namespace meshplan::test::parity_predictions {
namespace {

using models::ModelSpec;

/// A loss that is heavy enough to show in every gradient.
ModelSpec predicting(ModelSpec model, int modules) {
  model.name += fmt::format(" with {} prediction module{}", modules, modules == 1 ? "" : "s");
  model.mtp_layers = modules;
  model.mtp_loss_coefficient = 0.75;
  return model;
}

}  // namespace

TEST_CASE("every plan of a model with a prediction module gives the gradients of one rank",
          "[parity][predictions]") {
  check_every_axis("predictions", predicting(llama_style(), 1));
}

TEST_CASE("every plan of a tied model with several prediction modules gives those of one rank",
          "[parity][predictions]") {
  check_every_axis("predictions", predicting(gemma2_style(), 2));
}

TEST_CASE("every plan of a mixture with a prediction module gives the gradients of one rank",
          "[parity][predictions]") {
  check_every_axis("predictions", predicting(deepseek_style(), 1));
  ModelSpec balanced = balanced_style();
  balanced.num_layers = 4;
  check_every_axis("predictions", predicting(balanced, 1));
}

TEST_CASE("every plan of sparse attention with a prediction module gives those of one rank",
          "[parity][predictions]") {
  check_every_axis("predictions", predicting(sparse_latent_style(), 1));
}

TEST_CASE("modules are held to losses and gradients of their own", "[parity][predictions]") {
  ParityJob job{.steps = 1};
  const RunResult plain = job.run_alone(plan_on(llama_style()));
  const RunResult once = job.run_alone(plan_on(predicting(llama_style(), 1)));
  ModelSpec heavier = predicting(llama_style(), 1);
  heavier.mtp_loss_coefficient *= 2;
  const RunResult twice = job.run_alone(plan_on(heavier));
  // The main loss of the first step knows nothing of the module, and neither loss of its weight.
  CHECK(once.losses == plain.losses);
  CHECK(twice.losses == plain.losses);
  CHECK(once.prediction_losses == twice.prediction_losses);
  CHECK(once.prediction_losses.front() == Approx(plain.losses.front()).epsilon(0.1));
  // Gradients are those of loss + coefficient * L: linear in the coefficient.
  for (const auto& [name, gradient] : twice.gradients) {
    const auto main = plain.gradients.find(name);
    std::vector<double> expected = once.gradients.at(name);
    for (std::size_t i = 0; i < expected.size(); ++i)
      expected[i] = 2 * expected[i] - (main == plain.gradients.end() ? 0 : main->second[i]);
    const GradientError error = compare_gradients({{name, gradient}}, {{name, expected}});
    INFO(name);
    CHECK(error.relative <= 1e-5);
  }
}

}  // namespace meshplan::test::parity_predictions
