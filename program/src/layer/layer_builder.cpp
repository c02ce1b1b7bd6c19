#include "layer/layer_builder.hpp"

#include <algorithm>
#include <fmt/format.h>

#include "core/error.hpp"
#include "core/index.hpp"
#include "layer/vocabulary.hpp"

namespace meshplan::program {

using models::Dim;
using models::Op;
using models::Symbol;
using models::Tensor;
using models::TensorClass;
using models::TensorId;

LayerBuilder::LayerBuilder(const models::LayerGraph& graph, const ShardContext& context)
    : graph_(graph), context_(context), current_(graph.tensors.size()) {
  layer_.block.name = graph.name;
}

Placement LayerBuilder::stream_placement() const {
  return context_.sp && sharded() ? Placement::TokensSharded : Placement::Replicated;
}

ValueId LayerBuilder::value(TensorId tensor) const {
  require_invariant(current_[at(tensor)].has_value(), "graph tensor read before it is made");
  return *current_[at(tensor)];
}

void LayerBuilder::set_value(TensorId tensor, ValueId value) {
  current_[at(tensor)] = value;
}

std::vector<Dim> LayerBuilder::local_dims(const Tensor& tensor, Placement where,
                                          const std::vector<ShardSection>& columns) const {
  std::vector<Dim> shape = tensor.shape;
  if (where == Placement::TokensSharded) shape.front().divisor *= context_.tp;
  if (where == Placement::FeaturesSharded) shape.back() = {.count = local_size(columns)};
  return shape;
}

DType LayerBuilder::dtype_of(TensorClass tensor_class) const {
  switch (tensor_class) {
    case TensorClass::Statistic:
      return DType::F32;
    case TensorClass::Index:
      return DType::I32;
    case TensorClass::Activation:
    case TensorClass::Parameter:
      return context_.compute;
  }
  throw InvariantError("tensor without a class");
}

/// How tp cuts a tensor's last dimension; empty if it cannot.
std::vector<ShardSection> LayerBuilder::columns_of(const Tensor& tensor) const {
  if (!sharded() || tensor.shape.size() < 2) return {};
  return sections_of(tensor, tensor.shape.size() - 1).value_or(std::vector<ShardSection>{});
}

ValueId LayerBuilder::add(TensorId id, Placement where, Made made) {
  const Tensor& tensor = graph_.tensors[at(id)];
  std::vector<ShardSection> columns = columns_of(tensor);
  if (made.like && tensor.sections.empty()) columns = layer_.columns[at(*made.like)];
  require_invariant(where != Placement::FeaturesSharded || !columns.empty(),
                    fmt::format("{}: tp = {} does not divide it", tensor.name, context_.tp));
  Value value{.name = tensor.name,
              .dtype = dtype_of(tensor.tensor_class),
              .shape = local_dims(tensor, where, columns),
              .storage = made.storage,
              .alias = made.alias};
  if (made.ranks > 1) value.shape.front().count *= made.ranks;
  current_[at(id)] = layer_.add_value(std::move(value), where, std::move(columns));
  return *current_[at(id)];
}

ValueId LayerBuilder::add_with_columns(TensorId id, Placement where,
                                       const std::vector<ShardSection>& columns) {
  Value value{.name = tensor(id).name,
              .dtype = dtype_of(tensor(id).tensor_class),
              .shape = {tensor(id).shape.front(), {.count = local_size(columns)}}};
  set_value(id, layer_.add_value(std::move(value), where, columns));
  return *current_[at(id)];
}

void LayerBuilder::emit(std::string name, Lane lane, decltype(Operation::work) work,
                        std::vector<ValueId> inputs, std::vector<ValueId> outputs) {
  layer_.emit(std::move(name), Phase::Forward, lane, std::move(work), std::move(inputs),
              std::move(outputs));
}

MoveTarget LayerBuilder::target(std::string name) const {
  return {.phase = Phase::Forward, .tp = context_.tp, .name = std::move(name)};
}

ValueId LayerBuilder::laid_out(TensorId tensor, Placement want) {
  const ValueId from = value(tensor);
  if (!sharded() || placement(from) == want) return from;
  const auto [entry, fresh] = moved_.try_emplace({from, want}, 0);
  if (fresh)
    entry->second = move_value(layer_, target(graph_.tensors[at(tensor)].name), from,
                               placement(from), want, layer_.columns[at(from)]);
  return entry->second;
}

bool LayerBuilder::is_laid_out(TensorId tensor, Placement want) const {
  const ValueId from = value(tensor);
  return placement(from) == want || moved_.contains({from, want});
}

ValueId LayerBuilder::whole_rows(TensorId tensor) {
  const bool cut = placement(value(tensor)) == Placement::FeaturesSharded;
  return cut ? laid_out(tensor, stream_placement()) : value(tensor);
}

ValueId LayerBuilder::whole_heads(TensorId tensor) {
  const bool cut = placement(value(tensor)) == Placement::TokensSharded;
  return cut ? laid_out(tensor, Placement::FeaturesSharded) : value(tensor);
}

void LayerBuilder::reduce(TensorId tensor, const std::string& op_name) {
  const ValueId from = value(tensor);
  if (placement(from) != Placement::Partial) return;
  current_[at(tensor)] = move_value(layer_, target(op_name), from, Placement::Partial,
                                    stream_placement(), layer_.columns[at(from)]);
}

/// How tp cuts a tensor along `dim`; nothing if it does not divide. Fewer heads than ranks are
/// not cut: each is held by as many ranks as there are to each head.
std::optional<std::vector<ShardSection>> LayerBuilder::sections_of(const Tensor& tensor,
                                                                   std::size_t dim) const {
  std::vector<std::int64_t> sizes = tensor.sections;
  const bool weight_columns = tensor.tensor_class == TensorClass::Parameter && dim != 0;
  if (sizes.empty() || weight_columns) sizes = {tensor.shape[dim].count};
  std::vector<ShardSection> sections;
  std::int64_t begin = 0;
  for (const std::int64_t size : sizes) {
    const std::int64_t heads = tensor.head_size > 0 ? size / tensor.head_size : context_.tp;
    const int copies = heads < context_.tp ? static_cast<int>(context_.tp / heads) : 1;
    if (size * copies % context_.tp != 0) return std::nullopt;
    sections.push_back({.begin = begin, .size = size * copies / context_.tp, .copies = copies});
    begin += size;
  }
  return sections;
}

std::vector<ShardSection> LayerBuilder::vocabulary_sections(std::int64_t vocab_size) const {
  return {{.begin = 0, .size = padded_vocabulary(vocab_size, context_.tp) / context_.tp}};
}

/// @param cut  absent = as the tensor's own sections say
void LayerBuilder::cut_parameter(Parameter& parameter, const Tensor& tensor, int dim,
                                 std::optional<std::vector<ShardSection>> cut) const {
  if (!cut) cut = sections_of(tensor, at(dim));
  require_invariant(cut.has_value(),
                    fmt::format("{}: tp = {} does not divide it", tensor.name, context_.tp));
  parameter.shard_dim = dim;
  parameter.sections = std::move(*cut);
  parameter.local_shape[at(dim)] = local_size(parameter.sections);
}

ValueId LayerBuilder::parameter(TensorId id, std::optional<int> dim,
                                std::optional<std::vector<ShardSection>> cut) {
  const auto [known, fresh] = parameters_.try_emplace(id, 0);
  if (!fresh) return known->second;
  const Tensor& tensor = graph_.tensors[at(id)];
  Parameter made{.name = tensor.name,
                 .init = tensor.init,
                 .weight_decay = tensor.weight_decay,
                 .trained = tensor.trained};
  for (const Dim& size : tensor.shape) made.global_shape.push_back(size.count);
  made.local_shape = made.global_shape;
  if (dim && (sharded() || cut)) cut_parameter(made, tensor, *dim, std::move(cut));
  std::vector<Dim> shape = tensor.shape;
  if (made.shard_dim) shape[at(*made.shard_dim)] = {.count = local_size(made.sections)};
  const int index = static_cast<int>(layer_.parameters.size());
  const Placement where = made.shard_dim ? Placement::FeaturesSharded : Placement::Replicated;
  const ValueId weight = layer_.add_value({.name = tensor.name,
                                           .dtype = context_.compute,
                                           .shape = shape,
                                           .storage = Storage::Parameter,
                                           .index = index},
                                          where);
  const ValueId gradient = layer_.add_value({.name = tensor.name + ".grad",
                                             .dtype = DType::F32,
                                             .shape = shape,
                                             .storage = Storage::Gradient,
                                             .index = index},
                                            where);
  layer_.parameters.push_back(
      {.parameter = std::move(made), .weight = weight, .gradient = gradient});
  known->second = weight;
  return weight;
}

ComputeOp LayerBuilder::compute(const Op& op, bool tokens_sharded, bool features_sharded) const {
  ComputeOp work{.kind = compute_kind(op.kind),
                 .split = op.split,
                 .attributes = op.attributes,
                 .tokens_sharded = tokens_sharded};
  if (features_sharded) {
    work.attributes.heads /= context_.tp;
    work.attributes.kv_heads = std::max(1, work.attributes.kv_heads / context_.tp);
  }
  return work;
}

void LayerBuilder::add_positions(ComputeOp& work, std::vector<ValueId>& inputs) {
  if (!context_.documents) return;
  work.documents = true;
  inputs.push_back(layer_.add_batch_value("positions", Storage::BatchPositions,
                                          {Dim{.symbol = Symbol::Tokens}}));
}

void LayerBuilder::add_key_ranges(ComputeOp& work, std::vector<ValueId>& inputs) {
  if (!context_.documents) return;
  work.documents = true;
  inputs.push_back(layer_.add_batch_value("key_ranges", Storage::BatchKeyRanges,
                                          {Dim{.symbol = Symbol::Tokens}, Dim{.count = 2}}));
}

}  // namespace meshplan::program
