// Walks a layer's unsharded graph and emits its sharded form: each operation says how it must find
// its inputs, and LayerBuilder brings them there.
#include "passes/shard.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <map>

#include "core/error.hpp"
#include "core/index.hpp"
#include "experts/shard_experts.hpp"
#include "layer/layer_builder.hpp"
#include "passes/shard_attention.hpp"

namespace meshplan::program {
namespace {

using models::Dim;
using models::LayerGraph;
using models::Op;
using models::OpKind;
using models::Split;
using models::TensorId;

constexpr std::int64_t kCrossEntropyStatistics = 3;

class Sharder {
 public:
  Sharder(const LayerGraph& graph, const ShardContext& context)
      : graph_(graph), context_(context) {}

  ShardedLayer run() {
    if (graph_.input)
      layer_.input =
          build_.add(*graph_.input, build_.stream_placement(), {.storage = Storage::LayerInput});
    for (const Op& op : graph_.ops) {
      const std::size_t before = layer_.block.forward.size();
      lower(op);
      note_modules(op, before);
    }
    if (graph_.output) {
      layer_.output = build_.value(*graph_.output);
      layer_.block.values[at(layer_.root(*layer_.output))].storage = Storage::LayerOutput;
    }
    return build_.take();
  }

 private:
  /// What was emitted for an operation of the graph, from `begin` on, is of its modules.
  void note_modules(const Op& op, std::size_t begin) {
    models::ModuleSet of_several = op.modules;  // what brings a norm its rows is no norm
    for (const models::Module single :
         {models::Module::Norms, models::Module::Activations, models::Module::MoeAct})
      of_several.remove(single);
    for (std::size_t i = begin; i < layer_.block.forward.size(); ++i) {
      Operation& made = layer_.block.forward[i];
      const auto* work = std::get_if<ComputeOp>(&made.work);
      if (work != nullptr && work->kind == ComputeKind::LatentHeads)
        made.modules = {models::Module::MlaUpProj};  // attention reads them, it does not make them
      else
        made.modules =
            work != nullptr && work->kind == compute_kind(op.kind) ? op.modules : of_several;
    }
  }

  void lower(const Op& op) {
    if (experts_.owns(op)) return lower_experts(op);
    switch (op.kind) {
      case OpKind::Embedding:
        if (reads_token_types(op)) return remember_token_types(op);
        return lower_embedding(op);
      case OpKind::Linear:
        return lower_linear(op);
      case OpKind::Pool:
        return lower_pool(op);
      case OpKind::CrossEntropy:
        return lower_cross_entropy(op);
      case OpKind::Rope:
        if (op.inputs.size() == 2) return attention_.latent_rope(op);
        if (op.attributes.kv_heads == 0) return attention_.index_rope(op);
        return lower_elementwise(op, /*in_place=*/true);
      case OpKind::SelectKeys:
        return attention_.select_keys(op);
      case OpKind::Attention:
        if (op.attributes.selected_keys > 0) return attention_.sparse(op);
        if (context_.cp > 1) return attention_.over_ranks(op);
        return lower_elementwise(op, /*in_place=*/false);
      case OpKind::Slice:
        return lower_slice(op);
      case OpKind::Concat:
        return lower_concat(op);
      case OpKind::LatentAttention:
        return attention_.latent(op);
      case OpKind::Router:
        return lower_router(op);
      case OpKind::ShortConvolution:
      case OpKind::GatedNorm:
      case OpKind::LinearAttention:
      case OpKind::StateSpace:
        return lower_mixer(op);
      case OpKind::PositionEmbedding:
      case OpKind::Scale:
      case OpKind::RmsNorm:
      case OpKind::LayerNorm:
      case OpKind::HeadRmsNorm:
      case OpKind::GatedActivation:
      case OpKind::Activation:
      case OpKind::SigmoidGate:
        return lower_elementwise(op, /*in_place=*/false);
      case OpKind::Add:
        if (token_types_.contains(op.inputs.back())) return add_token_type(op);
        return lower_elementwise(op, /*in_place=*/false);
      default:
        throw InvariantError(
            fmt::format("operation '{}' has no lowering; check(plan) must refuse it", op.name));
    }
  }

