#include "memory/block_memory.hpp"

#include <algorithm>
#include <numeric>

#include "core/error.hpp"
#include "core/index.hpp"

namespace meshplan::program {
namespace {

// A transient value of one direction: alive over operations [first, last].
struct Lifetime {
  ValueId root = 0;
  std::int64_t bytes = 0;
  int first = 0;
  int last = 0;
  std::int64_t offset = 0;
};

/// The last operation that may run while a communication is still reading: the one before the first
/// that touches what it makes. Reusing its operands earlier would make the operations in between
/// wait for it.
int end_of_reading(const Block& block, const std::vector<Operation>& operations, int index) {
  const Operation& operation = operations[at(index)];
  if (operation.lane == Lane::Compute) return index;
  const auto made_here = [&](ValueId id) {
    return std::ranges::any_of(operation.outputs, [&](ValueId made) {
      return root_of(block, made) == root_of(block, id);
    });
  };
  int last = index;
  while (last + 1 < static_cast<int>(operations.size()) &&
         std::ranges::none_of(operations[at(last + 1)].inputs, made_here) &&
         std::ranges::none_of(operations[at(last + 1)].outputs, made_here))
    ++last;
  return last;
}

std::vector<Lifetime> lifetimes(const Block& block, const std::vector<Operation>& operations) {
  constexpr int kUnseen = -1;
  std::vector<int> place_of(block.values.size(), kUnseen);  // in the list, by root
  std::vector<Lifetime> list;
  for (int i = 0; i < static_cast<int>(operations.size()); ++i) {
    const auto touch = [&](ValueId id, int last) {
      const ValueId root = root_of(block, id);
      const Value& value = block.values[at(root)];
      if (value.storage != Storage::Transient) return;
      int& place = place_of[at(root)];
      if (place == kUnseen) {
        place = static_cast<int>(list.size());
        list.push_back({.root = root, .bytes = value.bytes, .first = i});
      }
      list[at(place)].last = std::max(list[at(place)].last, last);
    };
    const int end = end_of_reading(block, operations, i);
    for (const ValueId id : operations[at(i)].inputs) touch(id, end);
    for (const ValueId id : operations[at(i)].outputs) touch(id, i);
  }
  std::ranges::sort(list, {}, &Lifetime::root);
  return list;
}

/// Offsets such that values alive at the same time do not overlap: largest first, each at the
/// lowest free place ("greedy by size", Pisarchyk & Lee 2020, section 5.2). @returns the bytes used
std::int64_t pack(std::vector<Lifetime>& values) {
  std::ranges::stable_sort(values, std::ranges::greater{}, &Lifetime::bytes);
  std::int64_t used = 0;
  std::vector<const Lifetime*> placed;  // by offset
  placed.reserve(values.size());
  for (Lifetime& value : values) {
    for (const Lifetime* other : placed) {
      if (other->first > value.last || value.first > other->last) continue;
      if (value.offset + value.bytes <= other->offset) break;
      value.offset = std::max(value.offset, other->offset + other->bytes);
    }
    placed.insert(std::ranges::upper_bound(placed, value.offset, {}, &Lifetime::offset), &value);
    used = std::max(used, value.offset + value.bytes);
  }
  return used;
}

std::int64_t aligned_bytes(const Value& value, const models::SymbolValues& sizes) {
  std::int64_t bytes = size_of(value.dtype);
  for (const models::Dim& dim : value.shape) bytes *= models::evaluate(dim, sizes);
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

/// What is asked for with every instance of the block.
void note_values(Block& block, const models::SymbolValues& sizes) {
  const auto first_with = [&](Storage storage) -> std::optional<ValueId> {
    const auto found = std::ranges::find_if(
        block.values, [&](const Value& value) { return value.storage == storage && !value.alias; });
    if (found == block.values.end()) return std::nullopt;
    return static_cast<ValueId>(found - block.values.begin());
  };
  block.input = first_with(Storage::LayerInput);
  block.output_gradient = first_with(Storage::LayerOutputGrad);
  for (Value& value : block.values) {
    value.bytes = aligned_bytes(value, sizes);
    if (value.alias) value.alias = root_of(block, *value.alias);  // a ring's chains are long
  }
}

/// What a layer may receive from another stage comes first in its class: it arrives before the
/// rest, at a place of its own.
void place_kept(Block& block) {
  block.kept_bytes = {};
  const auto bytes_of = [&](Keep keep) -> std::int64_t& {
    return block.kept_bytes[static_cast<std::size_t>(keep)];
  };
  for (const bool arrives : {true, false})
    for (Value& value : block.values) {
      if (!is_kept(value) || value.alias || arrives == (value.storage == Storage::Saved)) continue;
      value.offset_bytes = bytes_of(value.keep);
      bytes_of(value.keep) += value.bytes;
      if (!arrives || value.keep == Keep::InForward) continue;
      require_invariant(value.offset_bytes == 0, "a layer has one input and one output");
      bytes_of(value.storage == Storage::LayerInput ? Keep::Arriving : Keep::ArrivingGradient) =
          bytes_of(value.keep);
    }
}

}  // namespace

void plan_block_memory(Block& block, const models::SymbolValues& sizes) {
  note_values(block, sizes);
  block.quantized_bytes = 0;
  for (Value& value : block.values) {
    if (value.storage == Storage::QuantizedWeight) {
      value.offset_bytes = block.quantized_bytes;
      block.quantized_bytes += value.bytes;
    }
  }
  place_kept(block);
  block.saved_bytes = block.kept_bytes[static_cast<std::size_t>(Keep::UntilInputGrad)] +
                      block.kept_bytes[static_cast<std::size_t>(Keep::UntilWeightGrad)];
  block.transient_bytes = 0;
  for (const auto* operations : {&block.forward, &block.backward}) {
    std::vector<Lifetime> values = lifetimes(block, *operations);
    block.transient_bytes = std::max(block.transient_bytes, pack(values));
    for (const Lifetime& placed : values)
      block.values[at(placed.root)].offset_bytes = placed.offset;
  }
}

}  // namespace meshplan::program
