// Compressed sums of gradients: what the ranks do is what a slow loop on one rank does, and models
// train nearly as well as with whole gradients.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <fmt/format.h>
#include <iostream>
#include <numeric>

#include "cpu_backend.hpp"
#include "runtime/parity/parity_job.hpp"
#include "runtime/parity/parity_models.hpp"
#include "train/verify.hpp"

namespace meshplan::test::parity_compression {
namespace {

using program::CompressionKind;
using program::OptimizerKind;
using program::Region;

using Values = std::map<std::string, std::vector<float>>;

constexpr int kSteps = 4;

Plan plan_of(const models::ModelSpec& model, const ParallelConfig& parallel, CompressionKind kind,
             double ratio = 1) {
  Plan plan = parity_plan(model, parallel);
  plan.workload.optimizer.learning_rate = 3e-3;
  plan.workload.optimizer.epsilon = 1e-6;
  plan.compression = {.kind = kind, .ratio = ratio};
  return plan;
}

// ---------------------------------------------------------------- emulation on one rank

/// Plain gradient descent, so that an emulation needs no more than w -= lr g.
Plan descent(Plan plan) {
  plan.workload.optimizer = {.kind = OptimizerKind::Sgd,
                             .learning_rate = 0.5,
                             .weight_decay = 0,
                             .momentum = 0,
                             .clip_norm = 0,
                             .schedule = program::LearningRateSchedule::Constant};
  return plan;
}

/// Weights that a test holds.
class HeldWeights final : public runtime::ParameterSource {
 public:
  explicit HeldWeights(const Values& values, const std::vector<program::Parameter>& parameters)
      : values_(values), parameters_(parameters) {}
  void read(const std::string& /*state*/, const std::string& name,
            const runtime::TensorTarget& target) override {
    const auto& parameter = *std::ranges::find(parameters_, name, &program::Parameter::name);
    runtime::copy_overlap({.data = reinterpret_cast<const std::byte*>(values_.at(name).data()),
                           .dtype = DType::F32,
                           .box = runtime::whole_box(parameter.global_shape),
                           .strides = runtime::dense_strides(parameter.global_shape)},
                          target);
  }

 private:
  const Values& values_;
  const std::vector<program::Parameter>& parameters_;
};

/// Region::Weights or Gradients of a one-rank program, by parameter.
Values values_of(runtime::Trainer& trainer, Region region) {
  Values values;
  const auto* flat = reinterpret_cast<const float*>(trainer.arena().region(region));
  for (const program::Parameter& parameter : trainer.program().parameters) {
    const auto size = std::accumulate(parameter.global_shape.begin(), parameter.global_shape.end(),
                                      std::int64_t{1}, std::multiplies<>());
    values[parameter.name].assign(flat + parameter.offset, flat + parameter.offset + size);
  }
  return values;
}

/// What the others read of blocks of 256 numbers of which each is rounded to one of 255 steps; what
/// is lost stays in `error`. A gradient and its error are added first.
std::vector<float> sent(const std::vector<float>& gradient, std::vector<float>& error,
                        bool feedback) {
  constexpr std::size_t kBlock = 256;
  std::vector<float> read(gradient.size());
  error.resize(gradient.size(), 0.0F);
  for (std::size_t begin = 0; begin < gradient.size(); begin += kBlock) {
    const std::size_t end = std::min(gradient.size(), begin + kBlock);
    float largest = 0;
    for (std::size_t i = begin; i < end; ++i)
      largest = std::max(largest, std::abs(gradient[i] + error[i]));
    const float step = largest / 127;
    for (std::size_t i = begin; i < end; ++i) {
      const float wanted = gradient[i] + error[i];
      read[i] = step == 0 ? 0 : std::nearbyint(wanted * (1 / step)) * step;
      error[i] = feedback ? wanted - read[i] : 0;
    }
  }
  return read;
}

/// What `replicas` ranks do, played one after the other.
struct Emulation {
  Plan plan;
  int replicas = 1;

