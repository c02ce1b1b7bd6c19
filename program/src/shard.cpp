#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <utility>

#include "core/error.hpp"
#include "layout_moves.hpp"
#include "shard_context.hpp"
#include "shard_experts.hpp"
#include "sharded_layer.hpp"

namespace meshplan::program {
namespace {

using models::Dim;
using models::LayerGraph;
using models::Op;
using models::OpKind;
using models::Split;
using models::Symbol;
using models::Tensor;
using models::TensorClass;
using models::TensorId;

constexpr std::int64_t kVocabularyMultiple = 128;
constexpr std::int64_t kCrossEntropyStatistics = 3;

std::size_t at(int id) {
  return static_cast<std::size_t>(id);
}

/// What a new value is besides its name and shape.
struct Made {
  Storage storage = Storage::Transient;
  std::optional<ValueId> alias;
  std::optional<ValueId> like;  // a value of the same width, whose columns are cut alike
  int ranks = 1;                // of the cp group whose tokens it holds
};

// Walks one layer's graph and emits its sharded form.
class Sharder {
 public:
  Sharder(const LayerGraph& graph, const ShardContext& context) : graph_(graph), context_(context) {
    layer_.block.name = graph.name;
    current_.resize(graph.tensors.size());
  }

  ShardedLayer run() {
    if (graph_.input) {
      const Placement where = stream_placement();
      layer_.input = add(*graph_.input, where, {.storage = Storage::LayerInput});
    }
    for (const Op& op : graph_.ops) lower(op);
    if (graph_.output) {
      layer_.output = value(*graph_.output);
      layer_.block.values[at(layer_.root(*layer_.output))].storage = Storage::LayerOutput;
    }
    return std::move(layer_);
  }

 private:
  bool sharded() const { return context_.tp > 1; }
  /// Between the tensor-parallel regions.
  Placement stream_placement() const {
    return context_.sp && sharded() ? Placement::TokensSharded : Placement::Replicated;
  }
  ValueId value(TensorId tensor) const {
    require_invariant(current_[at(tensor)].has_value(), "graph tensor read before it is made");
    return *current_[at(tensor)];
  }
  Placement placement(ValueId id) const { return layer_.placement[at(id)]; }

  std::vector<Dim> local_dims(const Tensor& tensor, Placement where,
                              const std::vector<ShardSection>& columns) const {
    std::vector<Dim> shape = tensor.shape;
    if (where == Placement::TokensSharded) shape.front().divisor *= context_.tp;
    if (where == Placement::FeaturesSharded) shape.back() = {.count = local_size(columns)};
    return shape;
  }

