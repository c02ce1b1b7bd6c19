// The backward pass of ring attention.
#include "context/ring_gradient.hpp"

#include <fmt/format.h>
#include <tuple>
#include <utility>

#include "core/index.hpp"

namespace meshplan::program {
namespace {

class RingGradient {
 public:
  RingGradient(ShardedLayer& layer, int cp, const std::string& name, const RingOperands& operands,
               const ComputeOp& attention)
      : layer_(layer), cp_(cp), name_(name), operands_(operands), attention_(attention) {}

  RingGradients run() {
    const DType dtype = value(operands_.o).dtype;
    const bool wide = dtype != DType::F32;
    ValueId kv = operands_.kv, dq = 0, dkv = 0;
    for (int step = 0; step < cp_; ++step) {
      const std::string of_step = fmt::format("{}.step{}", name_, step);
      const ValueId next =
          step + 1 < cp_ ? shifted(of_step + ".keys_values.shift", Phase::Recompute, kv) : kv;
      if (step > 0) dkv = shifted(of_step + ".keys_values_grad.shift", Phase::InputGrad, dkv);
      attention_.ring_step = step;
      const ValueId part_dq = queries_like(operands_.o, of_step + ".query_grad");
      const ValueId part_dkv = like(kv, of_step + ".keys_values_grad");
      std::vector<ValueId> inputs = {operands_.dy, operands_.qkv, operands_.o, operands_.lse, kv};
      if (attention_.documents) inputs.push_back(operands_.key_ranges[at(step)]);
      layer_.emit(of_step + ".input_grad", Phase::InputGrad, Lane::Compute, attention_,
                  std::move(inputs), {part_dq, part_dkv});
      if (step > 0) {
        std::tie(dq, dkv) = sums(of_step, part_dq, part_dkv, dq, dkv);
      } else {
        dq = wide ? converted(of_step + ".query_grad.fp32", part_dq, DType::F32) : part_dq;
        dkv = part_dkv;
      }
      kv = next;
    }
    dkv = shifted(name_ + ".keys_values_grad.shift", Phase::InputGrad, dkv);
    return {wide ? converted(name_ + ".query_grad", dq, dtype) : dq, dkv};
  }

 private:
  const Value& value(ValueId id) const { return layer_.block.values[at(id)]; }

  ValueId like(ValueId id, std::string name) {
    Value made = value(id);
    made.name = std::move(name);
    made.storage = Storage::Transient;
    made.keep = Keep::UntilInputGrad;
    made.alias.reset();
    return layer_.add_value(std::move(made), layer_.placement[at(id)]);
  }

  /// Query heads, which may be larger than those of the values.
  ValueId queries_like(ValueId id, std::string name) {
    const ValueId made = like(id, std::move(name));
    const models::OpAttributes& a = attention_.attributes;
    layer_.block.values[at(made)].shape.back() = {.count = std::int64_t{a.heads} * a.head_size};
    return made;
  }

  ValueId shifted(const std::string& name, Phase phase, ValueId from) {
    const ValueId to = like(from, name);
    layer_.emit(name, phase, Lane::Cp,
                CollectiveOp{.collective = Collective::Shift,
                             .group = Group::Cp,
                             .dtype = value(from).dtype,
                             .elements = element_count(value(from).shape)},
                {from}, {to});
    return to;
  }

  ValueId converted(const std::string& name, ValueId from, DType dtype) {
    const ValueId to = like(from, name);
    layer_.block.values[at(to)].dtype = dtype;
    layer_.emit(name, Phase::InputGrad, Lane::Compute, ComputeOp{.kind = ComputeKind::Convert},
                {from}, {to});
    return to;
  }

  /// In the memory of what they are added to.
  std::pair<ValueId, ValueId> sums(const std::string& name, ValueId part_dq, ValueId part_dkv,
                                   ValueId dq, ValueId dkv) {
    ComputeOp work = attention_;
    work.kind = ComputeKind::MergeAttention;
    const std::pair added(in_place_of(dq), in_place_of(dkv));
    layer_.emit(name + ".merge.input_grad", Phase::InputGrad, Lane::Compute, work,
                {part_dq, part_dkv, dq, dkv}, {added.first, added.second});
    return added;
  }

  ValueId in_place_of(ValueId id) {
    Value changed = value(id);
    changed.alias = id;
    return layer_.add_value(std::move(changed), layer_.placement[at(id)]);
  }

  ShardedLayer& layer_;
  int cp_;
  const std::string& name_;
  const RingOperands& operands_;
  ComputeOp attention_;
};

}  // namespace

RingGradients append_ring_gradient(ShardedLayer& layer, int cp, const std::string& name,
                                   const RingOperands& operands, const ComputeOp& attention) {
  return RingGradient(layer, cp, name, operands, attention).run();
}

}  // namespace meshplan::program
