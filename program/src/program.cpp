#include "program/program.hpp"

#include <algorithm>

#include "core/index.hpp"

namespace meshplan::program {

const LayerInstance& layer_of(const Program& program, const OperationInstance& instance) {
  return program.layers[at(instance.layer.value())];
}

std::string text_of(const Program& program, const OperationInstance& instance) {
  std::string text = operation_of(program, instance).name;
  if (instance.microbatch) text += " of micro-batch " + std::to_string(*instance.microbatch);
  return text;
}

std::set<Group> groups_used(const Program& program) {
  std::set<Group> used;
  const auto note = [&used](const Operation& operation) {
    if (const CollectiveOp* collective = collective_of(operation)) used.insert(collective->group);
  };
  std::ranges::for_each(program.step_operations, note);
  for (const Block& block : program.blocks) {
    std::ranges::for_each(block.forward, note);
    std::ranges::for_each(block.backward, note);
  }
  return used;
}

std::optional<int> chunk_after(const Program& program, int chunk) {
  const Chunk& own = program.chunks[at(chunk)];
  if (own.next_stage != program.role.stage) return std::nullopt;
  const auto found =
      std::ranges::find(program.chunks, own.virtual_stage + 1, &Chunk::virtual_stage);
  return static_cast<int>(found - program.chunks.begin());
}

std::optional<int> chunk_before(const Program& program, int chunk) {
  const Chunk& own = program.chunks[at(chunk)];
  if (own.previous_stage != program.role.stage) return std::nullopt;
  const auto found =
      std::ranges::find(program.chunks, own.virtual_stage - 1, &Chunk::virtual_stage);
  return static_cast<int>(found - program.chunks.begin());
}

std::vector<std::int64_t> local_shape(const Program& program, const Value& value) {
  return local_shape(program.sizes, value);
}

}  // namespace meshplan::program
