// Ring attention (Liu et al. 2023), forward: keys and values pass from rank to rank while each
// attends.
#include <fmt/format.h>

#include "context/shard_context.hpp"
#include "core/index.hpp"

namespace meshplan::program {

using models::Dim;

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

}  // namespace meshplan::program
