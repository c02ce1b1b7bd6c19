#include "experts/shard_experts.hpp"

#include "core/error.hpp"
#include "core/float8_rows.hpp"
#include "core/index.hpp"

namespace meshplan::program {

using models::Dim;
using models::Op;
using models::Split;
using models::Symbol;
using models::Tensor;

namespace {

ComputeOp compute(ComputeKind kind, const models::OpAttributes& attributes = {},
                  Group over = Group::Tp) {
  return {.kind = kind, .attributes = attributes, .over = over};
}

Lane lane_of(Group group) {
  return group == Group::EpWithin ? Lane::EpWithin : Lane::Ep;
}

}  // namespace

bool ExpertSharder::owns(const Op& op) const {
  if (op.kind == models::OpKind::Dispatch || op.kind == models::OpKind::Combine) return true;
  const Tensor& first = graph_.tensors[at(op.inputs.front())];
  return !first.shape.empty() && first.shape.front().symbol == Symbol::RoutedTokens;
}

ValueId ExpertSharder::add(std::string name, DType dtype, std::vector<Dim> shape) {
  return layer_.add_value({.name = std::move(name), .dtype = dtype, .shape = std::move(shape)},
                          exchange_.tokens);
}

ValueId ExpertSharder::add_rows(std::string name, const Dim& rows, ValueId like) {
  Value value = layer_.block.values[at(like)];
  return layer_.add_value({.name = std::move(name),
                           .dtype = value.dtype,
                           .shape = {rows, value.shape.back()},
                           .float8_size = value.float8_size},
                          exchange_.tokens);
}

/// Tokens in FP8, if they travel so.
ValueId ExpertSharder::pack(const Op& op, ValueId tokens) {
  if (!context_.float8_dispatch || context_.ep == 1) return tokens;
  const std::vector<Dim> shape = layer_.block.values[at(tokens)].shape;
  const std::int64_t size = shape.back().count;
  const ValueId packed =
      layer_.add_value({.name = op.name + ".packed",
                        .dtype = DType::F32,
                        .shape = {shape.front(), Dim{.count = float8_row_words(size)}},
                        .float8_size = size},
                       exchange_.tokens);
  emit(op.name + ".pack", Lane::Compute, compute(ComputeKind::PackRows), {tokens}, {packed});
  return packed;
}

ValueId ExpertSharder::unpack(const Op& op, ValueId rows) {
  const Value packed = layer_.block.values[at(rows)];
  if (packed.float8_size == 0) return rows;
  const ValueId plain =
      add("unpacked", context_.compute, {packed.shape.front(), Dim{.count = packed.float8_size}});
  emit(op.name + ".unpack", Lane::Compute, compute(ComputeKind::UnpackRows),
       {rows, exchange_.offsets}, {plain});
  return plain;
}

void ExpertSharder::emit(std::string name, Lane lane, decltype(Operation::work) work,
                         std::vector<ValueId> inputs, std::vector<ValueId> outputs) {
  layer_.emit(std::move(name), Phase::Forward, lane, std::move(work), std::move(inputs),
              std::move(outputs));
}

ValueId ExpertSharder::all_gather(const std::string& name, ValueId from) {
  if (context_.etp == 1) return from;
  const Value local = layer_.block.values[at(from)];
  std::vector<Dim> shape = local.shape;
  shape.front().count *= context_.etp;
  const ValueId to = add(local.name + ".etp_gathered", local.dtype, std::move(shape));
  emit(name + ".etp_all_gather", Lane::Ep,
       CollectiveOp{.collective = Collective::AllGather,
                    .group = Group::Etp,
                    .dtype = local.dtype,
                    .elements = element_count(local.shape)},
       {from}, {to});
  return to;
}

ValueId ExpertSharder::reduce_scatter(const std::string& name, ValueId from) {
  if (context_.etp == 1) return from;
  const Value partial = layer_.block.values[at(from)];
  std::vector<Dim> shape = partial.shape;
  shape.front().count /= context_.etp;
  const ValueId to = add(partial.name + ".etp_scattered", partial.dtype, std::move(shape));
  emit(name + ".etp_reduce_scatter", Lane::Ep,
       CollectiveOp{.collective = Collective::ReduceScatter,
                    .group = Group::Etp,
                    .dtype = partial.dtype,
                    .elements = element_count(partial.shape)},
       {from}, {to});
  return to;
}

ValueId ExpertSharder::sequence_load(const Op& op, const ComputeOp& work, ValueId choices) {
  const Dim experts{.count = context_.num_experts};
  // Over cp a rank holds two chunks of each, which it counts one by one.
  const Dim sequences{.count = context_.cp > 1 ? 2 : 1, .symbol = Symbol::Sequences};
  ComputeOp count = work;
  count.kind = ComputeKind::SequenceLoad;
  ValueId load = add("sequence_load", DType::F32, {{.count = 1}, sequences, experts});
  emit(op.name + ".sequence_load", Lane::Compute, count, {choices}, {load});
  const std::string name = op.name + ".sequence_load";
  if (work.tokens_sharded)
    load = gather_load(name + ".all_gather", load, Lane::Tp, Group::Tp, context_.tp);
  if (context_.cp > 1)
    load = gather_load(name + ".cp_all_gather", load, Lane::Cp, Group::Cp, context_.cp);
  return load;
}

/// Gathers the loads of all ranks that hold parts of the same sequences, one after the other.
ValueId ExpertSharder::gather_load(const std::string& name, ValueId own, Lane lane, Group group,
                                   int ranks) {
  std::vector<Dim> shape = layer_.block.values[at(own)].shape;
  const Dim elements = element_count(shape);
  shape.front().count *= ranks;
  const ValueId all = add(name, DType::F32, std::move(shape));
  emit(name, lane,
       CollectiveOp{.collective = Collective::AllGather,
                    .group = group,
                    .dtype = DType::F32,
                    .elements = elements},
       {own}, {all});
  return all;
}

/// Adds to what the layer's experts got in this step: of the router's choices, or of those that an
/// expert has room for.
void ExpertSharder::count_step_load(const Op& op, ComputeOp work, ValueId choices, bool taken) {
  work.kind = ComputeKind::RouterLoad;
  const ValueId load = layer_.add_value({.name = taken ? "expert_load.taken" : "expert_load",
                                         .shape = {{.count = context_.num_experts}},
                                         .storage = Storage::ExpertLoad,
                                         .index = taken ? 1 : 0},
                                        Placement::Replicated);
  emit(op.name + (taken ? ".load_taken" : ".load"), Lane::Compute, work, {choices}, {load});
}

ValueId ExpertSharder::route(const Op& op, const ComputeOp& work, std::vector<ValueId> inputs,
                             std::vector<ValueId> outputs) {
  const models::RouterSpec& router = op.attributes.router;
  router_probabilities_ = outputs[0];
  const ValueId choices = outputs[1];
  const ValueId scores = outputs[2];
  exchange_ = {.tokens = layer_.placement[at(inputs.front())]};
  const std::vector<Dim> shape = layer_.block.values[at(scores)].shape;
  std::optional<ValueId> lse;
  if (router.z_loss_coefficient != 0)
    outputs.push_back(lse.emplace(add("router.lse", DType::F32, {shape.front()})));
  // In fp32 the logits lie where the scores will.
  if (context_.compute != DType::F32)
    outputs.push_back(add("router.logits", context_.compute, shape));
  emit(op.name, Lane::Compute, work, std::move(inputs), std::move(outputs));

  count_step_load(op, work, choices, /*taken=*/false);
  ComputeOp after = work;
  const bool balanced = router.aux_loss_coefficient != 0;
  if (!balanced && !lse && context_.expert_capacity == 0) return choices;
  std::optional<ValueId> load;
  if (balanced || context_.expert_capacity > 0) load = sequence_load(op, work, choices);
  if (balanced || lse) {
    after.kind = ComputeKind::RouterLosses;
    const ValueId sums = layer_.add_value({.name = "router_losses",
                                           .dtype = DType::F64,
                                           .shape = {{.count = 2}},
                                           .storage = Storage::RouterLosses},
                                          Placement::Replicated);
    std::vector<ValueId> from = {scores};
    if (balanced) from.push_back(*load);
    if (lse) from.push_back(*lse);
    emit(op.name + ".losses", Lane::Compute, after, std::move(from), {sums});
  }
  if (context_.expert_capacity == 0) return choices;
  after.kind = ComputeKind::LimitChoices;
  const ValueId kept =
      add("router.kept_choices", DType::I32, layer_.block.values[at(choices)].shape);
  emit(op.name + ".limit", Lane::Compute, after, {choices, *load}, {kept});
  count_step_load(op, work, kept, /*taken=*/true);
  return kept;
}

/// A counting sort of the choices by expert: which row each goes to.
void ExpertSharder::plan(const Op& op, ValueId choices, const Level& level) {
  exchange_ = {.level = level, .tokens = exchange_.tokens};
  const std::vector<Dim> shape = layer_.block.values[at(choices)].shape;
  models::OpAttributes attributes = op.attributes;
  attributes.top_k = static_cast<int>(shape.back().count);
  attributes.num_experts = level.experts;
  const std::string& before = level.prefix;
  exchange_.row_of_choice = add(before + "row_of_choice", DType::I32, shape);
  exchange_.choice_of_row = add(before + "choice_of_row", DType::I32, shape);
  exchange_.offsets = add(before + "expert_offsets", DType::I32, {Dim{.count = level.experts + 1}});
  const ValueId counts = add(before + "expert_counts", DType::I32, {Dim{.count = level.experts}});
  emit(op.name + "." + before + "plan", Lane::Compute,
       compute(ComputeKind::DispatchPlan, attributes, level.group), {choices},
       {exchange_.row_of_choice, exchange_.choice_of_row, exchange_.offsets, counts});
  if (level.ranks > 1) exchange_counts(op, counts);
}

/// Every rank learns how many rows each other has for its experts.
void ExpertSharder::exchange_counts(const Op& op, ValueId counts) {
  const Level& level = exchange_.level;
  const std::string& before = level.prefix;
  const Dim ranks{.count = level.ranks};
  const std::int64_t local = level.experts / level.ranks;
  exchange_.received = add(before + "received_counts", DType::I32, {ranks, Dim{.count = local}});
  emit(op.name + "." + before + "counts", lane_of(level.group),
       CollectiveOp{.collective = Collective::AllToAll,
                    .group = level.group,
                    .dtype = DType::I32,
                    .elements = {.count = level.experts}},
       {counts}, {exchange_.received});
  exchange_.rows = add(before + "exchanged_rows", DType::I32, {Dim{.count = 2}, ranks});
  exchange_.offsets = add(before + "local_offsets", DType::I32, {Dim{.count = local + 1}});
  emit(op.name + "." + before + "sizes", Lane::Compute,
       compute(ComputeKind::ExchangeSizes, op.attributes, level.group),
       {counts, exchange_.received}, {exchange_.rows, exchange_.offsets});
}

ValueId ExpertSharder::all_to_all(const Exchange& exchange, const std::string& name, ValueId from,
                                  const Dim& rows, bool reverse) {
  const Value sent = layer_.block.values[at(from)];
  const ValueId to = add_rows(name, rows, from);
  emit(name, lane_of(exchange.level.group),
       CollectiveOp{.collective = Collective::AllToAllV,
                    .group = exchange.level.group,
                    .dtype = sent.dtype,
                    .elements = element_count(sent.shape),
                    .row_elements = sent.shape.back().count,
                    .reverse = reverse},
       {from, exchange.rows}, {to});
  return to;
}

ValueId ExpertSharder::regroup(const std::string& name, ValueId from, bool reverse) {
  const ValueId to = add_rows(name, layer_.block.values[at(from)].shape.front(), from);
  ComputeOp work = compute(ComputeKind::RegroupRows);
  work.reverse = reverse;
  emit(name, Lane::Compute, work, {from, exchange_.received}, {to});
  return to;
}

ValueId ExpertSharder::dispatch(const Op& op, ValueId x, ValueId choices) {
  exchange_ = {.tokens = layer_.placement[at(x)]};
  const ValueId tokens = pack(op, all_gather(op.name + ".tokens", x));
  const ValueId chosen = all_gather(op.name + ".choices", choices);
  if (context_.ep_nodes > 1) return to_nodes(op, tokens, chosen);
  plan(op, chosen, {.group = Group::Ep, .ranks = context_.ep, .experts = context_.num_experts});
  const Dim copies = element_count(layer_.block.values[at(chosen)].shape);
  return to_experts(op, tokens, context_.ep > 1 ? copies : Dim{.symbol = Symbol::RoutedTokens});
}

ValueId ExpertSharder::to_experts(const Op& op, ValueId tokens, const Dim& copies) {
  const Level& level = exchange_.level;
  models::OpAttributes attributes = op.attributes;  // the graph says them of the router alone
  attributes.top_k =
      static_cast<int>(layer_.block.values[at(exchange_.row_of_choice)].shape.back().count);
  attributes.num_experts = level.experts;
  const ValueId rows = add_rows("dispatched", copies, tokens);
  std::vector<ValueId> inputs = {tokens, exchange_.choice_of_row};
  // Rows that may lie beyond the buffers (runtime: ExpertRoom) wait until it is known how many.
  if (has_routed_rows(layer_.block.values[at(rows)]) && level.ranks > 1)
    inputs.push_back(exchange_.rows);
  emit(op.name, Lane::Compute, compute(ComputeKind::Dispatch, attributes, level.group),
       std::move(inputs), {rows});
  if (level.ranks == 1) return rows;
  const ValueId arrived =
      all_to_all(exchange_, op.name + ".all_to_all", rows, {.symbol = Symbol::RoutedTokens}, false);
  return unpack(op, regroup(op.name + ".regroup", arrived, false));
}

Dim ExpertSharder::inner(const Tensor& tensor) const {
  Dim width = tensor.shape.back();
  require_invariant(width.count % context_.etp == 0, tensor.name + " does not divide by etp");
  width.count /= context_.etp;
  return width;
}

ValueId ExpertSharder::activation(const Op& op, ValueId rows) {
  const ValueId y = add(
      op.name, context_.compute,
      {layer_.block.values[at(rows)].shape.front(), inner(graph_.tensors[at(op.outputs.front())])});
  // The offsets tell how many of the rows there are.
  emit(op.name, Lane::Compute, compute(compute_kind(op.kind), op.attributes),
       {rows, exchange_.offsets}, {y});
  return y;
}

/// Cuts a parameter (X, out, in) or (X, out): dimension 0 over ep, `sharded_dim` over etp.
ValueId ExpertSharder::expert_parameter(models::TensorId id, std::optional<int> sharded_dim) {
  const Tensor& tensor = graph_.tensors[at(id)];
  Parameter made{.name = tensor.name,
                 .init = tensor.init,
                 .weight_decay = tensor.weight_decay,
                 .expert = true};
  for (const Dim& size : tensor.shape) made.global_shape.push_back(size.count);
  made.local_shape = made.global_shape;
  made.local_shape.front() /= context_.ep;
  if (context_.etp > 1 && sharded_dim) {
    made.shard_dim = *sharded_dim;
    std::vector<std::int64_t> sizes = tensor.sections;
    if (sizes.empty() || sharded_dim != 1) sizes = {made.global_shape[at(*sharded_dim)]};
    std::int64_t begin = 0;
    for (const std::int64_t size : sizes) {
      require_invariant(size % context_.etp == 0, tensor.name + " does not divide by etp");
      made.sections.push_back({.begin = begin, .size = size / context_.etp});
      begin += size;
    }
    made.local_shape[at(*sharded_dim)] /= context_.etp;
  }
  std::vector<Dim> shape;
  for (const std::int64_t size : made.local_shape) shape.push_back({.count = size});
  const int index = static_cast<int>(layer_.parameters.size());
  const ValueId weight = layer_.add_value({.name = tensor.name,
                                           .dtype = context_.compute,
                                           .shape = shape,
                                           .storage = Storage::Parameter,
                                           .index = index},
                                          Placement::Replicated);
  const ValueId gradient = layer_.add_value({.name = tensor.name + ".grad",
                                             .dtype = DType::F32,
                                             .shape = shape,
                                             .storage = Storage::Gradient,
                                             .index = index},
                                            Placement::Replicated);
  layer_.parameters.push_back(
      {.parameter = std::move(made), .weight = weight, .gradient = gradient});
  return weight;
}

ValueId ExpertSharder::grouped_linear(const Op& op, ValueId rows) {
  const bool column = op.split == Split::Column;
  const ValueId weight = expert_parameter(op.parameters.front(), column ? 1 : 2);
  const Tensor& out = graph_.tensors[at(op.outputs.front())];
  const ValueId y =
      add(op.name, context_.compute,
          {layer_.block.values[at(rows)].shape.front(), column ? inner(out) : out.shape.back()});
  ComputeOp work = compute(compute_kind(op.kind), op.attributes);
  work.attributes.num_experts /= context_.ep;
  work.split = op.split;
  std::vector<ValueId> inputs = {rows, weight, exchange_.offsets};
  // A row-parallel one is whole on every etp rank: the first adds it to what is then summed.
  if (op.parameters.size() > 1)
    inputs.push_back(expert_parameter(op.parameters[1], column ? std::optional(1) : std::nullopt));
  emit(op.name, Lane::Compute, work, std::move(inputs), {y});
  return y;
}

ValueId ExpertSharder::combine(const Op& op, ValueId rows, ValueId probabilities) {
  if (context_.ep_nodes > 1) return reduce_scatter(op.name, sum_nodes(op, sum_in_node(op, rows)));
  const ValueId weights = all_gather(op.name + ".probabilities", probabilities);
  const std::vector<Dim> choices = layer_.block.values[at(exchange_.row_of_choice)].shape;
  const Dim width = layer_.block.values[at(rows)].shape.back();
  if (context_.ep > 1) {
    const ValueId sorted = regroup(op.name + ".regroup", rows, true);
    rows = all_to_all(exchange_, op.name + ".all_to_all", sorted, element_count(choices), true);
  }
  const ValueId y = add(op.name, context_.compute, {choices.front(), width});
  ComputeOp work = compute(ComputeKind::Combine, op.attributes);
  work.attributes.top_k = static_cast<int>(choices.back().count);
  emit(op.name, Lane::Compute, work, {rows, weights, exchange_.row_of_choice}, {y});
  return reduce_scatter(op.name, y);
}

}  // namespace meshplan::program
