// Ulysses (Jacobs et al. 2023): heads are exchanged for tokens around attention.
#include "context/shard_context.hpp"
#include "core/index.hpp"

namespace meshplan::program {

using models::Dim;

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
  const AttentionWidths own = widths_of(attention);
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
