// Every way in which a program could read what it does not mean is reported: by place, by order,
// by slot and by micro-batch.
#include "checks/provenance.hpp"

#include <algorithm>
#include <catch2/catch.hpp>

#include "checks/races.hpp"
#include "core/index.hpp"
#include "lower/link.hpp"
#include "program/inspect.hpp"
#include "program/plans.hpp"

namespace meshplan::program {
namespace {

using test::gpt2_style;
using test::llama_style;
using test::make_plan;

Plan frozen_plan() {
  Plan plan = make_plan(gpt2_style(), {}, 2);
  plan.frozen = {"layers.0"};
  plan.recompute.kind = RecomputeKind::Full;
  return plan;
}

Plan zero_plan(int stage) {
  Plan plan = make_plan(llama_style(), {.dp = 2}, 3);
  plan.zero_stage = stage;
  return plan;
}

Plan offloaded_plan() {
  Plan plan = make_plan(llama_style(), {.pp = 2}, 4);
  plan.schedule = ScheduleKind::GPipe;  // others use a slot before what went out comes back
  plan.offload_activations = 2;
  return plan;
}

void expect_error(const Program& program, const std::string& text) {
  const std::optional<std::string> error = provenance_error(program);
  INFO(error.value_or("nothing"));
  CHECK((error && error->find(text) != std::string::npos));
}

/// Moves operation `from` of a list to `to`: instances keep their places, so they run in the order
/// of the list.
void move_operation(std::vector<Operation>& list, std::size_t from, std::size_t to) {
  const auto at_place = [&](std::size_t i) {
    return list.begin() + static_cast<std::ptrdiff_t>(i);
  };
  if (from > to)
    std::rotate(at_place(to), at_place(from), at_place(from + 1));
  else
    std::rotate(at_place(from), at_place(from + 1), at_place(to + 1));
}

std::size_t place_of(const std::vector<Operation>& list, std::string_view name, Phase phase) {
  const auto found = std::ranges::find_if(list, [&](const Operation& operation) {
    return operation.name == name && operation.phase == phase;
  });
  REQUIRE(found != list.end());
  return static_cast<std::size_t>(found - list.begin());
}

template <class Predicate>
void erase_first(Program& program, Predicate predicate) {
  const auto found =
      std::ranges::find_if(program.instances, [&](const OperationInstance& instance) {
        return predicate(instance, operation_of(program, instance));
      });
  REQUIRE(found != program.instances.end());
  program.instances.erase(found);
  link(program);
}

}  // namespace

TEST_CASE("A frozen layer that recomputes reads what it has computed again",
          "[program][provenance]") {
  Program program = lower(frozen_plan(), 0);
  CHECK(provenance_error(program) == std::nullopt);
  // As it was before: the product comes first, and reads what another layer left there.
  const auto frozen = std::ranges::find_if(program.blocks, [](const Block& block) {
    return block.name == "dense" && std::ranges::none_of(block.backward, [](const auto& operation) {
             return operation.phase == Phase::WeightGrad;
           });
  });
  REQUIRE(frozen != program.blocks.end());
  const std::size_t product = place_of(frozen->backward, "mlp_down.input_grad", Phase::InputGrad);
  const std::size_t again = place_of(frozen->backward, "mlp_up", Phase::Recompute);
  REQUIRE(again < product);
  move_operation(frozen->backward, product, again);
  link(program);
  expect_error(program, "mlp_down.input_grad reads mlp_up.again before it is made");
}

TEST_CASE("A computation left out of one micro-batch is reported", "[program][provenance]") {
  Plan plan = make_plan(llama_style(), {.tp = 2, .pp = 2, .sp = true}, 3);
  for (const RecomputeKind kind :
       {RecomputeKind::None, RecomputeKind::Selective, RecomputeKind::Full}) {
    plan.recompute.kind = kind;
    const Program whole = lower(plan, 1);
    int seen = 0;
    for (std::size_t i = 0; i < whole.instances.size(); ++i) {
      const OperationInstance& left_out = whole.instances[i];
      if (!left_out.operation.block || left_out.microbatch != 1) continue;
      const Operation& operation = operation_of(whole, left_out);
      const Block& block = whole.blocks[at(*left_out.operation.block)];
      const bool only_adds = std::ranges::all_of(operation.outputs, [&](ValueId id) {
        const Storage storage = block.values[at(id)].storage;
        return storage == Storage::Gradient || storage == Storage::LossScalar;
      });
      if (only_adds) continue;  // what a step's sums lack is for runs to show
      Program without = whole;
      without.instances.erase(without.instances.begin() + static_cast<std::ptrdiff_t>(i));
      link(without);
      INFO(operation.name);
      CHECK(provenance_error(without).has_value());
      ++seen;
    }
    CHECK(seen > 50);
  }
}

TEST_CASE("Two micro-batches in one place are reported", "[program][provenance]") {
  Program program = lower(make_plan(llama_style(), {.pp = 2}, 4), 0);
  const auto microbatches = at(program.plan.num_microbatches());
  for (std::size_t layer = 0; layer < program.layers.size(); ++layer)
    program.kept_places[layer * microbatches + 1] = program.kept_places[layer * microbatches];
  link(program);
  expect_error(program, "of micro-batch 0 (chunk 0) reads what micro-batch 1 has overwritten");
}

TEST_CASE("Layers that keep values in one place are reported", "[program][provenance]") {
  Program program = lower(make_plan(llama_style()), 0);
  for (Block& block : program.blocks)
    for (Value& value : block.values)
      if (value.storage == Storage::Saved) value.offset_bytes = 0;
  link(program);
  expect_error(program, "has overwritten");
}

TEST_CASE("Messages in another slot than the one that was written are reported",
          "[program][provenance]") {
  for (const char* message : {"send_forward", "send_backward"}) {
    Program program = lower(make_plan(llama_style(), {.pp = 3}, 4), 1);
    const auto sends = test::instances_named(program, message);
    OperationInstance& second = program.instances[sends[1]];
    second.boundary_slot = program.instances[sends[0]].boundary_slot == second.boundary_slot
                               ? (second.boundary_slot + 1) % program.memory.boundary.total()
                               : program.instances[sends[0]].boundary_slot;
    link(program);
    expect_error(program, message);
  }
}

TEST_CASE("A message that was received for another micro-batch is reported",
          "[program][provenance]") {
  Program program = lower(make_plan(llama_style(), {.pp = 2}, 4), 1);
  const auto received = test::instances_named(program, "recv_forward");
  std::swap(program.instances[received[0]].microbatch, program.instances[received[1]].microbatch);
  link(program);
  CHECK(provenance_error(program).has_value());
}

TEST_CASE("Weights that were not gathered, or into another slot, are reported",
          "[program][provenance]") {
  for (const int stage : {1, 3}) {
    Program program = lower(zero_plan(stage), 0);
    CHECK(provenance_error(program) == std::nullopt);
    erase_first(program, [](const OperationInstance&, const Operation& operation) {
      return operation.name.starts_with("weights[");
    });
    expect_error(program, "weight");
  }
  Program program = lower(zero_plan(3), 0);
  for (OperationInstance& instance : program.instances)
    if (instance.microbatch == 1 && instance.layer == 1 && !instance.operation.backward)
      instance.weight_slot = 1 - instance.weight_slot;
  link(program);
  expect_error(program, "of micro-batch 1 (chunk 0) reads what another operation has overwritten");
}

TEST_CASE("Gradients that overwrite or add where they must not are reported",
          "[program][provenance]") {
  Program program = lower(make_plan(llama_style(), {}, 2), 0);
  for (OperationInstance& instance : program.instances)
    if (instance.microbatch == 1) instance.accumulate = false;
  expect_error(program, "writes over the gradient of");
  program = lower(make_plan(llama_style(), {}, 2), 0);
  for (OperationInstance& instance : program.instances) instance.accumulate = true;
  expect_error(program, "adds to a gradient that nothing wrote last");
}

TEST_CASE("A sum over replicas before the last micro-batch has added to it is reported",
          "[program][provenance]") {
  Program program = lower(make_plan(llama_style(), {.dp = 2}, 2), 0);
  const auto sums = test::instances_named(program, "gradients[");
  const OperationInstance first = program.instances[sums.front()];
  program.instances.erase(program.instances.begin() + static_cast<std::ptrdiff_t>(sums.front()));
  const auto second = std::ranges::find_if(program.instances, [&](const auto& instance) {
    return instance.microbatch == 1 && operation_of(program, instance).phase == Phase::WeightGrad;
  });
  program.instances.insert(second, first);
  link(program);
  CHECK(provenance_error(program).has_value());
}

TEST_CASE("What comes back from the host is what went there", "[program][provenance]") {
  Program program = lower(offloaded_plan(), 0);
  CHECK(provenance_error(program) == std::nullopt);
  const auto fetches = test::instances_named(program, "activations.fetch");
  const auto stores = test::instances_named(program, "activations.store");
  REQUIRE(fetches.size() > 2);
  for (const std::size_t copy : {fetches[0], fetches[1], stores[0], stores[1]}) {
    Program without = program;
    without.instances.erase(without.instances.begin() + static_cast<std::ptrdiff_t>(copy));
    link(without);
    CHECK(provenance_error(without).has_value());
  }
  std::swap(program.instances[fetches[0]].staged_slot, program.instances[fetches[1]].staged_slot);
  link(program);
  CHECK(provenance_error(program).has_value());
}

TEST_CASE("Copies to and from the host that are not waited for are reported",
          "[program][provenance]") {
  const Program whole = lower(offloaded_plan(), 0);
  CHECK(race_error(whole) == std::nullopt);
  int waits = 0;
  for (std::size_t i = 0; i < whole.instances.size(); ++i) {
    const Lane lane = operation_of(whole, whole.instances[i]).lane;
    const auto is_copy = [&](int other) {
      const Lane its = operation_of(whole, whole.instances[at(other)]).lane;
      return its == Lane::FromHost || its == Lane::ToHost;
    };
    const bool copies = lane == Lane::FromHost || lane == Lane::ToHost;
    if (!copies && std::ranges::none_of(waits_of(whole, whole.instances[i]), is_copy)) continue;
    if (whole.instances[i].num_waits == 0) continue;
    Program hasty = whole;
    hasty.instances[i].num_waits = 0;
    INFO(text_of(whole, whole.instances[i]));
    CHECK(race_error(hasty).has_value());
    ++waits;
  }
  CHECK(waits > 8);
}

TEST_CASE("Weights that did not come from the host before they are gathered are reported",
          "[program][provenance]") {
  Plan plan = zero_plan(3);
  plan.offload_optimizer = plan.offload_parameters = true;
  Program program = lower(plan, 0);
  CHECK(provenance_error(program) == std::nullopt);
  erase_first(program, [](const OperationInstance&, const Operation& operation) {
    const auto* step = std::get_if<StepOp>(&operation.work);
    return step != nullptr && step->work == StepWork::FetchWeights;
  });
  expect_error(program, "weights");
}

TEST_CASE("Gradients of a micro-batch that are added wrongly are reported",
          "[program][provenance]") {
  const auto is_addition = [](const Operation& operation) {
    const auto* step = std::get_if<StepOp>(&operation.work);
    return step != nullptr && step->work == StepWork::AccumulateGradients;
  };
  const Program whole = lower(zero_plan(2), 0);
  CHECK(provenance_error(whole) == std::nullopt);
  std::vector<std::size_t> additions;
  for (std::size_t i = 0; i < whole.instances.size(); ++i)
    if (is_addition(operation_of(whole, whole.instances[i]))) additions.push_back(i);
  REQUIRE(additions.size() > 4);
  SECTION("not summed over the ranks") {
    Program program = whole;
    erase_first(program, [](const OperationInstance&, const Operation& operation) {
      const auto* flat = std::get_if<FlatCollectiveOp>(&operation.work);
      return flat != nullptr && flat->region == Region::UnreducedBuckets;
    });
    expect_error(program, "the sum of a micro-batch's gradients");
  }
  SECTION("of another unit") {
    Program program = whole;
    const std::size_t other = additions[1];
    program.instances[additions[0]].gradient_slot = 1 - program.instances[other].gradient_slot;
    program.instances[other].gradient_slot = 1 - program.instances[other].gradient_slot;
    link(program);
    CHECK(provenance_error(program).has_value());
  }
  SECTION("over those of another micro-batch") {
    Program program = whole;
    program.instances[additions.back()].accumulate = false;
    expect_error(program, "writes over gradients of other micro-batches");
  }
  SECTION("to nothing") {
    Program program = whole;
    program.instances[additions.front()].accumulate = true;
    expect_error(program, "adds to no gradients of other micro-batches");
  }
}

TEST_CASE("Gradients that are summed twice are reported", "[program][provenance]") {
  Program program = lower(make_plan(llama_style(), {.dp = 2}, 2), 0);
  const auto sums = test::instances_named(program, "gradients[");
  const OperationInstance first = program.instances[sums.front()];
  program.instances.insert(program.instances.begin() + static_cast<std::ptrdiff_t>(sums.front()),
                           first);
  link(program);
  expect_error(program, "grad");
}

TEST_CASE("A gradient that arrives where an activation lies is reported", "[program][provenance]") {
  Plan plan = make_plan(llama_style(), {.pp = 3}, 1);
  plan.schedule = ScheduleKind::ZbH1;  // keeps the gradient for weight gradients that are put off
  plan.recompute.kind = RecomputeKind::Full;
  Program program = lower(plan, 1);
  CHECK(provenance_error(program) == std::nullopt);
  const Chunk& chunk = program.chunks.front();
  program.kept_places[at(chunk.first_layer)][at(static_cast<int>(Keep::Arriving))] =
      program.kept_places[at(chunk.end_layer - 1)][at(static_cast<int>(Keep::ArrivingGradient))];
  link(program);
  expect_error(program, "where recv_backward");
}

TEST_CASE("A reader that does not wait for the writer is reported", "[program][provenance]") {
  Program program = lower(make_plan(llama_style(), {.tp = 2, .pp = 2, .sp = true}, 2), 1);
  const auto norm = std::ranges::find_if(program.instances, [&](const auto& instance) {
    return instance.num_waits > 0 && instance.layer &&
           operation_of(program, instance).lane == Lane::Compute;
  });
  REQUIRE(norm != program.instances.end());
  norm->num_waits = 0;
  expect_error(program, "does not wait for");
}

TEST_CASE("Merged layers read what their operations name", "[program][provenance]") {
  for (const ScheduleKind schedule :
       {ScheduleKind::OneFOneB, ScheduleKind::Interleaved, ScheduleKind::ZbH1}) {
    Plan plan = make_plan(gpt2_style(), {.tp = 2, .pp = 2, .sp = true}, 24);
    plan.schedule = schedule;
    if (schedule == ScheduleKind::Interleaved) plan.parallel.vpp = 2;
    plan.recompute.kind = RecomputeKind::Full;
    auto merged = lower_merged(plan, {});
    REQUIRE(merged);
    for (Program& program : *merged) {
      CHECK(provenance_error(program) == std::nullopt);
      // One that is merged, in the other order.
      Block& block = *std::ranges::find(program.blocks, "dense", &Block::name);
      const std::size_t again = place_of(block.backward, "mlp_up", Phase::Recompute);
      move_operation(block.backward, again, block.backward.size() - 1);
      CHECK(provenance_error(program).has_value());
    }
  }
}

}  // namespace meshplan::program
