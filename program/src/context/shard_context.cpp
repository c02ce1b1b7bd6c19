#include "context/shard_context.hpp"

#include "core/error.hpp"
#include "core/index.hpp"

namespace meshplan::program {
using models::Dim;

AttentionWidths widths_of(const ComputeOp& attention) {
  const models::OpAttributes& a = attention.attributes;
  return {.q = std::int64_t{a.heads} * a.head_size,
          .k = std::int64_t{a.kv_heads} * a.head_size,
          .v = std::int64_t{a.kv_heads} * a.value_head_size,
          .o = std::int64_t{a.heads} * a.value_head_size};
}

Dim ContextSharder::tokens(ValueId id) const {
  return layer_.block.values[at(id)].shape.front();
}

Dim ContextSharder::all_tokens(ValueId id) const {
  Dim all = tokens(id);
  all.count *= context_.cp;
  return all;
}

ValueId ContextSharder::add(std::string name, ValueId like, std::vector<Dim> shape) {
  return layer_.add_value({.name = std::move(name),
                           .dtype = layer_.block.values[at(like)].dtype,
                           .shape = std::move(shape)},
                          layer_.placement[at(like)]);
}

/// As many numbers as rows times heads; they lie by sequence, head and query.
ValueId ContextSharder::add_lse(const std::string& name, ValueId like, Dim rows, int heads) {
  return layer_.add_value({.name = name, .dtype = DType::F32, .shape = {rows, Dim{.count = heads}}},
                          layer_.placement[at(like)]);
}

void ContextSharder::emit(std::string name, Lane lane, decltype(Operation::work) work,
                          std::vector<ValueId> inputs, std::vector<ValueId> outputs) {
  layer_.emit(std::move(name), Phase::Forward, lane, std::move(work), std::move(inputs),
              std::move(outputs));
}

ValueId ContextSharder::communicated(const std::string& name, Collective collective, ValueId from,
                                     std::vector<Dim> shape) {
  const ValueId to = add(name, from, std::move(shape));
  const Value& passed = layer_.block.values[at(from)];
  emit(name, Lane::Cp,
       CollectiveOp{.collective = collective,
                    .group = Group::Cp,
                    .dtype = passed.dtype,
                    .elements = element_count(passed.shape)},
       {from}, {to});
  return to;
}

ContextSharder::Attended ContextSharder::attend(const std::string& name, ComputeOp attention,
                                                const Attending& from, ValueId o) {
  attention.documents = context_.documents;
  switch (context_.method) {
    case ContextMethod::AllGather:
      return attend_gathered(name, attention, from, o);
    case ContextMethod::Ulysses:
      return attend_by_heads(name, attention, from, o);
    case ContextMethod::Ring:
      return attend_in_ring(name, attention, from, o);
  }
  throw InvariantError(name + ": attention by no known method");
}

/// Between the rows of the ranks and those of whole sequences.
void ContextSharder::order(std::string name, ValueId from, ValueId to, bool reverse) {
  std::vector<ValueId> inputs = {from};
  if (context_.documents)
    inputs.push_back(layer_.add_batch_value(
        "order", Storage::BatchOrder,
        {Dim{.count = 2}, Dim{.count = context_.cp, .symbol = models::Symbol::Tokens}}));
  emit(std::move(name), Lane::Compute,
       ComputeOp{
           .kind = ComputeKind::OrderChunks, .reverse = reverse, .documents = context_.documents},
       std::move(inputs), {to});
}

ValueId ContextSharder::key_ranges(Dim queries, int step) {
  return layer_.add_batch_value("key_ranges", Storage::BatchKeyRanges, {queries, Dim{.count = 2}},
                                step);
}

ValueId ContextSharder::keys_values(const std::string& name, const ComputeOp& attention,
                                    ValueId qkv) {
  const std::int64_t columns = widths_of(attention).k + widths_of(attention).v;
  const ValueId kv = add(name + ".keys_values", qkv, {tokens(qkv), Dim{.count = columns}});
  emit(name + ".keys_values", Lane::Compute,
       ComputeOp{.kind = ComputeKind::KeyValues, .attributes = attention.attributes}, {qkv}, {kv});
  return kv;
}

/// Own queries against the keys of the whole sequence, which every rank gathers.
ContextSharder::Attended ContextSharder::attend_gathered(const std::string& name,
                                                         const ComputeOp& attention,
                                                         const Attending& from, ValueId o) {
  const ValueId kv = keys_values(name, attention, from.qkv);
  return attend_to_all(name, attention, from, gather(name + ".keys_values", kv), o);
}

ValueId ContextSharder::gather(const std::string& name, ValueId rows) {
  const Dim columns = layer_.block.values[at(rows)].shape.back();
  const ValueId of_ranks = communicated(name + ".all_gather", Collective::AllGather, rows,
                                        {Dim{.count = context_.cp}, tokens(rows), columns});
  const ValueId ordered = add(name + ".of_all", rows, {all_tokens(rows), columns});
  order(name + ".order", of_ranks, ordered);
  return ordered;
}

ContextSharder::Attended ContextSharder::attend_to_all(const std::string& name, ComputeOp attention,
                                                       const Attending& queries,
                                                       ValueId keys_values, ValueId o) {
  attention.documents = context_.documents;
  const models::Dim rows = tokens(queries.qkv);
  const ValueId lse = add_lse(name + ".lse", queries.qkv, rows, attention.attributes.heads);
  std::vector<ValueId> inputs = {queries.qkv, keys_values};
  if (queries.sinks) inputs.push_back(*queries.sinks);
  if (context_.documents) inputs.push_back(key_ranges(rows));
  emit(name, Lane::Compute, attention, std::move(inputs), {o, lse});
  return {o, lse};
}

}  // namespace meshplan::program