  void lower_experts(const Op& op) {
    const ValueId first = build_.value(op.inputs.front());
    const auto made = [&] {
      switch (op.kind) {
        case OpKind::Dispatch:
          return experts_.dispatch(op, first, build_.value(op.inputs[1]));
        case OpKind::GroupedLinear:
          return experts_.grouped_linear(op, first);
        case OpKind::Activation:
        case OpKind::GatedActivation:
          return experts_.activation(op, first);
        case OpKind::Combine:
          return experts_.combine(op, first, build_.value(op.inputs[1]));
        default:
          throw InvariantError(op.name + ": no lowering on routed rows");
      }
    }();
    build_.set_value(op.outputs.front(), made);
  }

  /// Are the features of all that it reads divided over tp?
  bool all_cut(const Op& op) const {
    return std::ranges::all_of(op.inputs, [&](TensorId input) {
      return build_.placement(build_.value(input)) == Placement::FeaturesSharded;
    });
  }

  ValueId operand(const Op& op, TensorId input) {
    switch (op.kind) {
      case OpKind::Rope:
      case OpKind::HeadRmsNorm:
      case OpKind::Attention:
        return build_.whole_heads(input);
      case OpKind::Scale:
      case OpKind::Activation:
      case OpKind::GatedActivation:
        return build_.value(input);
      case OpKind::SigmoidGate:
      case OpKind::Add:  // what two linears made alike is added where it lies
        return all_cut(op) ? build_.value(input) : build_.whole_rows(input);
      default:
        return build_.whole_rows(input);
    }
  }

  /// Works on each token (or head) alone: the output is laid out as the input.
  void lower_elementwise(const Op& op, bool in_place) {
    std::vector<ValueId> inputs;
    for (const TensorId input : op.inputs)
      // An encoder's lengths are left out: no token of the data is padding.
      if (build_.tensor(input).tensor_class != models::TensorClass::Index)
        inputs.push_back(operand(op, input));
    const Placement where = build_.placement(inputs.front());
    require_invariant(where != Placement::Partial, op.name + " reads a partial sum");
    const bool same_columns = build_.tensor(op.inputs.front()).shape.back() ==
                              build_.tensor(op.outputs.front()).shape.back();
    Made first{.like = same_columns ? std::optional(inputs.front()) : std::nullopt};
    if (in_place) first.alias = inputs.front();
    // Sinks are cut like the heads; whatever else works on each token alone is whole.
    const bool sinks = op.kind == OpKind::Attention && where == Placement::FeaturesSharded;
    for (const TensorId id : op.parameters)
      inputs.push_back(build_.parameter(id, sinks ? std::optional(0) : std::nullopt));
    std::vector<ValueId> outputs;
    for (const TensorId output : op.outputs)
      outputs.push_back(build_.add(output, where, outputs.empty() ? first : Made{}));
    ComputeOp work =
        build_.compute(op, where == Placement::TokensSharded, where == Placement::FeaturesSharded);
    if (op.kind == OpKind::Attention) build_.add_key_ranges(work, inputs);
    if (op.kind == OpKind::Rope || op.kind == OpKind::PositionEmbedding)
      build_.add_positions(work, inputs);
    build_.emit(op.name, Lane::Compute, work, inputs, outputs);
  }

  /// Elements of the states that a recurrence keeps of a sequence where its chunks begin.
  std::int64_t states_of_sequence(const ComputeOp& work) const {
    const models::OpAttributes& a = work.attributes;
    const std::int64_t chunks = (context_.seq_len + a.chunk - 1) / a.chunk;
    return chunks * a.heads * a.head_size * a.value_head_size;
  }

