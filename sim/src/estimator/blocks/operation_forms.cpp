#include "estimator/blocks/operation_forms.hpp"

#include "core/index.hpp"

namespace meshplan::sim {
namespace {

using program::Phase;

/// Fields that neither the cost of an operation nor its signature reads.
template <class... Fields>
void costs_nothing(const Fields&... /*fields*/) {}

// All fields by name: one that is added does not compile until it has its place.

void add_dim(CacheKey& key, const models::Dim& dim) {
  const auto& [count, symbol, divisor] = dim;
  key.add(count);
  key.add(symbol);
  key.add(divisor);
}

void add_value(CacheKey& key, const program::Value& value) {
  const auto& [name, dtype, shape, storage, index, offset_bytes, bytes, keep, float8_size, alias] =
      value;
  costs_nothing(name, index, offset_bytes, bytes, keep, float8_size, alias);
  key.add(dtype);
  key.add(storage);
  key.add(shape.size());
  for (const models::Dim& dim : shape) add_dim(key, dim);
}

void add_attributes(CacheKey& key, const models::OpAttributes& attributes) {
  const auto& [heads, kv_heads, head_size, value_head_size, causal, window, chunk, selected_keys,
               compression, alibi, scale, softcap, epsilon, rope_base, rope_size, rope_offset,
               rope_scaling, activation, num_experts, top_k, router, linear_attention, mamba,
               detached, norm_group, gate_first, prediction] = attributes;
  costs_nothing(alibi, scale, epsilon, rope_base, rope_offset, rope_scaling, top_k, router,
                detached, gate_first, prediction);
  key.add(chunk);
  key.add(selected_keys);
  key.add(compression);
  key.add(norm_group);
  key.add(linear_attention ? 1 + static_cast<int>(linear_attention->kind) : 0);
  key.add(mamba ? mamba->version : 0);
  key.add(heads);
  key.add(kv_heads);
  key.add(head_size);
  key.add(value_head_size);
  key.add(causal);
  key.add(window);
  key.add(softcap);
  key.add(rope_size);
  key.add(activation);
  key.add(num_experts);
}

void add_work(CacheKey& key, const program::ComputeOp& work) {
  const auto& [kind, split, attributes, tokens_sharded, reverse, columns, over, fused_activation,
               adds_residual, ring_step, documents, cast, keeps_largest] = work;
  costs_nothing(split, tokens_sharded, reverse, columns, over);
  key.add(kind);
  add_attributes(key, attributes);
  key.add(fused_activation);
  key.add(adds_residual);
  key.add(ring_step);
  key.add(documents);
  key.add(keeps_largest);
  key.add(cast.has_value());
  if (!cast) return;
  const auto& [gradient, rows, by_columns, largest] = *cast;
  key.add(gradient);
  key.add(rows);
  key.add(by_columns);
  key.add(largest);
}

void add_work(CacheKey& key, const program::CollectiveOp& work) {
  const auto& [collective, group, reduce, dtype, elements, row_elements, reverse] = work;
  costs_nothing(reduce, row_elements, reverse);
  key.add(collective);
  key.add(group);
  key.add(dtype);
  add_dim(key, elements);
}

}  // namespace

OperationForms::Numbers OperationForms::numbers_of(const program::Program& program) {
  Numbers numbers;
  numbers.reserve(2 * program.blocks.size());
  for (const program::Block& block : program.blocks)
    for (const auto* operations : {&block.forward, &block.backward}) {
      std::vector<int>& own = numbers.emplace_back();
      own.reserve(operations->size());
      for (const program::Operation& operation : *operations)
        own.push_back(number_of(block, operation));
    }
  return numbers;
}

int OperationForms::number_of(const program::Block& block, const program::Operation& operation) {
  const auto& [name, phase, lane, work, inputs, outputs, deferrable, once_per_step, modules] =
      operation;
  costs_nothing(name, lane, deferrable, once_per_step, modules);
  key_.set(program::is_forward(phase) ? Phase::Forward : phase, work.index());
  if (const auto* compute = std::get_if<program::ComputeOp>(&work))
    add_work(key_, *compute);
  else
    add_work(key_, std::get<program::CollectiveOp>(work));  // a layer has nothing else
  for (const auto* operands : {&inputs, &outputs}) {
    key_.add(operands->size());
    for (const program::ValueId id : *operands) add_value(key_, block.values[at(id)]);
  }
  return numbers_.try_emplace(key_, static_cast<int>(numbers_.size())).first->second;
}

}  // namespace meshplan::sim
