#include "shard_context.hpp"

#include <fmt/format.h>

#include "core/error.hpp"

namespace meshplan::program {
namespace {

using models::Dim;
using models::OpKind;

std::size_t at(int id) {
  return static_cast<std::size_t>(id);
}

std::int64_t width(const ComputeOp& attention, int heads) {
  return std::int64_t{heads} * attention.attributes.head_size;
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

ValueId ContextSharder::add_lse(const std::string& name, ValueId like, Dim rows, int heads) {
  return layer_.add_value({.name = name, .dtype = DType::F32, .shape = {rows, Dim{.count = heads}}},
                          layer_.placement[at(like)]);
}

void ContextSharder::emit(std::string name, Lane lane, decltype(Operation::work) work,
                          std::vector<ValueId> inputs, std::vector<ValueId> outputs) {
  layer_.block.forward.push_back({.name = std::move(name),
                                  .phase = Phase::Forward,
                                  .lane = lane,
                                  .work = std::move(work),
                                  .inputs = std::move(inputs),
                                  .outputs = std::move(outputs)});
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

ContextSharder::Attended ContextSharder::attend(const std::string& name, const ComputeOp& attention,
                                                ValueId qkv, ValueId o) {
  switch (context_.method) {
    case ContextMethod::AllGather:
      return attend_gathered(name, attention, qkv, o);
    case ContextMethod::Ulysses:
      return attend_by_heads(name, attention, qkv, o);
    case ContextMethod::Ring:
      return attend_in_ring(name, attention, qkv, o);
  }
  throw InvariantError(name + ": attention by no known method");
}

ValueId ContextSharder::keys_values(const std::string& name, const ComputeOp& attention,
                                    ValueId qkv) {
  const std::int64_t columns = 2 * width(attention, attention.attributes.kv_heads);
  const ValueId kv = add(name + ".keys_values", qkv, {tokens(qkv), Dim{.count = columns}});
  emit(name + ".keys_values", Lane::Compute,
       ComputeOp{.kind = OpKind::KeyValues, .attributes = attention.attributes}, {qkv}, {kv});
  return kv;
}

/// Own queries against the keys of the whole sequence, which every rank gathers.
ContextSharder::Attended ContextSharder::attend_gathered(const std::string& name,
                                                         const ComputeOp& attention, ValueId qkv,
                                                         ValueId o) {
  const ValueId kv = keys_values(name, attention, qkv);
  const Dim columns = layer_.block.values[at(kv)].shape.back();
  const ValueId of_ranks = communicated(name + ".keys_values.all_gather", Collective::AllGather, kv,
                                        {Dim{.count = context_.cp}, tokens(kv), columns});
  const ValueId ordered = add(name + ".all_keys_values", kv, {all_tokens(kv), columns});
  emit(name + ".keys_values.order", Lane::Compute, ComputeOp{.kind = OpKind::OrderChunks},
       {of_ranks}, {ordered});
  const ValueId lse = add_lse(name + ".lse", qkv, tokens(qkv), attention.attributes.heads);
  emit(name, Lane::Compute, attention, {qkv, ordered}, {o, lse});
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
  emit(name, Lane::Compute, ComputeOp{.kind = OpKind::Convert}, {from}, {to});
  return to;
}

/// What attention over some keys adds to the same over others, in place.
ContextSharder::Attended ContextSharder::merge(const std::string& name, const ComputeOp& attention,
                                               Attended part, Attended sum) {
  ComputeOp work = attention;
  work.kind = OpKind::MergeAttention;
  const Attended merged{alias_of(sum.o), alias_of(sum.lse)};
  emit(name + ".merge", Lane::Compute, work, {part.o, part.lse, sum.o, sum.lse},
       {merged.o, merged.lse});
  return merged;
}

/// Own queries against the keys of one rank after the other, starting with the own ones, while the
/// next are on their way. What the steps add is summed in the order of the steps, in fp32.
ContextSharder::Attended ContextSharder::attend_in_ring(const std::string& name,
                                                        ComputeOp attention, ValueId qkv,
                                                        ValueId o) {
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
    emit(of_step, Lane::Compute, attention, {qkv, kv}, {part.o, part.lse});
    if (step > 0)
      sum = merge(of_step, attention, part, sum);
    else
      sum = wide ? Attended{converted(of_step + ".o.fp32", part.o, DType::F32), part.lse} : part;
    kv = next;
  }
  if (!wide) return sum;
  emit(name + ".o", Lane::Compute, ComputeOp{.kind = OpKind::Convert}, {sum.o}, {o});
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
       ComputeOp{.kind = OpKind::PackColumns, .columns = columns, .over = Group::Cp}, {qkv},
       {packed});
  const ValueId of_ranks =
      communicated(name + ".all_to_all", Collective::AllToAll, packed, stacked);
  const ValueId heads = add(name + ".heads", qkv, {all_tokens(qkv), part});
  emit(name + ".order", Lane::Compute, ComputeOp{.kind = OpKind::OrderChunks}, {of_ranks}, {heads});
  return heads;
}

/// The way back.
void ContextSharder::to_tokens(const std::string& name, ValueId o_heads, ValueId o) {
  const Dim part = layer_.block.values[at(o_heads)].shape.back();
  const std::vector<Dim> stacked = {Dim{.count = context_.cp}, tokens(o), part};
  const ValueId of_ranks = add(name + ".by_rank", o, stacked);
  emit(name + ".order", Lane::Compute, ComputeOp{.kind = OpKind::OrderChunks, .reverse = true},
       {o_heads}, {of_ranks});
  const ValueId packed =
      communicated(name + ".all_to_all", Collective::AllToAll, of_ranks, stacked);
  emit(name + ".unpack", Lane::Compute,
       ComputeOp{.kind = OpKind::UnpackColumns,
                 .columns = {{.begin = 0, .size = part.count}},
                 .over = Group::Cp},
       {packed}, {o});
}

/// Some heads against the whole sequence: tokens are exchanged for heads before and after.
ContextSharder::Attended ContextSharder::attend_by_heads(const std::string& name,
                                                         ComputeOp attention, ValueId qkv,
                                                         ValueId o) {
  attention.attributes.heads /= context_.cp;
  attention.attributes.kv_heads /= context_.cp;
  const std::int64_t q = width(attention, attention.attributes.heads);
  const std::int64_t kv = width(attention, attention.attributes.kv_heads);
  const std::int64_t all_q = q * context_.cp, all_kv = kv * context_.cp;
  const ValueId heads = to_heads(name + ".qkv", qkv,
                                 {{.begin = 0, .size = q},
                                  {.begin = all_q, .size = kv},
                                  {.begin = all_q + all_kv, .size = kv}});
  const ValueId o_heads = add(name + ".o.heads", o, {all_tokens(qkv), Dim{.count = q}});
  const ValueId lse = add_lse(name + ".lse", qkv, all_tokens(qkv), attention.attributes.heads);
  emit(name, Lane::Compute, attention, {heads}, {o_heads, lse});
  to_tokens(name + ".o", o_heads, o);
  return {o, lse};
}

}  // namespace meshplan::program
