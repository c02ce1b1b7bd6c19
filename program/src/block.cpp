#include "program/block.hpp"

#include <algorithm>

#include "core/index.hpp"

namespace meshplan::program {

ValueId root_of(const Block& block, ValueId id) {
  const auto alias = [&] { return block.values[at(id)].alias; };
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

}  // namespace meshplan::program
