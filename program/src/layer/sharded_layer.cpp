#include "layer/sharded_layer.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "core/index.hpp"

namespace meshplan::program {
namespace {

using models::Dim;
using models::Symbol;

constexpr std::int64_t kVocabularyMultiple = 128;

}  // namespace

ValueId ShardedLayer::add_value(Value value, Placement where, std::vector<ShardSection> cut) {
  block.values.push_back(std::move(value));
  placement.push_back(where);
  columns.push_back(std::move(cut));
  return static_cast<ValueId>(block.values.size()) - 1;
}

ValueId ShardedLayer::add_batch_value(std::string name, Storage storage, std::vector<Dim> shape,
                                      int index) {
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

ValueId root_of(const Block& block, ValueId id) {
  const auto alias = [&] { return block.values[static_cast<std::size_t>(id)].alias; };
  while (alias()) id = *alias();
  return id;
}

bool is_read_elsewhere(const Block& block, ValueId id, const Operation& reader) {
  const ValueId root = root_of(block, id);
  if (block.values[at(root)].storage != Storage::Transient) return true;
  const auto is_it = [&](ValueId other) { return root_of(block, other) == root; };
  for (const auto* operations : {&block.forward, &block.backward})
    for (const Operation& operation : *operations)
      if (&operation != &reader && std::ranges::any_of(operation.inputs, is_it)) return true;
  return false;
}

Dim element_count(const std::vector<Dim>& shape) {
  Dim total;
  for (const Dim& dim : shape) {
    total.count *= dim.count;
    total.divisor *= dim.divisor;
    if (dim.symbol == Symbol::One) continue;
    require_invariant(total.symbol == Symbol::One, "a shape with two symbols");
    total.symbol = dim.symbol;
  }
  return total;
}

std::int64_t padded_vocabulary(std::int64_t vocab_size, int tp) {
  const std::int64_t multiple = kVocabularyMultiple * tp;
  return (vocab_size + multiple - 1) / multiple * multiple;
}

}  // namespace meshplan::program
