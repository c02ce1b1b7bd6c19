#include "context/shard_context.hpp"

#include <fmt/format.h>

#include "core/error.hpp"
#include "core/index.hpp"

namespace meshplan::program {
namespace {

using models::Dim;

/// Columns of queries, keys and values, whose heads may have another size (latent attention).
struct Widths {
  std::int64_t q = 0;
  std::int64_t k = 0;
  std::int64_t v = 0;
  std::int64_t o = 0;
};
Widths widths_of(const ComputeOp& attention) {
  const models::OpAttributes& a = attention.attributes;
  return {.q = std::int64_t{a.heads} * a.head_size,
          .k = std::int64_t{a.kv_heads} * a.head_size,
          .v = std::int64_t{a.kv_heads} * a.value_head_size,
          .o = std::int64_t{a.heads} * a.value_head_size};
}

}  // namespace

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

ValueId ContextSharder::alias_of(ValueId id) {
  Value same = layer_.block.values[at(id)];
  same.alias = id;
  return layer_.add_value(std::move(same), layer_.placement[at(id)], layer_.columns[at(id)]);
}

ValueId ContextSharder::converted(const std::string& name, ValueId from, DType dtype) {
  Value other = layer_.block.values[at(from)];
  other.name = name;
  other.dtype = dtype;
  other.alias.reset();
  const ValueId to = layer_.add_value(std::move(other), layer_.placement[at(from)]);
  emit(name, Lane::Compute, ComputeOp{.kind = ComputeKind::Convert}, {from}, {to});
  return to;
}

/// What attention over some keys adds to the same over others, in place.
ContextSharder::Attended ContextSharder::merge(const std::string& name, const ComputeOp& attention,
                                               Attended part, Attended sum) {
  ComputeOp work = attention;
  work.kind = ComputeKind::MergeAttention;
  const Attended merged{alias_of(sum.o), alias_of(sum.lse)};
  emit(name + ".merge", Lane::Compute, work, {part.o, part.lse, sum.o, sum.lse},
       {merged.o, merged.lse});
  return merged;
}

/// Own queries against the keys of one rank after the other, starting with the own ones, while the
/// next are on their way. What the steps add is summed in the order of the steps, in fp32.
ContextSharder::Attended ContextSharder::attend_in_ring(const std::string& name,
                                                        ComputeOp attention, const Attending& from,
                                                        ValueId o) {
  const ValueId qkv = from.qkv;
  const DType dtype = layer_.block.values[at(o)].dtype;
  const std::vector<Dim> o_shape = layer_.block.values[at(o)].shape;
  const bool wide = dtype != DType::F32;
  ValueId kv = keys_values(name, attention, qkv);
  Attended sum;
  for (int step = 0; step < context_.cp; ++step) {
    const std::string of_step = fmt::format("{}.step{}", name, step);
    ValueId next = kv;
    if (step + 1 < context_.cp) {
      const std::vector<Dim> shape = layer_.block.values[at(kv)].shape;
      next = communicated(of_step + ".keys_values.shift", Collective::Shift, kv, shape);
    }
    attention.ring_step = step;
    const bool in_place = step == 0 && !wide;
    const Attended part{in_place ? o : add(of_step + ".o", o, o_shape),
                        add_lse(of_step + ".lse", qkv, tokens(qkv), attention.attributes.heads)};
    std::vector<ValueId> inputs = {qkv, kv};
    if (from.sinks && step == 0) inputs.push_back(*from.sinks);  // the merges keep what it adds
    if (context_.documents) inputs.push_back(key_ranges(tokens(qkv), step));
    emit(of_step, Lane::Compute, attention, std::move(inputs), {part.o, part.lse});
    if (step > 0)
      sum = merge(of_step, attention, part, sum);
    else
      sum = wide ? Attended{converted(of_step + ".o.fp32", part.o, DType::F32), part.lse} : part;
    kv = next;
  }
  if (!wide) return sum;
  emit(name + ".o", Lane::Compute, ComputeOp{.kind = ComputeKind::Convert}, {sum.o}, {o});
  return {o, sum.lse};
}

/// All tokens of some heads, in the order of the sequence, out of some tokens of all heads.
ValueId ContextSharder::to_heads(const std::string& name, ValueId qkv,
                                 const std::vector<ShardSection>& columns) {
  Dim part;
  part.count = 0;
  for (const ShardSection& section : columns) part.count += section.size;
  const std::vector<Dim> stacked = {Dim{.count = context_.cp}, tokens(qkv), part};
  const ValueId packed = add(name + ".packed", qkv, stacked);
  emit(name + ".pack", Lane::Compute,
       ComputeOp{.kind = ComputeKind::PackColumns, .columns = columns, .over = Group::Cp}, {qkv},
       {packed});
  const ValueId of_ranks =
      communicated(name + ".all_to_all", Collective::AllToAll, packed, stacked);
  const ValueId heads = add(name + ".heads", qkv, {all_tokens(qkv), part});
  order(name + ".order", of_ranks, heads);
  return heads;
}

/// The way back.
void ContextSharder::to_tokens(const std::string& name, ValueId o_heads, ValueId o) {
  const Dim part = layer_.block.values[at(o_heads)].shape.back();
  const std::vector<Dim> stacked = {Dim{.count = context_.cp}, tokens(o), part};
  const ValueId of_ranks = add(name + ".by_rank", o, stacked);
  order(name + ".order", o_heads, of_ranks, /*reverse=*/true);
  const ValueId packed =
      communicated(name + ".all_to_all", Collective::AllToAll, of_ranks, stacked);
  emit(name + ".unpack", Lane::Compute,
       ComputeOp{.kind = ComputeKind::UnpackColumns,
                 .columns = {{.begin = 0, .size = part.count}},
                 .over = Group::Cp},
       {packed}, {o});
}

/// Some heads against the whole sequence: tokens are exchanged for heads before and after.
ContextSharder::Attended ContextSharder::attend_by_heads(const std::string& name,
                                                         ComputeOp attention, const Attending& from,
                                                         ValueId o) {
  const ValueId qkv = from.qkv;
  attention.attributes.heads /= context_.cp;
  attention.attributes.kv_heads /= context_.cp;
  const Widths own = widths_of(attention);
  const ValueId heads = to_heads(name + ".qkv", qkv,
                                 {{.begin = 0, .size = own.q},
                                  {.begin = own.q * context_.cp, .size = own.k},
                                  {.begin = (own.q + own.k) * context_.cp, .size = own.v}});
  const ValueId o_heads = add(name + ".o.heads", o, {all_tokens(qkv), Dim{.count = own.o}});
  const ValueId lse = add_lse(name + ".lse", qkv, all_tokens(qkv), attention.attributes.heads);
  std::vector<ValueId> inputs = {heads};
  if (from.sinks) inputs.push_back(*from.sinks);  // of all heads: each rank reads those of its own
  if (context_.documents) inputs.push_back(key_ranges(all_tokens(qkv)));
  emit(name, Lane::Compute, attention, std::move(inputs), {o_heads, lse});
  to_tokens(name + ".o", o_heads, o);
  return {o, lse};
}

}  // namespace meshplan::program