  Values run(int num_steps, bool feedback, runtime::Communicator& self,
             kernels::Backend& backend) const {
    runtime::HostDevice device(backend);
    runtime::Trainer trainer(program::lower(of_one_replica(), 0), std::nullopt, self, device,
                             /*seed=*/7, nullptr);
    Values weights = values_of(trainer, Region::Weights);
    std::vector<Values> errors(static_cast<std::size_t>(replicas));
    Values sum_errors;
    for (int step = 0; step < num_steps; ++step)
      for (auto& [name, sum] : sums(trainer, weights, errors, feedback)) {
        // With ZeRO an owner has the sum itself; experts on one rank each are summed nowhere.
        const bool whole = plan.zero_stage > 0 || (is_expert(trainer, name) && on_one_rank());
        const auto read = whole ? sum : sent(sum, sum_errors[name], feedback);
        const auto rate = static_cast<float>(plan.workload.optimizer.learning_rate);
        auto& weight = weights[name];
        for (std::size_t i = 0; i < read.size(); ++i) weight[i] -= rate * read[i];
      }
    return weights;
  }

 private:
  bool on_one_rank() const { return plan.parallel.ep == replicas; }
  static bool is_expert(runtime::Trainer& trainer, const std::string& name) {
    return std::ranges::find(trainer.program().parameters, name, &program::Parameter::name)->expert;
  }
  Plan of_one_replica() const {
    Plan one = plan;
    one.parallel = {};
    one.compression = {};
    one.zero_stage = 0;
    one.workload.global_batch_size /= replicas;
    return one;
  }

  /// Gradients of every replica's sequences; the mean is over those of all.
  std::vector<Values> gradients(runtime::Trainer& trainer, const Values& weights) const {
    std::vector<Values> all;
    for (int replica = 0; replica < replicas; ++replica) {
      HeldWeights source(weights, trainer.program().parameters);
      trainer.load(source, runtime::LoadedState::WeightsOnly);
      trainer.train_step(parity_batch(plan, {.dp = replica}),
                         {.optimizer_step = 1, .learning_rate = 0});
      all.push_back(values_of(trainer, Region::Gradients));
      for (auto& [name, gradient] : all.back())
        for (float& value : gradient) value /= static_cast<float>(replicas);
    }
    return all;
  }

  Values sums(runtime::Trainer& trainer, const Values& weights, std::vector<Values>& errors,
              bool feedback) const {
    const std::vector<Values> own = gradients(trainer, weights);
    Values all;
    for (const program::Parameter& parameter : trainer.program().parameters) {
      // An expert meets the rows of `ep` neighbours before anything is compressed.
      const int together = parameter.expert ? plan.parallel.ep : 1;
      for (int first = 0; first < replicas; first += together) {
        std::vector<float> gradient = own[static_cast<std::size_t>(first)].at(parameter.name);
        for (int other = first + 1; other < first + together; ++other)
          add(gradient, own[static_cast<std::size_t>(other)].at(parameter.name));
        auto& sum = all[parameter.name];
        sum.resize(gradient.size(), 0.0F);
        if (together == replicas)
          add(sum, gradient);  // nothing to send
        else
          add(sum,
              sent(gradient, errors[static_cast<std::size_t>(first)][parameter.name], feedback));
      }
    }
    return all;
  }

