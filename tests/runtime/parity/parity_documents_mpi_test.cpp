// Packed documents: what they give together is what each gives alone, and any plan gives the
// losses, gradients and gradient norm of one rank.
#include <catch2/catch.hpp>
#include <cmath>
#include <fmt/format.h>

#include "data/packed_batch.hpp"
#include "lower/link.hpp"
#include "program/checks/check.hpp"
#include "runtime/parity/parity_check.hpp"
#include "runtime/parity/parity_models.hpp"

namespace meshplan::test::parity_documents {
namespace {

constexpr int kSteps = 2;

Plan packed_plan(const models::ModelSpec& model) {
  Plan plan = parity_plan(model);
  plan.model.num_layers = 2;
  plan.workload.seq_len = 32;
  plan.workload.global_batch_size = 4;
  plan.workload.documents = {.packed = true, .end_of_document = 0};
  plan.bucket_bytes = 16 << 10;
  return plan;
}

struct Choice {
  ParallelConfig parallel;
  ContextMethod method = ContextMethod::AllGather;
  std::int64_t max_tokens_per_rank = 0;
};

std::vector<Plan> plans_of(const Plan& base, const std::vector<Choice>& choices) {
  std::vector<Plan> plans;
  int turn = 0;
  for (const Choice& choice : choices) {
    Plan plan = base;
    plan.parallel = choice.parallel;
    plan.context_parallel = choice.method;
    plan.max_tokens_per_rank = choice.max_tokens_per_rank;
    plan.micro_batch_size = turn % 2 == 0 && plan.parallel.dp < 4 ? 2 : 1;
    if (plan.parallel.dp * plan.micro_batch_size > 4) plan.micro_batch_size = 1;
    plan.recompute.kind = static_cast<RecomputeKind>(turn++ % 3);
    for (const program::Violation& violation : check(plan)) FAIL(violation.message);
    plans.push_back(plan);
  }
  return plans;
}

void check_parity(const Plan& base, const std::vector<Choice>& choices) {
  ParityJob fixture{.steps = kSteps};
  check_plans(fixture, "documents", base.model.name + " packed", base, plans_of(base, choices),
              [](const Plan& plan) {
                return fmt::format("{} {} method {} max {} mbs {}", plan.model.name,
                                   to_string(plan.parallel),
                                   static_cast<int>(plan.context_parallel),
                                   plan.max_tokens_per_rank, plan.micro_batch_size);
              });
}

std::vector<Choice> every_axis() {
  return {
      {{.tp = 2}}, {{.tp = 2, .sp = true}},
      {{.pp = 2}}, {{.dp = 2}},
      {{.dp = 4}}, {{.tp = 2, .pp = 2, .dp = 2, .sp = true}},
  };
}

std::vector<Choice> every_context() {
  std::vector<Choice> choices;
  for (const ContextMethod method :
       {ContextMethod::AllGather, ContextMethod::Ring, ContextMethod::Ulysses})
    for (const ParallelConfig& parallel : std::vector<ParallelConfig>{
             {.cp = 2}, {.cp = 4}, {.tp = 2, .cp = 2, .sp = true}, {.cp = 2, .pp = 2, .dp = 2}})
      choices.push_back({parallel, method});
  for (const ContextMethod method : {ContextMethod::AllGather, ContextMethod::Ring})
    for (const std::int64_t most : {8, 11, 20}) choices.push_back({{.cp = 4}, method, most});
  choices.push_back({{.cp = 8}, ContextMethod::Ring, 4});
  return choices;
}

}  // namespace

TEST_CASE("packed documents give the gradients of one rank on every axis", "[parity][documents]") {
  check_parity(packed_plan(llama_style()), every_axis());
  check_parity(packed_plan(gpt2_style()), {{{.tp = 2, .sp = true}}, {{.pp = 2, .dp = 2}}});
}

TEST_CASE("packed documents over cp give the gradients of one rank", "[parity][documents]") {
  check_parity(packed_plan(llama_style()), every_context());
  Plan padded = packed_plan(gpt2_style());
  padded.workload.documents.pad_multiple = 4;
  check_parity(padded, {{{.cp = 2}},
                        {{.cp = 4}, ContextMethod::Ring},
                        {{.tp = 2, .cp = 2, .sp = true}, ContextMethod::Ulysses},
                        {{.cp = 4}, ContextMethod::AllGather, 12}});
  check_parity(packed_plan(sliding_style()),
               {{{.cp = 4}}, {{.cp = 4}, ContextMethod::AllGather, 8}, {{.tp = 2}}});
  check_parity(packed_plan(sinks_style()), {{{.tp = 2, .sp = true}},
                                            {{.cp = 4}, ContextMethod::Ring, 8},
                                            {{.cp = 4}, ContextMethod::AllGather},
                                            {{.tp = 2, .cp = 2}, ContextMethod::Ulysses}});
  check_parity(packed_plan(latent_style()), {{{.tp = 2, .sp = true}},
                                             {{.cp = 4}, ContextMethod::Ring, 8},
                                             {{.cp = 4}, ContextMethod::AllGather},
                                             {{.tp = 2, .cp = 2}, ContextMethod::Ulysses}});
}

TEST_CASE("packed documents with experts give the gradients of one rank", "[parity][documents]") {
  for (const models::ModelSpec& model : {mixtral_style(), balanced_style()})
    check_parity(packed_plan(model),
                 {{{.dp = 2, .ep = 2}},
                  {{.tp = 2, .etp = 2, .sp = true}},
                  {{.cp = 2, .ep = 2}},
                  {{.cp = 2, .ep = 2}, ContextMethod::Ring},
                  {{.cp = 4, .ep = 2}, ContextMethod::AllGather, 12},
                  {{.cp = 2, .dp = 2, .ep = 4}, ContextMethod::Ulysses},
                  {{.tp = 2, .cp = 2, .dp = 2, .ep = 2, .sp = true}, ContextMethod::Ring},
                  {{.cp = 2, .pp = 2, .dp = 2, .ep = 2}}});
  // Without cp a capacity is that of the packed sequence.
  check_parity(packed_plan(capacity_style()), {{{.dp = 2, .ep = 2}}, {{.pp = 2, .dp = 2}}});
}

/// Every document of the batch in a sequence of its own, with nothing to attend to or to pack: the
/// plain lowering, whose mask, positions and targets know no documents. A sequence is as long as
/// the document; the loss of a packed batch is theirs, weighted by their tokens, and so are its
/// gradients.
TEST_CASE("a packed batch is its documents, each run alone and weighted by its tokens",
          "[parity][documents]") {
  ParityJob fixture{.steps = kSteps};
  fixture.steps = 1;
  const models::ModelSpec model =
      GENERATE(llama_style(), gpt2_style(), sliding_style(), latent_style(), mixtral_style());
  const Plan packed = packed_plan(model);
  const RunResult together = fixture.run_alone(packed);
  const int self = fixture.world->rank();
  const auto alone = fixture.world->create_group(std::span(&self, 1), "document");
  double loss = 0, tokens = 0;
  std::map<std::string, std::vector<double>> gradients;
  for (std::int64_t sequence = 0; sequence < packed.workload.global_batch_size; ++sequence) {
    const runtime::PackedTokens from = parity_sequence(packed, sequence);
    for (int d = 0; d < from.documents.num_documents(); ++d) {
      const program::Document document = from.documents.document(d);
      if (document.length < 2) continue;
      Plan plan = packed;
      plan.workload.documents = {};
      plan.workload.seq_len = document.length - 1;  // inputs; the last token is a target only
      plan.workload.global_batch_size = 1;
      const auto first = from.ids.begin() + document.begin;
      runtime::StepBatch batch{.ids = {first, first + document.length - 1},
                               .targets = {first + 1, first + document.length}};
      const RunResult run = run_batch(plan, batch, *alone, *fixture.backend);
      const double weight = static_cast<double>(document.length - 1);
      loss += weight * run.losses.front();
      tokens += weight;
      for (const auto& [name, values] : run.gradients) {
        std::vector<double>& sum = gradients[name];
        sum.resize(values.size());
        for (std::size_t i = 0; i < values.size(); ++i) sum[i] += weight * values[i];
      }
    }
  }
  for (auto& [name, values] : gradients)
    for (double& value : values) value /= tokens;
  CHECK(together.losses.front() == Approx(loss / tokens).epsilon(1e-6));
  const GradientError error = compare_gradients(together.gradients, gradients);
  INFO(model.name << ", worst gradient " << error.worst);
  CHECK(error.relative <= 1e-5);
  CHECK(error.small_absolute <= 1e-11);
}

// ---------------------------------------------------------------- seeded bugs

namespace {

template <class Change>
void for_each_compute(program::Program& program, const Change& change) {
  for (program::Block& block : program.blocks)
    for (auto* operations : {&block.forward, &block.backward})
      for (program::Operation& operation : *operations)
        if (auto* work = std::get_if<program::ComputeOp>(&operation.work)) change(operation, *work);
  program::link(program);
}

/// An operation of this kind no longer looks where its documents lie.
Mutation without_documents(program::ComputeKind kind) {
  return [kind](program::Program& program) {
    for_each_compute(program, [&](program::Operation& operation, program::ComputeOp& work) {
      if (work.kind != kind || !work.documents) return;
      work.documents = false;
      operation.inputs.pop_back();
    });
  };
}

/// Every step of a ring reads the ranges of its first.
void same_ranges(program::Program& program) {
  for (program::Block& block : program.blocks)
    for (program::Value& value : block.values)
      if (value.storage == program::Storage::BatchKeyRanges) value.index = 0;
  program::link(program);
}

void forward_order_backward(program::Program& program) {
  for_each_compute(program, [](program::Operation& operation, program::ComputeOp& work) {
    if (work.kind == program::ComputeKind::OrderChunks &&
        operation.phase == program::Phase::InputGrad)
      work.reverse = !work.reverse;
  });
}

}  // namespace

TEST_CASE("each seeded bug in packed documents breaks parity", "[parity][documents]") {
  ParityJob fixture{.steps = kSteps};
  // Rotations see distances alone: positions that go on over documents show in learned ones.
  const Plan llama = packed_plan(llama_style()), gpt2 = packed_plan(gpt2_style());
  const RunResult of_llama = fixture.run_alone(llama), of_gpt2 = fixture.run_alone(gpt2);
  const struct {
    std::string name;
    const Plan& plan;
    ParallelConfig parallel;
    ContextMethod method;
    Mutation mutate;
  } bugs[] = {
      {"attention across documents",
       llama,
       {.tp = 2},
       ContextMethod::AllGather,
       without_documents(program::ComputeKind::Attention)},
      {"positions go on",
       gpt2,
       {.tp = 2},
       ContextMethod::AllGather,
       without_documents(program::ComputeKind::PositionEmbedding)},
      {"rotations of a whole sequence's chunks",
       llama,
       {.cp = 4},
       ContextMethod::AllGather,
       without_documents(program::ComputeKind::Rope)},
      {"ranges of another ring step", llama, {.cp = 4}, ContextMethod::Ring, same_ranges},
      {"gradients ordered as values",
       llama,
       {.cp = 4},
       ContextMethod::AllGather,
       forward_order_backward},
      {"gradients ordered as values",
       llama,
       {.cp = 4},
       ContextMethod::Ulysses,
       forward_order_backward},
      {"keys in the order of whole sequences",
       llama,
       {.cp = 4},
       ContextMethod::AllGather,
       without_documents(program::ComputeKind::OrderChunks)},
  };
  for (const auto& bug : bugs) {
    Plan plan = bug.plan;
    const RunResult& reference = &bug.plan == &llama ? of_llama : of_gpt2;
    plan.parallel = bug.parallel;
    plan.context_parallel = bug.method;
    const auto right = fixture.run(plan);
    const auto wrong = fixture.run(plan, bug.mutate);
    INFO(bug.name);
    if (right) CHECK(agrees(*right, reference));
    if (wrong) CHECK_FALSE(agrees(*wrong, reference));
  }
}

}  // namespace meshplan::test::parity_documents
