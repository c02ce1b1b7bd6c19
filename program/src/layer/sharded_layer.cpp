#include "layer/sharded_layer.hpp"

namespace meshplan::program {
ValueId ShardedLayer::add_value(Value value, Placement where, std::vector<ShardSection> cut) {
  block.values.push_back(std::move(value));
  placement.push_back(where);
  columns.push_back(std::move(cut));
  return static_cast<ValueId>(block.values.size()) - 1;
}

ValueId ShardedLayer::add_batch_value(std::string name, Storage storage,
                                      std::vector<models::Dim> shape, int index) {
  return add_value({.name = std::move(name),
                    .dtype = DType::I32,
                    .shape = std::move(shape),
                    .storage = storage,
                    .index = index},
                   Placement::Replicated);
}

void ShardedLayer::emit(std::string name, Phase phase, Lane lane, decltype(Operation::work) work,
                        std::vector<ValueId> inputs, std::vector<ValueId> outputs) {
  auto& operations = phase == Phase::Forward ? block.forward : block.backward;
  operations.push_back({.name = std::move(name),
                        .phase = phase,
                        .lane = lane,
                        .work = std::move(work),
                        .inputs = std::move(inputs),
                        .outputs = std::move(outputs)});
}

}  // namespace meshplan::program
