#include "program/memory/address.hpp"

#include <catch2/catch.hpp>

#include "program/inspect.hpp"
#include "program/plans.hpp"

namespace meshplan::program {
namespace {

using test::make_plan;

const OperationInstance& instance_named(const Program& program, std::string_view name, int layer) {
  for (const OperationInstance& instance : program.instances)
    if (instance.layer == layer && operation_of(program, instance).name == name) return instance;
  throw InvariantError("no such operation");
}

bool contains(const std::vector<Address>& list, const Address& address) {
  return std::ranges::find(list, address) != list.end();
}

}  // namespace

TEST_CASE("A layer writes its output where the next layer reads its input", "[program][address]") {
  const Program program = lower(make_plan(test::llama_style()), 0);  // layers 1..4, head 5
  const Footprint last = footprint(program, instance_named(program, "mlp_down", 2));
  const Footprint next = footprint(program, instance_named(program, "attention_norm", 3));
  REQUIRE(last.writes.size() == 1);
  CHECK(last.writes.front().bytes == 16 * 64 * 4);
  CHECK(contains(next.reads, last.writes.front()));
  CHECK(last.writes.front().region == Region::Saved);
}

TEST_CASE("The last layer of an inner stage writes into what is sent", "[program][address]") {
  const Program program = lower(make_plan(test::llama_style(), {.pp = 2}), 0);
  const int last = static_cast<int>(program.layers.size()) - 1;
  const Footprint made = footprint(program, instance_named(program, "mlp_down", last));
  const auto send = test::instances_named(program, "send_forward").front();
  CHECK(made.writes.front() == peer_address(program, program.instances[send]));
}

TEST_CASE("Scalars of the step are read by what scales with them", "[program][address]") {
  const Program program = lower(make_plan(test::llama_style()), 0);
  const auto scalar = [](Scalar which) {
    return Address{.region = Region::Scalars,
                   .offset = static_cast<std::int64_t>(which) * kScalarBytes,
                   .bytes = kScalarBytes};
  };
  const Footprint loss = footprint(program, instance_named(program, "loss.input_grad", 5));
  CHECK(contains(loss.reads, scalar(Scalar::GradientScale)));
  const auto optimizer = test::instances_named(program, "optimizer[").front();
  CHECK(contains(footprint(program, program.instances[optimizer]).reads,
                 scalar(Scalar::ClipCoefficient)));
  Address settings = scalar(Scalar::LearningRate);  // and the optimizer's step after it
  settings.bytes = 2 * kScalarBytes;
  CHECK(contains(footprint(program, program.instances[optimizer]).reads, settings));
}

TEST_CASE("Flat ranges are addressed in elements of their region", "[program][address]") {
  Plan plan = make_plan(test::llama_style());
  plan.workload.precision = DType::BF16;
  const Program program = lower(plan, 0);
  const FlatRange range{64, 96};
  CHECK(flat_address(program, Region::Weights, range) ==
        Address{.region = Region::Weights, .offset = 128, .bytes = 64});
  CHECK(flat_address(program, Region::Gradients, range) ==
        Address{.region = Region::Gradients, .offset = 256, .bytes = 128});
  CHECK_THROWS_AS(element_bytes(program, Region::Saved), InvariantError);
}

}  // namespace meshplan::program
