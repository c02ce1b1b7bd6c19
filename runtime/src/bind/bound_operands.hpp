// Shared by the files that bind operations (bind_*.cpp): an instance's operands.
#pragma once

#include <vector>

#include "bind/binder_body.hpp"
#include "program/attention_inputs.hpp"
#include "program/memory/address.hpp"

namespace meshplan::runtime {

/// An instance with its operands' addresses, shapes and dtype.
struct OperatorBinder::Body::Operands {
  const program::Program& program;
  const models::SymbolValues& sizes;
  const program::OperationInstance& instance;
  const program::Operation& operation;
  const program::ComputeOp& work;
  const Resolve& resolve;

  bool forward() const {
    return operation.phase == program::Phase::Forward ||
           operation.phase == program::Phase::Recompute;
  }
  const program::Value& value(program::ValueId id) const {
    const auto& layer = program::layer_of(program, instance);
    return program.blocks[static_cast<std::size_t>(layer.block)]
        .values[static_cast<std::size_t>(id)];
  }
  template <class T = void>
  T* at(program::ValueId id) const {
    return reinterpret_cast<T*>(resolve(instance, id));
  }
  template <class T = void>
  T* in(std::size_t i) const {
    return at<T>(operation.inputs.at(i));
  }
  program::AttentionInputs attention_inputs() const {
    const auto& layer = program::layer_of(program, instance);
    return program::attention_inputs(program.blocks[static_cast<std::size_t>(layer.block)].values,
                                     operation);
  }
  /// @param beside  the last input is another operand
  void* optional_in(std::size_t i, bool beside = false) const {
    return i + (beside ? 1 : 0) < operation.inputs.size() ? in(i) : nullptr;
  }
  /// What a forward operation adds; null if it adds nothing.
  const void* residual() const {
    return work.adds_residual ? in(operation.inputs.size() - 1) : nullptr;
  }
  void* residual_sum() const {
    return work.adds_residual ? out(operation.outputs.size() - (work.keeps_largest ? 2 : 1))
                              : nullptr;
  }
  /// Where the largest number of the first output goes; null if nobody asks for it.
  float* largest() const {
    return work.keeps_largest ? out<float>(operation.outputs.size() - 1) : nullptr;
  }
  void* optional_out(std::size_t i) const {
    return i < operation.outputs.size() ? out(i) : nullptr;
  }
  /// What says where the documents of packed sequences lie; null without them.
  const std::int32_t* of_documents() const {
    return work.documents ? in<const std::int32_t>(operation.inputs.size() - 1) : nullptr;
  }
  template <class T = void>
  T* out(std::size_t i) const {
    return reinterpret_cast<T*>(resolve(instance, operation.outputs.at(i)));
  }
  /// Where the gradient of the parameter that input `i` is goes; null if that is frozen.
  float* gradient_of(std::size_t i) const {
    return gradient(value(operation.inputs.at(i)).index, true);
  }
  /// Where that of another parameter than input `i` goes; null if there is none.
  float* gradient_beside(std::size_t i) const {
    return gradient(value(operation.inputs.at(i)).index, false);
  }
  std::vector<std::int64_t> in_shape(std::size_t i) const {
    return program::local_shape(sizes, value(operation.inputs.at(i)));
  }
  std::vector<std::int64_t> out_shape(std::size_t i) const {
    return program::local_shape(sizes, value(operation.outputs.at(i)));
  }
  std::int64_t in_elements(std::size_t i) const {
    std::int64_t elements = 1;
    for (const std::int64_t size : in_shape(i)) elements *= size;
    return elements;
  }
  DType dtype() const { return program.plan.workload.precision; }

 private:
  /// The gradient of the layer's parameter `index`, or of any other.
  float* gradient(int index, bool same) const {
    for (std::size_t i = 0; i < operation.outputs.size(); ++i) {
      const program::Value& made = value(operation.outputs[i]);
      if (made.storage == program::Storage::Gradient && (made.index == index) == same)
        return out<float>(i);
    }
    return nullptr;
  }
};

/// Where keys and values lie beside a token's queries, in bytes, and from token to token, in
/// elements.
struct HeadsSideBySide {
  HeadsSideBySide(const models::OpAttributes& a, std::int64_t element)
      : keys(std::int64_t{a.heads} * a.head_size * element),
        values(keys + std::int64_t{a.kv_heads} * a.head_size * element),
        stride(values / element + std::int64_t{a.kv_heads} * a.value_head_size),
        output_stride(std::int64_t{a.heads} * a.value_head_size) {}

  std::int64_t keys, values;
  std::int64_t stride, output_stride;
};

/// What the plan says of attention's kernels.
kernels::AttentionChoice attention_choice(const program::Program& program);

/// @throws InvariantError for one that check(plan) refuses
kernels::ActivationKind kernel_kind(models::ActivationKind kind);

/// One call after the other.
inline std::function<void()> both(std::function<void()> first, std::function<void()> second) {
  return [first = std::move(first), second = std::move(second)] {
    first();
    second();
  };
}

}  // namespace meshplan::runtime
