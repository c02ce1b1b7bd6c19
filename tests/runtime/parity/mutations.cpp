#include "runtime/parity/mutations.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "lower/link.hpp"

namespace meshplan::test {

using program::Operation;
using program::OperationInstance;
using program::Phase;
using program::Program;

namespace {

bool is_named(const Operation& operation, const std::string& name) {
  return operation.name == name || operation.name.ends_with("." + name);
}

}  // namespace

Mutation without(InstancePredicate predicate) {
  return [predicate](Program& program) {
    std::erase_if(program.instances, [&](const OperationInstance& instance) {
      return predicate(instance, program::operation_of(program, instance));
    });
    program::link(program);
  };
}

Mutation without(const std::string& name) {
  return without([name](const auto& /*instance*/, const Operation& operation) {
    return is_named(operation, name);
  });
}

Mutation without_in_last_microbatch(const std::string& name) {
  return [name](Program& program) {
    const int last = program.plan.num_microbatches() - 1;
    without([&](const auto& instance, const Operation& operation) {
      return instance.microbatch == last && is_named(operation, name);
    })(program);
  };
}

Mutation each_operation(std::function<void(Operation&)> edit) {
  return [edit](Program& program) {
    for (program::Block& block : program.blocks)
      for (auto* list : {&block.forward, &block.backward}) std::ranges::for_each(*list, edit);
    std::ranges::for_each(program.step_operations, edit);
  };
}

Mutation each_step_operation(program::StepWork work, std::function<void(program::StepOp&)> edit) {
  return each_operation([work, edit](Operation& operation) {
    if (auto* step = std::get_if<program::StepOp>(&operation.work);
        step != nullptr && step->work == work)
      edit(*step);
  });
}

Mutation each_operation_named(const std::string& name, std::function<void(Operation&)> edit) {
  return each_operation([name, edit](Operation& operation) {
    if (is_named(operation, name)) edit(operation);
  });
}

Mutation reduced_by(const std::string& name, program::ReduceOp reduce) {
  return each_operation_named(name, [reduce](Operation& operation) {
    if (auto* collective = std::get_if<program::CollectiveOp>(&operation.work))
      collective->reduce = reduce;
    if (auto* flat = std::get_if<program::FlatCollectiveOp>(&operation.work))
      flat->collective.reduce = reduce;
  });
}

bool is_gradient_bucket(const Operation& operation) {
  const auto* flat = std::get_if<program::FlatCollectiveOp>(&operation.work);
  return flat != nullptr && flat->region == program::Region::Gradients &&
         flat->collective.group == program::Group::DpCp;
}

void drop_last_microbatch(Program& program) {
  const int last = program.plan.num_microbatches() - 1;
  without([last](const auto& instance, const Operation& operation) {
    return instance.microbatch == last && operation.phase == Phase::WeightGrad;
  })(program);
}

void drop_last_bucket(Program& program) {
  std::uint64_t last = 0;
  for (const OperationInstance& instance : program.instances)
    if (is_gradient_bucket(program::operation_of(program, instance))) last = instance.id;
  without([last](const OperationInstance& instance, const auto& /*operation*/) {
    return instance.id == last;
  })(program);
}

void skip_one_weight_gradient(Program& program) {
  if (program.role.stage != 0) return;
  without([](const auto& instance, const Operation& operation) {
    return instance.microbatch == 1 && operation.phase == Phase::WeightGrad;
  })(program);
}

void overwrite_gradients(Program& program) {
  for (OperationInstance& instance : program.instances)
    if (instance.microbatch == program.plan.num_microbatches() - 1) instance.accumulate = false;
}

void add_bias_on_every_rank(Program& program) {
  for (program::Block& block : program.blocks)
    for (std::size_t i = 0; i + 1 < block.forward.size(); ++i)
      if (block.forward[i].name == "mlp_down.all_reduce" &&
          block.forward[i + 1].name == "mlp_down.bias")
        std::swap(block.forward[i], block.forward[i + 1]);
  program::link(program);
}

void swap_received_microbatches(Program& program) {
  std::vector<OperationInstance*> received;
  for (OperationInstance& instance : program.instances)
    if (program::operation_of(program, instance).lane == program::Lane::PpRecvForward)
      received.push_back(&instance);
  if (received.size() < 2) return;
  std::swap(received[0]->microbatch, received[1]->microbatch);
  program::link(program);
}

void swap_layers(Program& program) {
  std::vector<program::LayerInstance*> layers;
  for (program::LayerInstance& layer : program.layers)
    if (layer.layer) layers.push_back(&layer);
  if (layers.size() < 2) return;
  std::swap(layers[0]->parameters, layers[1]->parameters);
  program::link(program);
}

void share_kept_place(Program& program) {
  const auto microbatches = static_cast<std::size_t>(program.plan.num_microbatches());
  for (std::size_t layer = 0; layer < program.layers.size(); ++layer)
    program.kept_places[layer * microbatches + 1] = program.kept_places[layer * microbatches];
  program::link(program);
}

}  // namespace meshplan::test
