// What a resumed run may not change unsaid: every setting by itself, both ways.
#include "runtime/train/kept_settings.hpp"

#include <catch2/catch.hpp>
#include <functional>

#include "core/error.hpp"

namespace meshplan::runtime {
namespace {

using Catch::Matchers::Contains;
using program::Plan;

struct Run {
  Plan plan;
  std::uint64_t seed = 1;
  std::optional<RunSettings> settings = RunSettings{.num_steps = 20};

  RunConfiguration configuration() const { return {plan, seed, settings}; }
};

/// @returns why `now` cannot continue `before`; empty = it can
std::string refusal(const Run& before, const Run& now, const std::vector<std::string>& asked = {}) {
  try {
    check_settings(before.configuration(), now.configuration(), "c/step-10", asked);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

struct Changed {
  const char* name;
  std::function<void(Run&)> change;
  const char* as_before;                         // what to type to go on as before
  std::function<void(Run&)> both = [](Run&) {};  // what makes the setting apply
};

const auto with_sgd = [](Run& run) {
  run.plan.workload.optimizer.kind = program::OptimizerKind::Sgd;
};
const auto in_half = [](Run& run) { run.plan.workload.precision = DType::F16; };
program::OptimizerConfig& optimizer_of(Run& run) {
  return run.plan.workload.optimizer;
}

const std::vector<Changed> kChangeable = {
    {"learning_rate", [](Run& r) { optimizer_of(r).learning_rate = 1e-4; },
     "--learning-rate 0.0003"},
    {"schedule", [](Run& r) { optimizer_of(r).schedule = program::LearningRateSchedule::Constant; },
     "--lr-schedule cosine"},
    {"warmup_steps", [](Run& r) { optimizer_of(r).warmup_steps = 3; }, "--warmup-steps 0"},
    {"decay_steps", [](Run& r) { optimizer_of(r).decay_steps = 40; }, "--decay-steps 20"},
    {"decay_steps", [](Run& r) { r.settings->num_steps = 15; }, "--decay-steps 20"},
    {"minimum_ratio", [](Run& r) { optimizer_of(r).minimum_ratio = 0.5; }, "--min-lr-ratio 0.1"},
    {"beta1", [](Run& r) { optimizer_of(r).beta1 = 0.5; }, "--beta1 0.9"},
    {"beta2", [](Run& r) { optimizer_of(r).beta2 = 0.5; }, "--beta2 0.95"},
    {"epsilon", [](Run& r) { optimizer_of(r).epsilon = 1e-6; }, "--epsilon 1e-08"},
    {"momentum", [](Run& r) { optimizer_of(r).momentum = 0.5; }, "--momentum 0.9", with_sgd},
    {"weight_decay", [](Run& r) { optimizer_of(r).weight_decay = 0; }, "--weight-decay 0.1"},
    {"clip_norm", [](Run& r) { optimizer_of(r).clip_norm = 0; }, "--clip-norm 1"},
    {"precision", [](Run& r) { r.plan.workload.precision = DType::BF16; },
     "a plan with precision fp32"},
    {"loss_scale_growth", [](Run& r) { r.settings->loss_scaling.growth = 4; },
     "--loss-scale-growth 2", in_half},
    {"loss_scale_backoff", [](Run& r) { r.settings->loss_scaling.backoff = 0.25; },
     "--loss-scale-backoff 0.5", in_half},
    {"loss_scale_interval", [](Run& r) { r.settings->loss_scaling.growth_interval = 5; },
     "--loss-scale-interval 2000", in_half},
    {"frozen", [](Run& r) { r.plan.frozen = {"embedding"}; }, "a plan with frozen none"},
    {"frozen", [](Run& r) { r.plan.frozen.clear(); }, "--freeze embedding,head",
     [](Run& r) {
       r.plan.frozen = {"embedding", "head"};
     }},
    {"compression", [](Run& r) { r.plan.compression.kind = program::CompressionKind::Int8; },
     "a plan with compression none"},
    {"compression", [](Run& r) { r.plan.compression.ratio = 0.5; },
     "a plan with compression top-k 0.01",
     [](Run& r) { r.plan.compression.kind = program::CompressionKind::TopK; }}};

}  // namespace

TEST_CASE("a changed setting is refused with what to type, and taken when it is asked for by name",
          "[runtime][kept_settings]") {
  std::vector<std::string> seen;
  for (const Changed& changed : kChangeable) {
    Run before;
    changed.both(before);
    Run now = before;
    changed.change(now);
    INFO(changed.name);
    CHECK(refusal(before, before).empty());
    const std::string said = refusal(before, now);
    CHECK_THAT(said, Contains(std::string("c/step-10: ") + changed.name + " is ") &&
                         Contains(std::string("go on as before with ") + changed.as_before + ",") &&
                         Contains(std::string("--change ") + changed.name + ","));
    CHECK(refusal(before, now, {changed.name}).empty());
    CHECK(refusal(before, before, {changed.name}).empty());  // a restart by the same command
    CHECK(changed_settings(before.configuration(), now.configuration()).size() == 1);
    if (seen.empty() || seen.back() != changed.name) seen.emplace_back(changed.name);
  }
  CHECK(seen == changeable_settings());
}

TEST_CASE("what no run can go on with is refused, whatever is asked for", "[kept_settings]") {
  const std::pair<const char*, std::function<void(Run&)>> changes[] = {
      {"optimizer is adamw so far, but sgd now (their states do not convert): use a plan with "
       "optimizer adamw",
       with_sgd},
      {"seed is 1 so far, but 7 now (the place in the data would be another): use --seed 1",
       [](Run& r) { r.seed = 7; }},
      {"seq_len is 0 so far, but 8 now", [](Run& r) { r.plan.workload.seq_len = 8; }},
      {"global_batch_size is 0 so far, but 8 now",
       [](Run& r) { r.plan.workload.global_batch_size = 8; }},
      {"packed is off so far, but on now (its sequences would hold other tokens)",
       [](Run& r) { r.plan.workload.documents.packed = true; }},
      {"end_of_document is none so far, but 3 now",
       [](Run& r) { r.plan.workload.documents.end_of_document = 3; }},
      {"pad_multiple is 1 so far, but 4 now",
       [](Run& r) { r.plan.workload.documents.pad_multiple = 4; }}};
  for (const auto& [said, change] : changes) {
    Run now;
    change(now);
    optimizer_of(now).clip_norm = 3;
    CHECK_THAT(refusal({}, now, {"clip_norm"}),
               Contains(said) && Contains("or start a new run from the weights with --init-from"));
  }
  CHECK_THAT(refusal({}, {}, {"seed"}), Contains("--change: unknown setting 'seed'"));
  CHECK_THAT(refusal({}, {}, {"decay-steps"}), Contains("did you mean 'decay_steps'?"));
}

TEST_CASE("several changes are one message", "[kept_settings]") {
  Run now;
  optimizer_of(now).learning_rate = 1e-4;
  now.settings->num_steps = 40;
  now.plan.workload.precision = DType::BF16;
  CHECK(refusal({}, now) ==
        "c/step-10: learning_rate is 0.0003 so far, but 0.0001 now; decay_steps is 20 so far, but "
        "40 now (the step at which the learning rate is at its least: --steps, unless "
        "--decay-steps says it); precision is fp32 so far, but bf16 now: go on as before with "
        "--learning-rate 0.0003 --decay-steps 20 and a plan with precision fp32, ask for the "
        "change with --change learning_rate,decay_steps,precision, or start a new run from the "
        "weights with --init-from c/step-10");
  // What was asked for stays in what is to be typed.
  CHECK_THAT(refusal({}, now, {"precision"}),
             Contains("--change precision,learning_rate,decay_steps,"));
}

TEST_CASE("a run may be longer or shorter where its learning rate does not depend on it",
          "[kept_settings]") {
  Run before, now;
  optimizer_of(before).decay_steps = optimizer_of(now).decay_steps = 20;
  now.settings->num_steps = 40;
  CHECK(refusal(before, now).empty());
  optimizer_of(before).decay_steps = 0;  // 20 steps
  CHECK(refusal(before, now).empty());
  for (Run* run : {&before, &now})
    optimizer_of(*run) = {.schedule = program::LearningRateSchedule::Constant};
  CHECK(refusal(before, now).empty());
}

TEST_CASE("what an old checkpoint does not say is assumed to be as now", "[kept_settings]") {
  Run before, now;
  before.settings.reset();
  now.settings->num_steps = 40;
  in_half(before);
  in_half(now);
  CHECK(refusal(before, now).empty());
  const auto assumed = assumed_settings(before.configuration(), now.configuration());
  REQUIRE(assumed.size() == 4);
  CHECK(assumed[0].name == "decay_steps");
  CHECK(assumed[0].before == "40");
  CHECK(assumed[3].name == "loss_scale_interval");
  optimizer_of(before).decay_steps = 30;  // its plan says it
  CHECK_THAT(refusal(before, now), Contains("decay_steps is 30 so far, but 40 now"));
  CHECK(assumed_settings(now.configuration(), now.configuration()).empty());
}

}  // namespace meshplan::runtime