  /// Works on the channels or heads that are here, over all tokens. Weights are cut like them, but
  /// for a norm's that all heads share.
  void lower_mixer(const Op& op) {
    std::vector<ValueId> inputs;
    for (const TensorId input : op.inputs) inputs.push_back(build_.value(input));
    const Placement where = build_.placement(inputs.front());
    require_invariant(!build_.sharded() || where == Placement::FeaturesSharded,
                      op.name + " reads what tp does not cut");
    const bool cut = op.split == Split::Column;
    for (const TensorId id : op.parameters)
      inputs.push_back(build_.parameter(id, cut ? std::optional(0) : std::nullopt));
    const bool same_columns = build_.tensor(op.inputs.front()).shape.back() ==
                              build_.tensor(op.outputs.front()).shape.back();
    const Made first{.like = same_columns ? std::optional(inputs.front()) : std::nullopt};
    std::vector<ValueId> outputs;
    for (const TensorId output : op.outputs)
      outputs.push_back(build_.add(output, where, outputs.empty() ? first : Made{}));
    ComputeOp work = build_.compute(op, false, where == Placement::FeaturesSharded);
    const bool recurs = op.kind == OpKind::LinearAttention || op.kind == OpKind::StateSpace;
    if (recurs)
      outputs.push_back(layer_.add_value(
          {.name = op.name + ".states",
           .dtype = DType::F32,
           .shape = {Dim{.count = states_of_sequence(work), .symbol = models::Symbol::Sequences}}},
          where));
    if (op.kind != OpKind::GatedNorm) build_.add_positions(work, inputs);
    build_.emit(op.name, Lane::Compute, work, inputs, outputs);
  }

  /// Two parts of the columns, which no rank cuts.
  void lower_slice(const Op& op) {
    const ValueId x = build_.whole_rows(op.inputs.front());
    const Placement where = build_.placement(x);
    std::vector<ValueId> parts;
    for (const TensorId part : op.outputs) parts.push_back(build_.add(part, where));
    build_.emit(op.name, Lane::Compute,
                build_.compute(op, where == Placement::TokensSharded, false), {x}, parts);
  }

  /// The way back of a slice.
  void lower_concat(const Op& op) {
    const std::vector<ValueId> parts = {build_.whole_rows(op.inputs[0]),
                                        build_.whole_rows(op.inputs[1])};
    const Placement where = build_.placement(parts.front());
    require_invariant(build_.placement(parts.back()) == where,
                      op.name + ": parts laid out differently");
    const ValueId both = build_.add(op.outputs.front(), where);
    build_.emit(op.name, Lane::Compute,
                build_.compute(op, where == Placement::TokensSharded, false), parts, {both});
  }

  void lower_router(const Op& op) {
    const ValueId x = build_.whole_rows(op.inputs.front());
    const Placement where = build_.placement(x);
    std::vector<ValueId> inputs = {x};
    for (const TensorId id : op.parameters) inputs.push_back(build_.parameter(id));
    std::vector<ValueId> outputs;
    for (const TensorId output : op.outputs) outputs.push_back(build_.add(output, where));
    const ComputeOp work = build_.compute(op, where == Placement::TokensSharded, false);
    build_.set_value(op.outputs[1],
                     experts_.route(op, work, std::move(inputs), std::move(outputs)));
  }

  void lower_embedding(const Op& op) {
    const ValueId ids = layer_.add_batch_value(
        "ids", Storage::BatchIds, build_.tensor(op.inputs.front()).shape, op.attributes.prediction);
    const TensorId table = op.parameters.front();
    const ValueId weight = build_.parameter(
        table, 0, build_.vocabulary_sections(build_.tensor(table).shape.front().count));
    const ValueId out = build_.add(op.outputs.front(),
                                   build_.sharded() ? Placement::Partial : Placement::Replicated);
    build_.emit(op.name, Lane::Compute, build_.compute(op, false, false), {ids, weight}, {out});
    build_.reduce(op.outputs.front(), op.name);
  }

  bool reads_token_types(const Op& op) const {
    return build_.tensor(op.inputs.front()).name == "token_types";
  }

