#include "layer/layout_moves.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "core/index.hpp"

namespace meshplan::program {
namespace {

using models::Dim;
using models::Symbol;

Dim divided(Dim dim, int parts) {
  if (dim.symbol == Symbol::One && dim.count % parts == 0)
    dim.count /= parts;
  else
    dim.divisor *= parts;
  return dim;
}

Dim multiplied(Dim dim, int parts) {
  if (dim.divisor % parts == 0)
    dim.divisor /= parts;
  else
    dim.count *= parts;
  return dim;
}

class Mover {
 public:
  Mover(ShardedLayer& layer, const MoveTarget& target, const std::vector<ShardSection>& columns)
      : layer_(layer), target_(target), columns_(columns) {}

  ValueId move(ValueId from, Placement have, Placement want) {
    if (have == want) return from;
    switch (want) {
      case Placement::Replicated:
        if (have == Placement::Partial) return summed(from);
        if (have == Placement::TokensSharded) return with_all_tokens(from);
        return with_all_columns(from, /*own_tokens=*/false);
      case Placement::TokensSharded:
        if (have == Placement::Partial) return scattered(from, with_own_tokens(from), want);
        if (have == Placement::Replicated)
          return copied(ComputeKind::SliceRows, ".slice", from, with_own_tokens(from), want);
        return with_all_columns(from, /*own_tokens=*/true);
      case Placement::FeaturesSharded:
        if (have == Placement::Partial) return with_own_columns_summed(from);
        return copied(ComputeKind::SliceColumns, ".slice", move(from, have, Placement::Replicated),
                      with_own_columns(from, have), want);
      case Placement::Partial:
        break;
    }
    throw InvariantError("nothing makes a partial sum of " + target_.name);
  }

 private:
  using Shape = std::vector<Dim>;

  const Shape& shape(ValueId id) const { return layer_.block.values[at(id)].shape; }
  Shape with_own_tokens(ValueId from) const {
    Shape local = shape(from);
    local.front() = divided(local.front(), target_.tp);
    return local;
  }
  Shape with_own_columns(ValueId from, Placement have) const {
    Shape local = shape(from);
    if (have == Placement::TokensSharded) local.front() = multiplied(local.front(), target_.tp);
    local.back() = {.count = local_size(columns_)};
    return local;
  }

  ValueId add(ValueId from, Shape shape, Placement where, bool in_place = false) {
    Value moved = layer_.block.values[at(from)];
    moved.shape = std::move(shape);
    moved.storage = Storage::Transient;
    moved.alias = in_place ? std::optional(from) : std::nullopt;
    return layer_.add_value(std::move(moved), where, columns_);
  }

  void emit(std::string_view suffix, Lane lane, decltype(Operation::work) work, ValueId from,
            ValueId to) {
    layer_.emit(target_.name + std::string(suffix), target_.phase, lane, std::move(work), {from},
                {to});
  }

  ValueId communicated(Collective collective, std::string_view suffix, ValueId from, ValueId to) {
    const Value& passed = layer_.block.values[at(from)];
    emit(suffix, Lane::Tp,
         CollectiveOp{.collective = collective,
                      .group = Group::Tp,
                      .dtype = passed.dtype,
                      .elements = element_count(passed.shape)},
         from, to);
    return to;
  }

  ValueId copied(ComputeKind kind, std::string_view suffix, ValueId from, Shape shape,
                 Placement where) {
    const ValueId to = add(from, std::move(shape), where);
    emit(
        suffix, Lane::Compute,
        ComputeOp{
            .kind = kind, .tokens_sharded = where == Placement::TokensSharded, .columns = columns_},
        from, to);
    return to;
  }

  ValueId summed(ValueId from) {
    return communicated(Collective::AllReduce, ".all_reduce", from,
                        add(from, shape(from), Placement::Replicated, /*in_place=*/true));
  }
  ValueId scattered(ValueId from, Shape shape, Placement where) {
    return communicated(Collective::ReduceScatter, ".reduce_scatter", from,
                        add(from, std::move(shape), where));
  }
  ValueId with_all_tokens(ValueId from) {
    Shape all = shape(from);
    all.front() = multiplied(all.front(), target_.tp);
    return communicated(Collective::AllGather, ".all_gather", from,
                        add(from, std::move(all), Placement::Replicated));
  }

  /// The parts of all ranks one after the other: (tp, rows, local columns).
  Shape stacked(const Shape& rows) const {
    Shape parts = {{.count = target_.tp}};
    parts.insert(parts.end(), rows.begin(), rows.end() - 1);
    parts.push_back({.count = local_size(columns_)});
    return parts;
  }

  void require_cut_columns() const {
    const bool cut = !columns_.empty() && std::ranges::all_of(columns_, [](const auto& part) {
      return part.copies == 1;
    });
    require_invariant(cut, "the columns of " + target_.name + " are not cut into one part a rank");
  }

  ValueId with_all_columns(ValueId from, bool own_tokens) {
    require_cut_columns();
    const ValueId parts = communicated(Collective::AllGather, ".all_gather", from,
                                       add(from, stacked(shape(from)), Placement::Replicated));
    Shape all = own_tokens ? with_own_tokens(from) : shape(from);
    all.back() = {.count = target_.tp * local_size(columns_)};
    return copied(ComputeKind::UnpackColumns, ".unpack", parts, std::move(all),
                  own_tokens ? Placement::TokensSharded : Placement::Replicated);
  }

  ValueId with_own_columns_summed(ValueId from) {
    require_cut_columns();
    const Shape own = with_own_columns(from, Placement::Partial);
    const ValueId parts =
        copied(ComputeKind::PackColumns, ".pack", from, stacked(shape(from)), Placement::Partial);
    return scattered(parts, own, Placement::FeaturesSharded);
  }

  ShardedLayer& layer_;
  const MoveTarget& target_;
  const std::vector<ShardSection> columns_;  // a copy: adding values moves the layer's lists
};

}  // namespace

ValueId move_value(ShardedLayer& layer, const MoveTarget& target, ValueId from, Placement have,
                   Placement want, const std::vector<ShardSection>& columns) {
  return Mover(layer, target, columns).move(from, have, want);
}

bool only_moves(const Operation& operation) {
  if (const auto* collective = std::get_if<CollectiveOp>(&operation.work))
    return collective->group == Group::Tp;
  const auto* compute = std::get_if<ComputeOp>(&operation.work);
  return compute != nullptr && compute->over == Group::Tp &&
         (compute->kind == ComputeKind::SliceRows || compute->kind == ComputeKind::SliceColumns ||
          compute->kind == ComputeKind::PackColumns || compute->kind == ComputeKind::UnpackColumns);
}

std::int64_t local_size(const std::vector<ShardSection>& sections) {
  std::int64_t size = 0;
  for (const ShardSection& section : sections) size += section.size;
  return size;
}

}  // namespace meshplan::program