  static void add(std::vector<float>& sum, const std::vector<float>& values) {
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += values[i];
  }
};

/// All parameters, one after another.
template <class T>
std::vector<double> flat(const std::map<std::string, std::vector<T>>& values) {
  std::vector<double> all;
  for (const auto& [name, own] : values) all.insert(all.end(), own.begin(), own.end());
  return all;
}

/// ||a - b|| / ||b - start||: of the way that training went.
double distance(const std::vector<double>& a, const std::vector<double>& b,
                const std::vector<double>& start) {
  REQUIRE(a.size() == b.size());
  REQUIRE(start.size() == b.size());
  double difference = 0, way = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    difference += std::pow(a[i] - b[i], 2);
    way += std::pow(b[i] - start[i], 2);
  }
  return std::sqrt(difference / way);
}

// ---------------------------------------------------------------- on the ranks

/// Seeded: what is lost is forgotten.
class ForgetfulBackend final : public kernels::CpuBackend {
 public:
  ForgetfulBackend() : CpuBackend(1, kernels::best_cpu_isa()) {}
  void run(const kernels::Operation& operation) override {
    kernels::Operation wrong = operation;
    if (auto* quantize = std::get_if<kernels::QuantizeInt8>(&wrong)) quantize->error = nullptr;
    CpuBackend::run(wrong);
  }
};

/// @throws SharedError if ranks that hold the same hold other bits
void verify_after_steps(ParityJob& fixture, const Plan& plan) {
  const auto group = fixture.first_ranks(plan);
  if (group == nullptr) return;
  runtime::HostDevice device(*fixture.backend);
  runtime::Trainer trainer(program::lower(plan, runtime::stage_of(plan, group->rank())),
                           std::nullopt, *group, device, /*seed=*/7, nullptr);
  runtime::ReplicaVerifier verifier(trainer, *group);
  for (int step = 1; step <= fixture.steps; ++step)
    trainer.train_step(parity_batch(plan, trainer.groups().coordinates()),
                       {.optimizer_step = step, .learning_rate = 3e-3});
  CHECK_NOTHROW(verifier.verify("after the last step"));
}

}  // namespace

TEST_CASE("ranks compress to int8 as a slow loop does, errors fed back", "[compression]") {
  ParityJob fixture;
  const auto self = fixture.alone();
  // Every token visits every expert: a choice would jump where a bit of rounding tips a near tie.
  models::ModelSpec all_experts = mixtral_style();
  all_experts.moe->top_k = all_experts.moe->num_experts;
  struct Case {
    models::ModelSpec model;
    ParallelConfig parallel;
    int zero_stage = 0;
  };
  for (const Case& one :
       {Case{llama_style(), {.dp = 2}}, Case{llama_style(), {.dp = 4}},
        Case{llama_style(), {.dp = 2}, 1}, Case{gpt2_style(), {.dp = 2}},
        Case{gpt2_style(), {.dp = 4}}, Case{gpt2_style(), {.dp = 2}, 1},
        Case{all_experts, {.dp = 4, .ep = 2}}, Case{all_experts, {.dp = 4, .ep = 2}, 1},
        Case{all_experts, {.dp = 2, .ep = 2}}}) {
    Plan plan = descent(plan_of(one.model, one.parallel, CompressionKind::Int8));
    plan.zero_stage = one.zero_stage;
    // An expert's product adds the rows of ep ranks in another order than the loop does: numbers
    // in the middle between two steps of int8 then round otherwise, here and there, each step's
    // tipping some ten times as many in the next. Errors are fed back from the second step on.
    fixture.steps = one.parallel.ep > 1 ? 2 : kSteps;
    const auto run = fixture.run(plan);
    if (!run) continue;
    const Emulation emulation{.plan = plan, .replicas = one.parallel.dp};
    const Values start = emulation.run(0, true, *self, *fixture.backend);
    const Values expected = emulation.run(fixture.steps, true, *self, *fixture.backend);
    const Values forgetful = emulation.run(fixture.steps, false, *self, *fixture.backend);
    INFO(one.model.name << " " << to_string(one.parallel) << " zero " << one.zero_stage);
    const double error = distance(flat(run->weights), flat(expected), flat(start));
    const double without = distance(flat(run->weights), flat(forgetful), flat(start));
    if (fixture.world->rank() == 0)
      std::cout << fmt::format(
          "{} {} zero {}: int8 against the emulation {:.2e}, without feedback {:.2e}\n",
          one.model.name, to_string(one.parallel), one.zero_stage, error, without);
    CHECK(error <= (one.parallel.ep > 1 ? 1e-3 : 1e-4));
    CHECK(without >= (one.parallel.ep > 1 ? 5e-3 : 1e-3));
  }
}