  /// Data has tokens of one type, 0: all look up the same row, which is added as a bias.
  void remember_token_types(const Op& op) {
    token_types_[op.outputs.front()] = op.parameters.front();
  }
  void add_token_type(const Op& op) {
    const ValueId x = build_.value(op.inputs.front());
    const ValueId table = build_.parameter(token_types_.at(op.inputs.back()));
    const ValueId sum = build_.add(op.outputs.front(), build_.placement(x));
    build_.emit(op.name, Lane::Compute,
                ComputeOp{.kind = ComputeKind::BiasAdd, .tokens_sharded = layer_.tokens_sharded(x)},
                {x, table}, {sum});
  }

  /// The first tokens may lie on any rank, so all are gathered where they are cut.
  void lower_pool(const Op& op) {
    const ValueId x = build_.laid_out(op.inputs.front(), Placement::Replicated);
    const ValueId first = build_.add(op.outputs.front(), Placement::Replicated);
    build_.emit(op.name, Lane::Compute, build_.compute(op, false, false), {x}, {first});
  }

  ValueId linear_input(const Op& op) {
    const TensorId x = op.inputs.front();
    // An indexer's queries are many: each rank makes those of all tokens where these are at hand.
    if (op.attributes.detached && build_.is_laid_out(x, Placement::Replicated))
      return build_.laid_out(x, Placement::Replicated);
    if (op.split == Split::None) return build_.whole_rows(x);
    return build_.laid_out(
        x, op.split == Split::Row ? Placement::FeaturesSharded : Placement::Replicated);
  }

  /// How tp cuts a linear's weight: like the features that it makes, or like those that it reads.
  std::optional<std::vector<ShardSection>> weight_cut(const Op& op, ValueId x) const {
    if (op.split == Split::Vocab)
      return build_.vocabulary_sections(build_.tensor(op.parameters.front()).shape.front().count);
    if (op.split == Split::Row && build_.sharded()) return layer_.columns[at(x)];
    return std::nullopt;
  }

  void lower_linear(const Op& op) {
    const bool vocabulary = op.split == Split::Vocab;
    const bool column = op.split == Split::Column || vocabulary;
    const bool row = op.split == Split::Row;
    const bool has_bias = op.parameters.size() > 1;
    const bool deferred_bias = has_bias && row && build_.sharded();
    const TensorId out = op.outputs.front();
    const bool expands = attention_.expands_latents(op);
    ValueId x = linear_input(op);
    if (expands) x = attention_.gather_latents(op, x);
    const auto cut = weight_cut(op, x);
    std::optional<int> dim;
    if (column || row) dim = column ? 0 : 1;
    std::vector<ValueId> inputs = {x, build_.parameter(op.parameters.front(), dim, cut)};
    if (has_bias && !deferred_bias)
      inputs.push_back(build_.parameter(op.parameters[1], column ? dim : std::nullopt,
                                        column ? cut : std::nullopt));
    Placement where = build_.placement(x);
    if (build_.sharded() && column) where = Placement::FeaturesSharded;
    if (build_.sharded() && row) where = Placement::Partial;
    const ValueId y = vocabulary ? build_.add_with_columns(out, where, *cut)
                                 : build_.add(out, where, Made{.ranks = expands ? context_.cp : 1});
    build_.emit(
        op.name, Lane::Compute,
        build_.compute(op, where == Placement::TokensSharded, where == Placement::FeaturesSharded),
        inputs, {y});
    build_.reduce(out, op.name);
    if (deferred_bias) add_bias(op, out);
  }

  /// The bias of a row-parallel linear is added once, after the sum over the group.
  void add_bias(const Op& op, TensorId out) {
    const ValueId x = build_.value(out);
    const ValueId bias = build_.parameter(op.parameters[1]);
    Value with_bias = layer_.block.values[at(x)];
    with_bias.alias = x;
    const ValueId y =
        layer_.add_value(std::move(with_bias), build_.placement(x), layer_.columns[at(x)]);
    build_.set_value(out, y);
    build_.emit(op.name + ".bias", Lane::Compute,
                ComputeOp{.kind = ComputeKind::BiasAdd, .tokens_sharded = layer_.tokens_sharded(x)},
                {x, bias}, {y});
  }