  DType dtype_of(TensorClass tensor_class) const {
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
  std::vector<ShardSection> columns_of(const Tensor& tensor) const {
    if (!sharded() || tensor.shape.size() < 2) return {};
    return sections_of(tensor, tensor.shape.size() - 1).value_or(std::vector<ShardSection>{});
  }

  ValueId add(TensorId id, Placement where, Made made = {}) {
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

  void emit(std::string name, Lane lane, decltype(Operation::work) work,
            std::vector<ValueId> inputs, std::vector<ValueId> outputs) {
    layer_.block.forward.push_back({.name = std::move(name),
                                    .phase = Phase::Forward,
                                    .lane = lane,
                                    .work = std::move(work),
                                    .inputs = std::move(inputs),
                                    .outputs = std::move(outputs)});
  }

  void emit_collective(std::string name, Collective collective, ValueId from, ValueId to) {
    const Value& passed = layer_.block.values[at(from)];
    emit(std::move(name), Lane::Tp,
         CollectiveOp{.collective = collective,
                      .group = Group::Tp,
                      .dtype = passed.dtype,
                      .elements = element_count(passed.shape)},
         {from}, {to});
  }

  MoveTarget target(std::string name) const {
    return {.phase = Phase::Forward, .tp = context_.tp, .name = std::move(name)};
  }

  /// The tensor as an operation needs it. Who needs it so as well, gets the same value.
  ValueId laid_out(TensorId tensor, Placement want) {
    const ValueId from = value(tensor);
    if (!sharded() || placement(from) == want) return from;
    const auto [entry, fresh] = moved_.try_emplace({from, want}, 0);
    if (fresh)
      entry->second = move_value(layer_, target(graph_.tensors[at(tensor)].name), from,
                                 placement(from), want, layer_.columns[at(from)]);
    return entry->second;
  }

  /// For operations that need whole rows: all features of the tokens that are here.
  ValueId whole_rows(TensorId tensor) {
    const bool cut = placement(value(tensor)) == Placement::FeaturesSharded;
    return cut ? laid_out(tensor, stream_placement()) : value(tensor);
  }

  /// For operations that mix tokens: all tokens of the heads that are here.
  ValueId whole_heads(TensorId tensor) {
    const bool cut = placement(value(tensor)) == Placement::TokensSharded;
    return cut ? laid_out(tensor, Placement::FeaturesSharded) : value(tensor);
  }

  /// Sums a partial value; under SP every rank keeps its tokens of the sum.
  void reduce(TensorId tensor, const std::string& op_name) {
    const ValueId from = value(tensor);
    if (placement(from) != Placement::Partial) return;
    current_[at(tensor)] = move_value(layer_, target(op_name), from, Placement::Partial,
                                      stream_placement(), layer_.columns[at(from)]);
  }

  /// How tp cuts a tensor along `dim`; nothing if it does not divide. Fewer heads than ranks are
  /// not cut: each is held by as many ranks as there are to each head.
  std::optional<std::vector<ShardSection>> sections_of(const Tensor& tensor,
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

  std::vector<ShardSection> vocabulary_sections(std::int64_t vocab_size) const {
    return {{.begin = 0, .size = padded_vocabulary(vocab_size, context_.tp) / context_.tp}};
  }

  /// @param dim  that tp shards; absent = replicated
  /// @param cut  how, if another value decides it
  ValueId parameter(TensorId id, std::optional<int> dim,
                    std::optional<std::vector<ShardSection>> cut = std::nullopt) {
    const Tensor& tensor = graph_.tensors[at(id)];
    Parameter made{.name = tensor.name,
                   .init = tensor.init,
                   .weight_decay = tensor.weight_decay,
                   .trained = tensor.trained};
    std::vector<Dim> shape = tensor.shape;
    for (const Dim& size : tensor.shape) made.global_shape.push_back(size.count);
    made.local_shape = made.global_shape;
    if (dim && (sharded() || cut)) {
      made.shard_dim = *dim;
      if (!cut) cut = sections_of(tensor, at(*dim));
      require_invariant(cut.has_value(),
                        fmt::format("{}: tp = {} does not divide it", tensor.name, context_.tp));
      made.sections = std::move(*cut);
      const std::int64_t local = local_size(made.sections);
      made.local_shape[at(*dim)] = local;
      shape[at(*dim)] = {.count = local};
    }
    const int index = static_cast<int>(layer_.parameters.size());
    const Placement where = made.shard_dim < 0 ? Placement::Replicated : Placement::FeaturesSharded;
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
    return weight;
  }

  void lower(const Op& op) {
    if (experts_.owns(op)) return lower_experts(op);
    switch (op.kind) {
      case OpKind::Embedding:
        return lower_embedding(op);
      case OpKind::Linear:
        return lower_linear(op);
      case OpKind::CrossEntropy:
        return lower_cross_entropy(op);
      case OpKind::Rope:
        return op.inputs.size() == 2 ? lower_latent_rope(op)
                                     : lower_elementwise(op, /*in_place=*/true);
      case OpKind::Attention:
        if (context_.cp > 1) return lower_context_attention(op);
        return lower_elementwise(op, /*in_place=*/false);
      case OpKind::Slice:
        return lower_slice(op);
      case OpKind::LatentAttention:
        return lower_latent_attention(op);
      case OpKind::Router:
        return lower_router(op);
      case OpKind::PositionEmbedding:
      case OpKind::Scale:
      case OpKind::RmsNorm:
      case OpKind::LayerNorm:
      case OpKind::HeadRmsNorm:
      case OpKind::GatedActivation:
      case OpKind::Activation:
      case OpKind::SigmoidGate:
      case OpKind::Add:
        return lower_elementwise(op, /*in_place=*/false);
      default:
        throw InvariantError(
            fmt::format("operation '{}' has no lowering; check(plan) must refuse it", op.name));
    }
  }

  void lower_experts(const Op& op) {
    const ValueId first = value(op.inputs.front());
    const auto made = [&] {
      switch (op.kind) {
        case OpKind::Dispatch:
          return experts_.dispatch(op, first, value(op.inputs[1]));
        case OpKind::GroupedLinear:
          return experts_.grouped_linear(op, first);
        case OpKind::Activation:
        case OpKind::GatedActivation:
          return experts_.activation(op, first);
        case OpKind::Combine:
          return experts_.combine(op, first, value(op.inputs[1]));
        default:
          throw InvariantError(op.name + ": no lowering on routed rows");
      }
    }();
    current_[at(op.outputs.front())] = made;
  }

  ComputeOp compute(const Op& op, bool tokens_sharded, bool features_sharded) const {
    ComputeOp work{.kind = op.kind,
                   .split = op.split,
                   .attributes = op.attributes,
                   .tokens_sharded = tokens_sharded};
    if (features_sharded) {
      work.attributes.heads /= context_.tp;
      work.attributes.kv_heads = std::max(1, work.attributes.kv_heads / context_.tp);
    }
    return work;
  }

  ValueId operand(const Op& op, TensorId input) {
    switch (op.kind) {
      case OpKind::Rope:
      case OpKind::HeadRmsNorm:
      case OpKind::Attention:
        return whole_heads(input);
      case OpKind::Scale:
      case OpKind::Activation:
      case OpKind::GatedActivation:
        return value(input);
      default:
        return whole_rows(input);
    }
  }

  /// Works on each token (or head) alone: the output is laid out as the input.
  void lower_elementwise(const Op& op, bool in_place) {
    std::vector<ValueId> inputs;
    for (const TensorId input : op.inputs) inputs.push_back(operand(op, input));
    const Placement where = placement(inputs.front());
    require_invariant(where != Placement::Partial, op.name + " reads a partial sum");
    const bool same_columns = graph_.tensors[at(op.inputs.front())].shape.back() ==
                              graph_.tensors[at(op.outputs.front())].shape.back();
    Made first{.like = same_columns ? std::optional(inputs.front()) : std::nullopt};
    if (in_place) first.alias = inputs.front();
    for (const TensorId id : op.parameters) inputs.push_back(parameter(id, std::nullopt));
    std::vector<ValueId> outputs;
    for (const TensorId output : op.outputs)
      outputs.push_back(add(output, where, outputs.empty() ? first : Made{}));
    ComputeOp work =
        compute(op, where == Placement::TokensSharded, where == Placement::FeaturesSharded);
    if (op.kind == OpKind::Attention) add_key_ranges(work, inputs);
    if (op.kind == OpKind::Rope || op.kind == OpKind::PositionEmbedding)
      add_positions(work, inputs);
    emit(op.name, Lane::Compute, work, inputs, outputs);
  }

  /// Packed documents: where each row is in its own, whatever part of the rows is here.
  void add_positions(ComputeOp& work, std::vector<ValueId>& inputs) {
    if (!context_.documents) return;
    work.documents = true;
    inputs.push_back(layer_.add_batch_value("positions", Storage::BatchPositions,
                                            {Dim{.symbol = Symbol::Tokens}}));
  }
  /// And which keys each query sees.
  void add_key_ranges(ComputeOp& work, std::vector<ValueId>& inputs) {
    if (!context_.documents) return;
    work.documents = true;
    inputs.push_back(layer_.add_batch_value("key_ranges", Storage::BatchKeyRanges,
                                            {Dim{.symbol = Symbol::Tokens}, Dim{.count = 2}}));
  }

  void lower_context_attention(const Op& op) {
    const ValueId qkv = operand(op, op.inputs.front());
    const bool heads_cut = placement(qkv) == Placement::FeaturesSharded;
    attend_over_ranks(op, compute(op, /*tokens_sharded=*/false, heads_cut), qkv);
  }

  void attend_over_ranks(const Op& op, const ComputeOp& attention, ValueId qkv) {
    const ValueId o = add(op.outputs.front(), placement(qkv));
    attended(op, context_sharder_.attend(op.name, attention, qkv, o));
  }
  void attended(const Op& op, const ContextSharder::Attended& made) {
    current_[at(op.outputs.front())] = made.o;
    current_[at(op.outputs.back())] = made.lse;
  }

  /// Two parts of the columns, which no rank cuts.
  void lower_slice(const Op& op) {
    const ValueId x = whole_rows(op.inputs.front());
    const Placement where = placement(x);
    std::vector<ValueId> parts;
    for (const TensorId part : op.outputs) parts.push_back(add(part, where));
    emit(op.name, Lane::Compute, compute(op, where == Placement::TokensSharded, false), {x}, parts);
  }

  // Latent attention: heads are sharded, the latent projections and the rotated part of the keys,
  // which all heads share, are not.

  void rotate(const std::string& name, ComputeOp work, ValueId x, TensorId out) {
    const ValueId y = add(out, placement(x), {.alias = x});
    work.attributes.rope_offset = work.attributes.head_size - work.attributes.rope_size;
    std::vector<ValueId> inputs = {x};
    add_positions(work, inputs);
    emit(name, Lane::Compute, work, inputs, {y});
  }

  void lower_latent_rope(const Op& op) {
    const ValueId q = whole_heads(op.inputs[0]);
    ComputeOp work = compute(op, false, placement(q) == Placement::FeaturesSharded);
    work.attributes.kv_heads = 0;
    rotate(op.name, work, q, op.outputs[0]);
    work.attributes.heads = 1;
    work.attributes.head_size = work.attributes.rope_size;
    rotate(op.name + ".k", work, laid_out(op.inputs[1], Placement::Replicated), op.outputs[1]);
  }

  /// Whole heads side by side, out of `parts`: [queries,] own parts of keys and values, and the
  /// part of the keys that all heads share.
  ValueId latent_heads(const Op& op, const std::string& name, const std::vector<ValueId>& parts) {
    const models::OpAttributes& all = op.attributes;
    const ValueId kv = parts[parts.size() - 2];
    const Placement where = placement(kv);
    std::vector<int> head_sizes = {all.head_size, all.value_head_size};
    if (parts.size() > 2) head_sizes.insert(head_sizes.begin(), all.head_size);
    std::vector<ShardSection> columns;
    std::int64_t begin = 0;
    for (const int head_size : head_sizes) {
      const std::int64_t width = std::int64_t{all.heads} * head_size;
      columns.push_back({.begin = begin, .size = width / (sharded() ? context_.tp : 1)});
      begin += width;
    }
    ComputeOp work = compute(op, false, where == Placement::FeaturesSharded);
    work.kind = OpKind::LatentHeads;
    const ValueId heads = layer_.add_value(
        {.name = name,
         .dtype = context_.compute,
         .shape = {layer_.block.values[at(kv)].shape.front(), {.count = local_size(columns)}}},
        where, sharded() ? columns : std::vector<ShardSection>{});
    emit(name, Lane::Compute, work, parts, {heads});
    return heads;
  }

  /// An attention like any other after queries, keys and values lie side by side.
  void lower_latent_attention(const Op& op) {
    const ValueId q = whole_heads(op.inputs[0]);
    const ValueId kv = whole_heads(op.inputs[1]);
    const ValueId k_rope = laid_out(op.inputs[2], Placement::Replicated);
    const Placement where = placement(q);
    ComputeOp work = compute(op, false, where == Placement::FeaturesSharded);
    work.kind = OpKind::Attention;
    if (gathers_latents()) {
      const ValueId all_k_rope =
          context_sharder_.gather(graph_.tensors[at(op.inputs[2])].name, k_rope);
      const ValueId heads = latent_heads(op, op.name + ".heads", {kv, all_k_rope});
      const ValueId o = add(op.outputs.front(), where);
      return attended(op, context_sharder_.attend_to_all(op.name, work, q, heads, o));
    }
    const ValueId qkv = latent_heads(op, op.name + ".heads", {q, kv, k_rope});
    if (context_.cp > 1) return attend_over_ranks(op, work, qkv);
    const ValueId out = add(op.outputs[0], where);
    std::vector<ValueId> inputs = {qkv};
    add_key_ranges(work, inputs);
    emit(op.name, Lane::Compute, work, inputs, {out, add(op.outputs[1], where)});
  }

  void lower_router(const Op& op) {
    const ValueId x = whole_rows(op.inputs.front());
    const Placement where = placement(x);
    std::vector<ValueId> inputs = {x};
    for (const TensorId id : op.parameters) inputs.push_back(parameter(id, std::nullopt));
    std::vector<ValueId> outputs;
    for (const TensorId output : op.outputs) outputs.push_back(add(output, where));
    const ComputeOp work = compute(op, where == Placement::TokensSharded, false);
    current_[at(op.outputs[1])] = experts_.route(op, work, std::move(inputs), std::move(outputs));
  }

  void lower_embedding(const Op& op) {
    const ValueId ids = layer_.add_value({.name = "ids",
                                          .dtype = DType::I32,
                                          .shape = graph_.tensors[at(op.inputs.front())].shape,
                                          .storage = Storage::BatchIds},
                                         Placement::Replicated);
    const Tensor& table = graph_.tensors[at(op.parameters.front())];
    const ValueId weight =
        parameter(op.parameters.front(), 0, vocabulary_sections(table.shape.front().count));
    const ValueId out =
        add(op.outputs.front(), sharded() ? Placement::Partial : Placement::Replicated);
    emit(op.name, Lane::Compute, compute(op, false, false), {ids, weight}, {out});
    reduce(op.outputs.front(), op.name);
  }

  ValueId linear_input(const Op& op) {
    const TensorId x = op.inputs.front();
    if (op.split == Split::None) return whole_rows(x);
    return laid_out(x, op.split == Split::Row ? Placement::FeaturesSharded : Placement::Replicated);
  }

  /// How tp cuts a linear's weight: like the features that it makes, or like those that it reads.
  std::optional<std::vector<ShardSection>> weight_cut(const Op& op, ValueId x) const {
    if (op.split == Split::Vocab)
      return vocabulary_sections(graph_.tensors[at(op.parameters.front())].shape.front().count);
    if (op.split == Split::Row && sharded()) return layer_.columns[at(x)];
    return std::nullopt;
  }

  /// Of latent attention over cp: the latent values of all ranks are gathered, which are narrower
  /// than the keys and values that each rank makes of them for its heads.
  bool gathers_latents() const {
    return context_.cp > 1 && context_.method == ContextMethod::AllGather;
  }
  bool expands_latents(const Op& op) const {
    return gathers_latents() && std::ranges::any_of(graph_.ops, [&](const Op& other) {
             return other.kind == OpKind::LatentAttention && other.inputs[1] == op.outputs.front();
           });
  }

  void lower_linear(const Op& op) {
    const bool vocabulary = op.split == Split::Vocab;
    const bool column = op.split == Split::Column || vocabulary;
    const bool row = op.split == Split::Row;
    const bool has_bias = op.parameters.size() > 1;
    const bool deferred_bias = has_bias && row && sharded();
    const TensorId out = op.outputs.front();
    const bool expands = expands_latents(op);
    ValueId x = linear_input(op);
    if (expands) x = context_sharder_.gather(graph_.tensors[at(op.inputs.front())].name, x);
    const auto cut = weight_cut(op, x);
    std::optional<int> dim;
    if (column || row) dim = column ? 0 : 1;
    std::vector<ValueId> inputs = {x, parameter(op.parameters.front(), dim, cut)};
    if (has_bias && !deferred_bias)
      inputs.push_back(
          parameter(op.parameters[1], column ? dim : std::nullopt, column ? cut : std::nullopt));
    Placement where = placement(x);
    if (sharded() && column) where = Placement::FeaturesSharded;
    if (sharded() && row) where = Placement::Partial;
    const ValueId y = vocabulary ? add_logits(op, where, *cut)
                                 : add(out, where, Made{.ranks = expands ? context_.cp : 1});
    emit(op.name, Lane::Compute,
         compute(op, where == Placement::TokensSharded, where == Placement::FeaturesSharded),
         inputs, {y});
    reduce(out, op.name);
    if (deferred_bias) add_bias(op, out);
  }

  /// Logits are as wide as the padded vocabulary.
  ValueId add_logits(const Op& op, Placement where, const std::vector<ShardSection>& cut) {
    const TensorId out = op.outputs.front();
    const Tensor& tensor = graph_.tensors[at(out)];
    Value logits{.name = tensor.name,
                 .dtype = dtype_of(tensor.tensor_class),
                 .shape = {tensor.shape.front(), {.count = local_size(cut)}}};
    current_[at(out)] = layer_.add_value(std::move(logits), where, cut);
    return *current_[at(out)];
  }

  /// The bias of a row-parallel linear is added once, after the sum over the group.
  void add_bias(const Op& op, TensorId out) {
    const ValueId x = value(out);
    const ValueId bias = parameter(op.parameters[1], std::nullopt);
    Value with_bias = layer_.block.values[at(x)];
    with_bias.alias = x;
    const ValueId y = layer_.add_value(std::move(with_bias), placement(x), layer_.columns[at(x)]);
    current_[at(out)] = y;
    emit(op.name + ".bias", Lane::Compute,
         ComputeOp{.kind = OpKind::BiasAdd, .tokens_sharded = layer_.tokens_sharded(x)}, {x, bias},
         {y});
  }

  /// Each rank sums over its part of the vocabulary, or, where the logits are whole, over all of
  /// it.
  void lower_cross_entropy(const Op& op) {
    const bool cut = context_.vocab_parallel_loss &&
                     placement(value(op.inputs.front())) == Placement::FeaturesSharded;
    const ValueId logits =
        laid_out(op.inputs.front(), cut ? Placement::FeaturesSharded : Placement::Replicated);
    const Split split = cut ? Split::Vocab : Split::None;
    layer_.logits = logits;
    const Dim tokens = graph_.tensors[at(op.inputs.front())].shape.front();
    const ValueId targets = layer_.add_value({.name = "targets",
                                              .dtype = DType::I32,
                                              .shape = {tokens},
                                              .storage = Storage::BatchTargets},
                                             Placement::Replicated);
    ValueId statistics = layer_.add_value(
        {.name = "statistics", .shape = {tokens, {.count = kCrossEntropyStatistics}}},
        Placement::Replicated);
    emit(op.name + ".local", Lane::Compute,
         ComputeOp{.kind = OpKind::CrossEntropyLocal, .split = split, .attributes = op.attributes},
         {logits, targets}, {statistics});
    if (cut) {
      const ValueId all = layer_.add_value(
          {.name = "statistics.gathered",
           .shape = {{.count = context_.tp}, tokens, {.count = kCrossEntropyStatistics}}},
          Placement::Replicated);
      emit_collective(op.name + ".all_gather", Collective::AllGather, statistics, all);
      statistics = all;
    }
    const ValueId loss = add(op.outputs.front(), Placement::Replicated);
    const ValueId lse = add(op.outputs.back(), Placement::Replicated);
    emit(
        op.name + ".combine", Lane::Compute,
        ComputeOp{.kind = OpKind::CrossEntropyCombine, .split = split, .attributes = op.attributes},
        {statistics, targets}, {loss, lse});
    const ValueId sum = layer_.add_value(
        {.name = "loss_sum", .dtype = DType::F64, .shape = {{}}, .storage = Storage::LossScalar},
        Placement::Replicated);
    emit(op.name + ".sum", Lane::Compute, ComputeOp{.kind = OpKind::SumLoss}, {loss}, {sum});
  }

  const LayerGraph& graph_;
  ShardContext context_;
  ShardedLayer layer_;
  ExpertSharder experts_{graph_, context_, layer_};
  ContextSharder context_sharder_{context_, layer_};
  std::vector<std::optional<ValueId>> current_;  // by graph tensor: the value that now holds it
  std::map<std::pair<ValueId, Placement>, ValueId> moved_;
};

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

ValueId ShardedLayer::root(ValueId id) const {
  while (block.values[at(id)].alias) id = *block.values[at(id)].alias;
  return id;
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

ShardedLayer shard(const LayerGraph& graph, const ShardContext& context) {
  return Sharder(graph, context).run();
}

}  // namespace meshplan::program
