#include "program/attention_inputs.hpp"

#include "core/index.hpp"

namespace meshplan::program {

AttentionInputs attention_inputs(const std::vector<Value>& values, const Operation& attention) {
  const bool forward = attention.phase == Phase::Forward || attention.phase == Phase::Recompute;
  AttentionInputs found;
  // qkv (or q), or do, qkv, o and lse
  for (std::size_t i = forward ? 1 : 4; i < attention.inputs.size(); ++i) {
    const ValueId id = attention.inputs[i];
    switch (values[at(id)].storage) {
      case Storage::Parameter:
        found.sinks = id;
        break;
      case Storage::BatchKeyRanges:
        found.key_ranges = id;
        break;
      default:
        found.keys_values = id;
    }
  }
  return found;
}

}  // namespace meshplan::program
