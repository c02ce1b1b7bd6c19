// Where the tokens of a sequence lie under context parallelism, and who attends to what.
#include "program/context/context.hpp"

#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <set>

#include "checks/program_errors.hpp"
#include "program/attention_inputs.hpp"
#include "program/checks/check.hpp"
#include "program/cost/cost.hpp"
#include "program/inspect.hpp"
#include "program/lower/lower.hpp"
#include "program/plans.hpp"

namespace meshplan::program::test {
namespace {

using Catch::Matchers::Contains;

std::string message_of(const Plan& plan, std::string_view rule) {
  for (const Violation& violation : check(plan))
    if (violation.rule == rule) return violation.message;
  return "";
}

using Pairs = std::set<std::pair<std::int64_t, std::int64_t>>;

/// The (query, key) positions of a tile, each of which may be computed once only.
void add_pairs(Pairs& pairs, const AttentionTile& tile, const ContextShard& queries,
               const auto& key_position) {
  for (std::int64_t q = 0; q < tile.num_queries; ++q)
    for (std::int64_t k = 0; k < tile.num_keys; ++k) {
      if (tile.causal && k > q + tile.query_offset) continue;
      const auto pair =
          std::pair(queries.position(tile.query_begin + q), key_position(tile.key_begin + k));
      CHECK(pairs.insert(pair).second);
    }
}

/// All of a sequence of `seq_len` under a causal mask.
Pairs causal(std::int64_t seq_len) {
  Pairs pairs;
  for (std::int64_t q = 0; q < seq_len; ++q)
    for (std::int64_t k = 0; k <= q; ++k) pairs.emplace(q, k);
  return pairs;
}

}  // namespace

TEST_CASE("each rank of cp holds a chunk from the front and its mirror from the back",
          "[program][context]") {
  CHECK(context_shard(16, 2, 0) == ContextShard{.length = 8, .first = 0, .second = 12});
  CHECK(context_shard(16, 2, 1) == ContextShard{.length = 8, .first = 4, .second = 8});
  for (const int cp : {1, 2, 4, 8}) {
    std::set<std::int64_t> held;
    for (int rank = 0; rank < cp; ++rank) {
      const ContextShard shard = context_shard(16, cp, rank);
      for (std::int64_t i = 0; i < shard.length; ++i) held.insert(shard.position(i));
    }
    CHECK(held.size() == 16);
  }
}

TEST_CASE("the tiles of all ranks are the causal mask, each pair once and as many on every rank",
          "[program][context]") {
  constexpr std::int64_t kSeqLen = 32;
  for (const int cp : {2, 4, 8}) {
    Pairs gathered, ring;
    for (int rank = 0; rank < cp; ++rank) {
      const ContextShard own = context_shard(kSeqLen, cp, rank);
      const std::size_t before = gathered.size();
      for (const AttentionTile& tile : gathered_tiles(kSeqLen, cp, rank))
        add_pairs(gathered, tile, own, [](std::int64_t key) { return key; });
      CHECK(gathered.size() - before == causal(kSeqLen).size() / static_cast<std::size_t>(cp));
      for (int step = 0; step < cp; ++step) {
        const ContextShard source = context_shard(kSeqLen, cp, (rank - step + cp) % cp);
        const std::size_t before_step = ring.size();
        add_pairs(ring, ring_tile(kSeqLen, cp, rank, step), own,
                  [&](std::int64_t key) { return source.position(key); });
        const auto length = static_cast<std::size_t>(kSeqLen / cp);
        CHECK(ring.size() - before_step ==
              (step == 0 ? length * (length + 1) / 2 : length * length / 2));
      }
    }
    CHECK(gathered == causal(kSeqLen));
    CHECK(ring == causal(kSeqLen));
  }
}

TEST_CASE("a sequence is padded to what cp, sp and quantized products need", "[program][context]") {
  CHECK(padded_sequence(1000, {}) == 1000);
  CHECK(padded_sequence(1000, {.cp = 4}) == 1000);
  CHECK(padded_sequence(1001, {.cp = 4}) == 1008);
  CHECK(padded_sequence(1000, {.tp = 3, .cp = 4, .sp = true}) == 1008);  // 84 a rank: 28 of each tp
  CHECK(padded_sequence(1000, {.tp = 3, .cp = 4}) == 1000);  // without sp, tp does not cut tokens
  // What sp cuts are the tokens of a micro-batch: of two sequences, half is enough of each.
  CHECK(sequence_multiple({.tp = 3, .cp = 4, .sp = true}, TokenGranularity::Any, 2) == 24);
  CHECK(sequence_multiple({.tp = 4, .cp = 2, .sp = true}, TokenGranularity::Any, 2) == 4);
  CHECK(padded_sequence(1002, {.tp = 4, .sp = true}, TokenGranularity::Any, 2) == 1002);
  CHECK(padded_sequence(1001, {.tp = 4, .sp = true}, TokenGranularity::Any, 2) == 1002);
  CHECK(padded_sequence(1000, {.cp = 4}, TokenGranularity::Fp8) == 1024);
  CHECK(padded_sequence(1000, {.tp = 2, .cp = 2, .sp = true}, TokenGranularity::Mxfp8) == 1024);
}

TEST_CASE("cp is refused where chunks or heads do not come out whole", "[program][check]") {
  Plan plan = make_plan(llama_style(), {.cp = 2});
  CHECK(check(plan).empty());
  plan.workload.seq_len = 18;
  CHECK(message_of(plan, "context") ==
        "seq_len (18) is not divisible by 2 * cp(2) = 4: each rank holds two chunks of every "
        "sequence; nearest seq_len: 20, nearest cp: 1");
  plan.workload.seq_len = 24;
  plan.parallel = {.tp = 2, .cp = 4};
  plan.context_parallel = ContextMethod::Ulysses;  // 4 key heads for 8 ranks
  CHECK_THAT(message_of(plan, "context"), Contains("num_kv_heads (4)") &&
                                              Contains("tp(2) * cp(4) = 8") &&
                                              Contains("nearest cp: 2"));
  plan.context_parallel = ContextMethod::AllGather;
  CHECK(check(plan).empty());
  plan.parallel = {.tp = 2, .cp = 2, .sp = true};
  plan.workload.seq_len = 20;
  CHECK(check(plan).empty());
  plan.parallel = {.tp = 8, .cp = 2, .sp = true};
  CHECK_THAT(message_of(plan, "sp"), Contains("/ cp(2) = 10 tokens"));
}

TEST_CASE("programs with cp issue the same in the same order, and reach no byte that is not theirs",
          "[program][context]") {
  for (const models::ModelSpec& model : {llama_style(), gpt2_style()})
    for (const ContextMethod method :
         {ContextMethod::AllGather, ContextMethod::Ring, ContextMethod::Ulysses})
      for (const RecomputeKind recompute : {RecomputeKind::None, RecomputeKind::Full})
        for (const auto& [schedule, mesh] :
             {std::pair(ScheduleKind::OneFOneB,
                        ParallelConfig{.tp = 2, .cp = 2, .pp = 2, .sp = true}),
              std::pair(ScheduleKind::ZbH1, ParallelConfig{.cp = 4, .pp = 2}),
              std::pair(ScheduleKind::DualPipeV, ParallelConfig{.cp = 2, .pp = 2, .vpp = 2})}) {
          Plan plan = make_plan(model, mesh, 4);
          plan.schedule = schedule;
          plan.context_parallel = method;
          plan.recompute.kind = recompute;
          if (recompute == RecomputeKind::Full) plan.workload.precision = DType::BF16;
          INFO(describe(plan) << " method " << static_cast<int>(method));
          CHECK(program_errors(lower_all(plan)).empty());
        }
}

TEST_CASE("a ring's next keys are on their way while attention reads the last",
          "[program][context]") {
  Plan plan = make_plan(llama_style(), {.cp = 4}, 1);
  plan.context_parallel = ContextMethod::Ring;
  const Program program = lower(plan, 0);
  int overlapped = 0;
  for (std::size_t i = 0; i < program.instances.size(); ++i) {
    const Operation& attention = operation_of(program, program.instances[i]);
    const auto* work = std::get_if<ComputeOp>(&attention.work);
    if (work == nullptr || work->kind != ComputeKind::Attention) continue;
    for (std::size_t shift = 0; shift < i; ++shift) {
      const Operation& other = operation_of(program, program.instances[shift]);
      if (program.instances[shift].layer != program.instances[i].layer ||
          !other.name.starts_with(fmt::format("attention.step{}.keys_values", *work->ring_step)) ||
          program.instances[shift].operation.backward != program.instances[i].operation.backward ||
          other.lane != Lane::Cp)
        continue;
      // Neither waits for the other, and nothing after the shift waits for it before this.
      for (std::size_t between = shift + 1; between <= i; ++between)
        CHECK(std::ranges::count(waits_of(program, program.instances[between]),
                                 static_cast<int>(shift)) == 0);
      ++overlapped;
    }
  }
  // 3 shifts of keys a layer forward; backward as many, and 3 of gradients beside attention.
  CHECK(overlapped == 4 * (3 + 3 + 3));
}

TEST_CASE("each softmax is joined by its sink once, whatever ranks hold its keys",
          "[program][context]") {
  models::ModelSpec model = llama_style();
  model.attention_sinks = true;
  Plan plan = make_plan(model, {.tp = 2, .cp = 2}, 1);
  for (const ContextMethod method :
       {ContextMethod::AllGather, ContextMethod::Ring, ContextMethod::Ulysses}) {
    plan.context_parallel = method;
    const Program program = lower(plan, 0);
    const Block& layer = block_named(program, "dense");
    int read = 0, differentiated = 0;
    for (const auto* operations : {&layer.forward, &layer.backward})
      for (const Operation& operation : *operations) {
        const auto* work = std::get_if<ComputeOp>(&operation.work);
        if (work == nullptr || work->kind != ComputeKind::Attention) continue;
        if (operation.phase == Phase::Forward && attention_inputs(layer.values, operation).sinks) {
          CHECK(work->ring_step.value_or(0) == 0);
          ++read;
        }
        if (operation.phase == Phase::WeightGrad) ++differentiated;
      }
    CAPTURE(static_cast<int>(method));
    CHECK(read == 1);
    CHECK(differentiated == 1);
    CHECK(parameter_named(program, "layers.0.self_attn.sinks").local_shape ==
          std::vector<std::int64_t>{4});  // of 8 heads
  }
}

TEST_CASE("latent attention gathers what keys and values are made of", "[program][context]") {
  const models::ModelSpec model = latent_style();
  Plan plan = make_plan(model, {.tp = 2, .cp = 2});
  const auto sent = [&](Phase phase) {
    const Program program = lower(plan, 0);
    std::int64_t bytes = 0;
    for (const OperationInstance& instance : program.instances) {
      const Operation& operation = operation_of(program, instance);
      const bool first =
          instance.microbatch == 0 && instance.layer && layer_of(program, instance).layer == 0;
      if (first && operation.lane == Lane::Cp && operation.phase == phase)
        bytes += message_bytes(program, instance);
    }
    return bytes;
  };
  // 8 tokens of a rank: 28 latent values and 8 rotated columns, whatever the heads here.
  CHECK(sent(Phase::Forward) == 8 * (28 + 8) * 4);
  CHECK(sent(Phase::Recompute) == 8 * (28 + 8) * 4);
  CHECK(sent(Phase::InputGrad) == 2 * 8 * (28 + 8) * 4);  // of all ranks' tokens, to be summed
  plan.context_parallel = ContextMethod::Ring;            // keys and values of two heads
  CHECK(sent(Phase::Forward) == 8 * 2 * (24 + 12) * 4);
  // Neither gathered nor expanded values outlive a task.
  plan.context_parallel = ContextMethod::AllGather;
  const Program program = lower(plan, 0);
  for (const Block& block : program.blocks)
    for (const Value& value : block.values)
      if (value.storage == Storage::Saved) {
        INFO(value.name);
        CHECK(local_shape(program, value).front() <= 8);
      }
}

TEST_CASE("over all ranks attention costs what it does on one", "[program][context]") {
  const auto attention_flops = [](const Plan& plan) {
    double flops = 0;
    const Program program = lower(plan, 0);
    for (const OperationInstance& instance : program.instances) {
      const auto* work = std::get_if<ComputeOp>(&operation_of(program, instance).work);
      if (work != nullptr && work->kind == ComputeKind::Attention)
        flops += operation_cost(program, instance).flops;
    }
    return flops;
  };
  models::ModelSpec sliding = gemma_style();
  sliding.num_kv_heads = 8;
  for (models::ModelSpec model : {llama_style(), sliding}) {
    model.num_kv_heads = 8;
    Plan plan = make_plan(model, {}, 2);
    const double one_rank = attention_flops(plan);
    for (const int cp : {2, 4}) {
      plan.parallel.cp = cp;
      for (const ContextMethod method :
           {ContextMethod::AllGather, ContextMethod::Ring, ContextMethod::Ulysses}) {
        plan.context_parallel = method;
        if (!check(plan).empty()) continue;  // no ring with windows
        const double all = cp * attention_flops(plan);
        if (model.name == "llama-style" || method == ContextMethod::Ulysses)
          CHECK(all == Approx(one_rank));
        else  // a window leaves the first rank, whose first chunk sees little, less to do
          CHECK(all <= one_rank);
      }
    }
  }
}

}  // namespace meshplan::program::test