TEST_CASE("a backend that forgets what it lost is seen", "[compression]") {
  ParityJob fixture{.steps = kSteps};
  const auto self = fixture.alone();
  const Plan plan = descent(plan_of(llama_style(), {.dp = 2}, CompressionKind::Int8));
  ForgetfulBackend forgetful;
  const auto run = fixture.run(plan, {}, {}, &forgetful);
  if (!run) return;
  const Emulation emulation{.plan = plan, .replicas = 2};
  const Values start = emulation.run(0, true, *self, *fixture.backend);
  const Values expected = emulation.run(fixture.steps, true, *self, *fixture.backend);
  CHECK(distance(flat(run->weights), flat(expected), flat(start)) >= 1e-3);
}

namespace {

struct SumCase {
  models::ModelSpec model;
  ParallelConfig parallel;
  std::vector<int> zero_stages = {0, 1};
  DType precision = DType::F32;
  int shard_group = 0;
};

std::vector<SumCase> sum_cases() {
  std::vector<SumCase> cases;
  for (const ParallelConfig& parallel :
       {ParallelConfig{.dp = 4}, ParallelConfig{.tp = 2, .dp = 2, .sp = true},
        ParallelConfig{.tp = 2, .dp = 2}, ParallelConfig{.pp = 2, .dp = 2},
        ParallelConfig{.cp = 2, .dp = 2}})
    cases.push_back({llama_style(), parallel});
  cases.push_back({gpt2_style(), {.dp = 4}});
  cases.push_back({gpt2_style(), {.tp = 2, .dp = 2, .sp = true}});
  models::ModelSpec one_key_head = llama_style();
  one_key_head.num_kv_heads = 1;
  cases.push_back({one_key_head, {.tp = 2, .dp = 2}});
  cases.push_back({llama_style(), {.dp = 4}, {0, 1}, DType::F16});
  cases.push_back({llama_style(), {.dp = 4}, {2, 3}});
  cases.push_back({gpt2_style(), {.tp = 2, .dp = 2, .sp = true}, {2}});
  cases.push_back({one_key_head, {.tp = 2, .dp = 2}, {3}});
  cases.push_back({llama_style(), {.pp = 2, .dp = 2}, {2}, DType::F16});
  cases.push_back({llama_style(), {.dp = 4}, {1, 2, 3}, DType::F32, 2});
  cases.push_back({mixtral_style(), {.dp = 4, .ep = 2}, {2}});
  cases.push_back({mixtral_style(), {.dp = 4}, {3}, DType::F32, 2});
  cases.push_back({mixtral_style(), {.dp = 4, .ep = 2}});
  cases.push_back({mixtral_style(), {.dp = 4, .ep = 4}, {1}});
  cases.push_back({mixtral_style(), {.dp = 4, .etp = 2}, {0}});
  cases.push_back({gpt_oss_style(), {.dp = 4, .etp = 2}, {0, 1}});
  cases.push_back({mixtral_style(), {.tp = 2, .dp = 2, .ep = 2, .sp = true}, {0}});
  cases.push_back({mixtral_style(), {.cp = 2, .dp = 2, .ep = 2}, {1}});
  return cases;
}

}  // namespace

