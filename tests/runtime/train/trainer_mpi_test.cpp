// One rank's optimizer steps against a slow fp64 reference, and evaluation against training.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <optional>
#include <vector>

#include "comm/host_communicator.hpp"
#include "core/hash.hpp"
#include "kernels/cpu_backend.hpp"
#include "mpi_test_session.hpp"
#include "program/lower/lower.hpp"
#include "runtime/first_ranks.hpp"
#include "runtime/parity/parity_support.hpp"
#include "train/trainer.hpp"

namespace meshplan::test {
namespace {

using program::OptimizerKind;
using program::ParallelConfig;
using program::Plan;
using program::Region;
using runtime::StepBatch;
using runtime::Trainer;

Plan make_plan(const models::ModelSpec& model) {
  Plan plan;
  plan.model = model;
  plan.workload.seq_len = 16;
  plan.workload.global_batch_size = 4;
  return plan;
}

/// A fixed function of step, sequence and position.
StepBatch make_batch(const Plan& plan, int dp_rank, std::int64_t step) {
  const auto token = [&](std::int64_t sequence, std::int64_t t) {
    return static_cast<std::int32_t>((sequence * 31 + t * t * 7 + step * 13 + t) %
                                     plan.model.vocab_size);
  };
  StepBatch batch;
  for (int m = 0; m < plan.num_microbatches(); ++m)
    for (int i = 0; i < plan.micro_batch_size; ++i) {
      const std::int64_t sequence = (m * plan.parallel.dp + dp_rank) * plan.micro_batch_size + i;
      for (std::int64_t t = 0; t < plan.workload.seq_len; ++t) {
        batch.ids.push_back(token(sequence, t));
        batch.targets.push_back(token(sequence, t + 1));
      }
    }
  return batch;
}

std::vector<double> region_values(const Trainer& trainer, Region region) {
  const auto* values = reinterpret_cast<const float*>(trainer.arena().region(region));
  return {values, values + trainer.program().parameter_elements};
}

// ---------------------------------------------------------------- the slow reference

struct Reference {
  std::vector<double> weights;
  std::vector<double> moment1;
  std::vector<double> moment2;
};

/// Norm over the parameters, without the gaps between them.
double gradient_norm(const program::Program& program, const std::vector<double>& gradients) {
  double sum = 0;
  for (const program::Parameter& p : program.parameters)
    for (std::int64_t i = 0; i < p.elements(); ++i) {
      const double g = gradients[static_cast<std::size_t>(p.offset + i)];
      sum += g * g;
    }
  return std::sqrt(sum);
}

/// Kingma & Ba 2015, algorithm 1 (Adam with L2: decay joins the gradient); Loshchilov & Hutter
/// 2019, algorithm 2 (AdamW); SGD with momentum as PyTorch writes it.
void update(const program::OptimizerConfig& c, int t, double decay, double g, double& w, double& m,
            double& v) {
  if (c.kind != OptimizerKind::AdamW) g += decay * w;
  if (c.kind == OptimizerKind::Sgd) {
    m = c.momentum * m + g;
    w -= c.learning_rate * m;
    return;
  }
  m = c.beta1 * m + (1 - c.beta1) * g;
  v = c.beta2 * v + (1 - c.beta2) * g * g;
  const double m_hat = m / (1 - std::pow(c.beta1, t));
  const double v_hat = v / (1 - std::pow(c.beta2, t));
  const double decoupled = c.kind == OptimizerKind::AdamW ? decay * w : 0.0;
  w -= c.learning_rate * (m_hat / (std::sqrt(v_hat) + c.epsilon) + decoupled);
}

void reference_step(const program::Program& program, int t, const std::vector<double>& gradients,
                    Reference& reference) {
  const program::OptimizerConfig& c = program.plan.workload.optimizer;
  const double norm = gradient_norm(program, gradients);
  const double clip = c.clip_norm > 0 ? std::min(1.0, c.clip_norm / (norm + 1e-6)) : 1.0;
  for (const program::Parameter& p : program.parameters) {
    const double decay = p.global_shape.size() > 1 ? c.weight_decay : 0.0;  // matrices only
    for (std::int64_t k = 0; k < p.elements(); ++k) {
      const auto i = static_cast<std::size_t>(p.offset + k);
      update(c, t, decay, clip * gradients[i], reference.weights[i], reference.moment1[i],
             reference.moment2[i]);
    }
  }
}

double largest(const std::vector<double>& values) {
  double most = 0;
  for (const double value : values) most = std::max(most, std::abs(value));
  return most;
}

/// Largest |a - b|, less what a few roundings of fp32 explain.
double worst_error(const std::vector<double>& a, const std::vector<double>& b) {
  constexpr double kRoundings = 32 * 6e-8;
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    worst = std::max(worst, std::abs(a[i] - b[i]) - kRoundings * std::abs(b[i]));
  return worst;
}

void check_optimizer(const Plan& plan, runtime::Communicator& alone, bool clips) {
  const auto backend = kernels::make_cpu_backend(1);
  runtime::HostDevice device(*backend);
  Trainer trainer(program::lower(plan, 0), std::nullopt, alone, device, 5, nullptr);
  Reference reference{.weights = region_values(trainer, Region::Weights)};
  reference.moment1.assign(reference.weights.size(), 0.0);
  reference.moment2.assign(reference.weights.size(), 0.0);
  const std::vector<double> initial = reference.weights;
  const program::OptimizerConfig& optimizer = plan.workload.optimizer;
  for (int t = 1; t <= 3; ++t) {
    const runtime::StepOutcome outcome = trainer.train_step(
        make_batch(plan, 0, t), {.optimizer_step = t, .learning_rate = optimizer.learning_rate});
    const std::vector<double> gradients = region_values(trainer, Region::Gradients);
    const double norm = gradient_norm(trainer.program(), gradients);
    INFO("step " << t << " norm " << norm);
    CHECK(outcome.gradient_norm == Approx(norm).epsilon(1e-6));
    CHECK((optimizer.clip_norm > 0 && norm > optimizer.clip_norm) == clips);
    reference_step(trainer.program(), t, gradients, reference);
    // Where gradient and decay cancel, Adam's quotient keeps few digits: hence lr, not the weight.
    CHECK(worst_error(region_values(trainer, Region::Weights), reference.weights) <
          1e-4 * optimizer.learning_rate);
    CHECK(worst_error(region_values(trainer, Region::Moment1), reference.moment1) <
          1e-5 * largest(reference.moment1));
    if (optimizer.kind != OptimizerKind::Sgd)
      CHECK(worst_error(region_values(trainer, Region::Moment2), reference.moment2) <
            1e-5 * largest(reference.moment2));
  }
  CHECK(worst_error(initial, reference.weights) > 0.01 * optimizer.learning_rate);  // they moved
}

}  // namespace

TEST_CASE("three steps move the weights as the papers' formulas do in fp64", "[optimizer]") {
  const auto world = runtime::make_host_world(mpi_session(), {});
  const int self = world->rank();
  const auto alone = world->create_group(std::span(&self, 1), "alone");
  for (models::ModelSpec model : {llama_style(), gpt2_style()})
    for (const OptimizerKind kind : {OptimizerKind::AdamW, OptimizerKind::Adam, OptimizerKind::Sgd})
      for (const double clip_norm : {0.01, 1e4, 0.0}) {
        model.num_layers = 1;
        Plan plan = make_plan(model);
        plan.workload.optimizer.kind = kind;
        plan.workload.optimizer.clip_norm = clip_norm;
        plan.workload.optimizer.learning_rate = kind == OptimizerKind::Sgd ? 0.5 : 1e-2;
        plan.workload.optimizer.epsilon = 1e-6;
        plan.workload.optimizer.weight_decay = 0.2;
        INFO(model.name << " optimizer " << static_cast<int>(kind) << " clip " << clip_norm);
        check_optimizer(plan, *alone, clip_norm == 0.01);
      }
}

// ---------------------------------------------------------------- evaluation

namespace {

std::uint64_t hash_of(const Trainer& trainer, Region region) {
  const auto bytes = trainer.program().memory.regions[static_cast<std::size_t>(region)].bytes();
  return content_hash(std::span(trainer.arena().region(region), static_cast<std::size_t>(bytes)));
}

std::vector<std::uint64_t> state_of(const Trainer& trainer) {
  std::vector<std::uint64_t> hashes;
  for (const Region region : {Region::Weights, Region::MasterWeights, Region::Moment1,
                              Region::Moment2, Region::Gradients})
    hashes.push_back(hash_of(trainer, region));
  return hashes;
}

void check_evaluation(const Plan& plan, runtime::Communicator& group) {
  const auto backend = kernels::make_cpu_backend(1);
  runtime::HostDevice device(*backend);
  const int stage = runtime::stage_of(plan, group.rank());
  Trainer trainer(program::lower(plan, stage),
                  program::lower(plan, stage, program::Pass::ForwardOnly), group, device, 5,
                  nullptr);
  const int dp_rank = trainer.groups().coordinates().dp;
  std::vector<double> losses;
  for (int step = 1; step <= 3; ++step) {
    const StepBatch batch = make_batch(plan, dp_rank, step);
    const auto before = state_of(trainer);
    const double evaluated = trainer.evaluate(batch);
    const double again = trainer.evaluate(batch);
    CHECK(state_of(trainer) == before);
    CHECK(again == evaluated);
    const double trained =
        trainer.train_step(batch, {.optimizer_step = step, .learning_rate = 1e-2}).loss;
    INFO("step " << step);
    CHECK(evaluated == trained);  // the same kernels in the same order
    CHECK(state_of(trainer) != before);
    losses.push_back(trained);
  }
  // A model that knows nothing: ln(vocabulary), 5.70 for 300.
  CHECK(losses.front() == Approx(std::log(plan.model.vocab_size)).epsilon(0.05));
  CHECK(losses[0] != losses[1]);
}

}  // namespace

TEST_CASE("evaluation gives the training loss of the same weights and changes nothing",
          "[evaluation]") {
  const auto world = runtime::make_host_world(mpi_session(), {});
  for (const models::ModelSpec& model : {llama_style(), gpt2_style()})
    for (const DType precision : {DType::F32, DType::BF16})
      for (const ParallelConfig& parallel :
           {ParallelConfig{}, ParallelConfig{.tp = 2}, ParallelConfig{.tp = 2, .sp = true},
            ParallelConfig{.pp = 2}, ParallelConfig{.dp = 2}, ParallelConfig{.pp = 4},
            ParallelConfig{.tp = 2, .pp = 2}, ParallelConfig{.tp = 2, .dp = 2, .sp = true},
            ParallelConfig{.pp = 2, .dp = 2}, ParallelConfig{.dp = 4}}) {
        if (parallel.world_size() > world->size()) continue;
        Plan plan = make_plan(model);
        plan.parallel = parallel;
        plan.workload.precision = precision;
        const auto group = first_ranks(*world, parallel.world_size());
        if (group == nullptr) continue;
        INFO(model.name << " " << program::to_string(parallel) << " " << name_of(precision));
        check_evaluation(plan, *group);
      }
}

TEST_CASE("all plans evaluate a batch alike", "[evaluation]") {
  const auto world = runtime::make_host_world(mpi_session(), {});
  const auto loss_of = [](const Plan& plan, runtime::Communicator& group) {
    const auto backend = kernels::make_cpu_backend(1);
    runtime::HostDevice device(*backend);
    const int stage = runtime::stage_of(plan, group.rank());
    Trainer trainer(program::lower(plan, stage),
                    program::lower(plan, stage, program::Pass::ForwardOnly), group, device, 5,
                    nullptr);
    return trainer.evaluate(make_batch(plan, trainer.groups().coordinates().dp, 1));
  };
  const int self = world->rank();
  const auto alone = world->create_group(std::span(&self, 1), "alone");
  Plan plan = make_plan(llama_style());
  const double expected = loss_of(plan, *alone);
  for (const ParallelConfig& parallel :
       {ParallelConfig{.tp = 2}, ParallelConfig{.pp = 2}, ParallelConfig{.dp = 2},
        ParallelConfig{.tp = 2, .pp = 2}, ParallelConfig{.tp = 2, .dp = 2, .sp = true}}) {
    if (parallel.world_size() > world->size()) continue;
    plan.parallel = parallel;
    const auto group = first_ranks(*world, parallel.world_size());
    if (group != nullptr) CHECK(loss_of(plan, *group) == Approx(expected).epsilon(1e-6));
  }
}

}  // namespace meshplan::test