  /// A loss is the mean over the tokens that count. Of a prediction module's these are fewer: the
  /// last targets of a sequence lie beyond it. Everything else is in units of the mean over all.
  models::OpAttributes loss_attributes(const Op& op) const {
    models::OpAttributes attributes = op.attributes;
    const auto tokens = static_cast<double>(context_.seq_len);
    if (attributes.prediction > 0) attributes.scale *= tokens / (tokens - attributes.prediction);
    return attributes;
  }

  /// Each rank sums over its part of the vocabulary, or, where the logits are whole, over all of
  /// it.
  void lower_cross_entropy(const Op& op) {
    const bool cut =
        context_.vocab_parallel_loss &&
        build_.placement(build_.value(op.inputs.front())) == Placement::FeaturesSharded;
    const ValueId logits = build_.laid_out(
        op.inputs.front(), cut ? Placement::FeaturesSharded : Placement::Replicated);
    const Split split = cut ? Split::Vocab : Split::None;
    layer_.logits.push_back(logits);
    const models::OpAttributes attributes = loss_attributes(op);
    const Dim tokens = build_.tensor(op.inputs.front()).shape.front();
    const ValueId targets =
        layer_.add_batch_value("targets", Storage::BatchTargets, {tokens}, attributes.prediction);
    ValueId statistics = layer_.add_value(
        {.name = "statistics", .shape = {tokens, {.count = kCrossEntropyStatistics}}},
        Placement::Replicated);
    build_.emit(
        op.name + ".local", Lane::Compute,
        ComputeOp{.kind = ComputeKind::CrossEntropyLocal, .split = split, .attributes = attributes},
        {logits, targets}, {statistics});
    if (cut) {
      const ValueId all = layer_.add_value(
          {.name = "statistics.gathered",
           .shape = {{.count = context_.tp}, tokens, {.count = kCrossEntropyStatistics}}},
          Placement::Replicated);
      build_.emit(
          op.name + ".all_gather", Lane::Tp,
          CollectiveOp{.collective = Collective::AllGather,
                       .group = Group::Tp,
                       .elements = element_count(layer_.block.values[at(statistics)].shape)},
          {statistics}, {all});
      statistics = all;
    }
    const ValueId loss = build_.add(op.outputs.front(), Placement::Replicated);
    const ValueId lse = build_.add(op.outputs.back(), Placement::Replicated);
    build_.emit(
        op.name + ".combine", Lane::Compute,
        ComputeOp{
            .kind = ComputeKind::CrossEntropyCombine, .split = split, .attributes = attributes},
        {statistics, targets}, {loss, lse});
    const ValueId sum = layer_.add_value({.name = "loss_sum",
                                          .dtype = DType::F64,
                                          .shape = {{}},
                                          .storage = Storage::LossScalar,
                                          .index = attributes.prediction > 0 ? 1 : 0},
                                         Placement::Replicated);
    ComputeOp work{.kind = ComputeKind::SumLoss};
    work.attributes.scale = attributes.scale;
    build_.emit(op.name + ".sum", Lane::Compute, work, {loss}, {sum});
  }

  const LayerGraph& graph_;
  const ShardContext& context_;
  LayerBuilder build_{graph_, context_};
  ShardedLayer& layer_ = build_.layer();
  AttentionSharder attention_{graph_, context_, build_};
  ExpertSharder experts_{graph_, context_, layer_};
  std::map<TensorId, TensorId> token_types_;  // what looks types up, and in which table
};

}  // namespace

ShardedLayer shard(const LayerGraph& graph, const ShardContext& context) {
  return Sharder(graph, context).run();
}

}  // namespace meshplan::program