TEST_CASE("top-k of everything is the whole sum, and int8 is near it", "[compression]") {
  ParityJob fixture{.steps = kSteps};
  for (const SumCase& one : sum_cases())
    for (const int zero_stage : one.zero_stages) {
      const auto plan = [&](CompressionKind kind) {
        Plan made = plan_of(one.model, one.parallel, kind, 1);
        made.zero_stage = zero_stage;
        made.zero_shard_group = one.shard_group;
        made.workload.precision = one.precision;
        return made;
      };
      const auto whole = fixture.run(plan(CompressionKind::None));
      const auto all = fixture.run(plan(CompressionKind::TopK));
      const auto int8 = fixture.run(plan(CompressionKind::Int8));
      if (!whole) continue;
      INFO(one.model.name << " " << to_string(one.parallel) << " zero " << zero_stage);
      CHECK(compare_gradients(*all, *whole).relative <= 1e-6);
      // What ZeRO-2 sends is added to earlier micro-batches' in another order: fp16 weights then
      // round otherwise, here and there.
      const double rounding = one.precision == DType::F16 ? 0x1p-11 : 1e-5;
      CHECK(compare_gradients(all->weights, whole->weights).relative <= rounding);
      // A number is at most half a step from what is sent, and its block's largest is 127 steps.
      // Where values are normal and the largest is about 3 deviations, the errors, uniform in a
      // step, have 3 / 127 / sqrt(12) of the norm. Values are compressed twice, and a parameter of
      // few elements may have a few times that error.
      const double error = compare_gradients(*int8, *whole, 1e-2).relative;
      CHECK(error <= 0.05);
      CHECK(error >= 1e-4);
    }
}

TEST_CASE("tp ranks that hold the same compress it alike", "[compression]") {
  ParityJob fixture{.steps = kSteps};
  for (const auto kind : {CompressionKind::Int8, CompressionKind::TopK})
    for (models::ModelSpec model : {gpt2_style(), llama_style()}) {
      verify_after_steps(fixture, plan_of(model, {.tp = 2, .dp = 2}, kind, 0.05));
      model.num_kv_heads = 1;  // rows that both ranks hold beside rows of their own
      verify_after_steps(fixture, plan_of(model, {.tp = 2, .dp = 2}, kind, 0.05));
    }
}

namespace {

/// Everything that a step changes.
std::vector<double> state_after(ParityJob& fixture, kernels::Backend& backend, const Plan& plan,
                                const std::vector<double>& loss_scales, bool with_errors = true) {
  runtime::HostDevice device(backend);
  runtime::Trainer trainer(program::lower(plan, runtime::stage_of(plan, fixture.world->rank())),
                           std::nullopt, *fixture.world, device, /*seed=*/7, nullptr);
  const auto batch = parity_batch(plan, trainer.groups().coordinates());
  int step = 1;
  for (const double scale : loss_scales) {
    const auto outcome = trainer.train_step(
        batch, {.optimizer_step = step, .learning_rate = 3e-3, .loss_scale = scale});
    if (std::isfinite(outcome.gradient_norm)) ++step;
  }
  std::vector<double> state;
  for (const Region region : {Region::MasterWeights, Region::Moment1, Region::Moment2,
                              Region::CompressionErrors, Region::SumErrors}) {
    if (!with_errors && region != Region::MasterWeights) continue;
    const auto& memory = trainer.program().memory.regions[static_cast<std::size_t>(region)];
    const auto* values = reinterpret_cast<const float*>(trainer.arena().region(region));
    state.insert(state.end(), values, values + memory.bytes() / size_of(DType::F32));
  }
  return state;
}

/// Seeded: errors are in the units of the step that they are of.
class ScaledErrors final : public kernels::CpuBackend {
 public:
  ScaledErrors() : CpuBackend(1, kernels::best_cpu_isa()) {}
  void run(const kernels::Operation& operation) override {
    kernels::Operation wrong = operation;
    if (auto* quantize = std::get_if<kernels::QuantizeInt8>(&wrong)) quantize->unit = {};
    CpuBackend::run(wrong);
  }
};

std::vector<Plan> half_plans() {
  std::vector<Plan> plans;
  for (const auto kind : {CompressionKind::Int8, CompressionKind::TopK})
    for (const int zero_stage : {0, 1}) {
      plans.push_back(plan_of(llama_style(), {.dp = 4}, kind, 0.1));
      plans.back().workload.precision = DType::F16;
      plans.back().zero_stage = zero_stage;
    }
  plans.push_back(plan_of(mixtral_style(), {.dp = 4, .ep = 2}, CompressionKind::Int8));
  plans.back().workload.precision = DType::F16;
  plans.push_back(plan_of(llama_style(), {.dp = 4}, CompressionKind::Int8));
  plans.back().workload.precision = DType::F16;
  plans.back().zero_stage = 2;
  plans.push_back(plans.back());
  plans.back().zero_stage = 3;
  plans.back().zero_shard_group = 2;
  return plans;
}

}  // namespace

TEST_CASE("a step that fp16 skips leaves what was lost as it was", "[compression][fp16]") {
  ParityJob fixture{.steps = kSteps};
  for (const Plan& plan : half_plans()) {
    INFO(plan.model.name << " " << to_string(plan.parallel) << " zero " << plan.zero_stage);
    const auto run = [&](const std::vector<double>& scales) {
      return state_after(fixture, *fixture.backend, plan, scales);
    };
    const auto skipped = run({0x1p16, 0x1p40, 0x1p16});
    const auto expected = run({0x1p16, 0x1p16});
    REQUIRE(skipped.size() == expected.size());
    const auto first = std::ranges::mismatch(skipped, expected).in1 - skipped.begin();
    CHECK(first == std::ssize(skipped));  // else the first element that differs
  }
}

TEST_CASE("what was lost counts alike under another loss scale", "[compression][fp16]") {
  ParityJob fixture{.steps = kSteps};
  Plan plan = descent(plan_of(llama_style(), {.dp = 4}, CompressionKind::Int8));
  plan.workload.precision = DType::F16;
  const auto run = [&](kernels::Backend& backend, const std::vector<double>& scales) {
    return state_after(fixture, backend, plan, scales, /*with_errors=*/false);
  };
  const auto start = run(*fixture.backend, {});
  const auto same = run(*fixture.backend, {0x1p16, 0x1p16, 0x1p16, 0x1p16});
  const std::vector<double> scales = {0x1p16, 0x1p12, 0x1p8, 0x1p12};
  const double error = distance(run(*fixture.backend, scales), same, start);
  ScaledErrors wrong;
  const double in_other_units = distance(run(wrong, scales), same, start);
  if (fixture.world->rank() == 0)
    std::cout << fmt::format("other loss scales: {:.2e}, errors in their units {:.2e}\n", error,
                             in_other_units);
  CHECK(error <= 5e-3);
  CHECK(in_other_units >= 10 * error);
}

TEST_CASE("with error feedback training converges as without compression", "[compression]") {
  ParityJob fixture{.steps = 40};
  const ParallelConfig mesh{.dp = 4};
  const auto whole = fixture.run(plan_of(llama_style(), mesh, CompressionKind::None));
  const auto int8 = fixture.run(plan_of(llama_style(), mesh, CompressionKind::Int8));
  const auto top_k = fixture.run(plan_of(llama_style(), mesh, CompressionKind::TopK, 0.25));
  if (!whole) return;
  const double fallen = whole->losses.front() - whole->losses.back();
  if (fixture.world->rank() == 0)
    std::cout << fmt::format("loss {:.4f} -> {:.4f} whole, {:.4f} int8, {:.4f} top-k of 25 %\n",
                             whole->losses.front(), whole->losses.back(), int8->losses.back(),
                             top_k->losses.back());
  REQUIRE(fallen > 1);
  CHECK(std::abs(int8->losses.back() - whole->losses.back()) <= 0.01 * fallen);
  CHECK(std::abs(top_k->losses.back() - whole->losses.back()) <= 0.1 * fallen);
}

}  // namespace meshplan::test::parity_compression
