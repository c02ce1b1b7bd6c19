// Splits a backward pass into the part that other stages wait for and the part that can be put off
// (Qi et al. 2023, section 2): what computes weight gradients is marked, and all that it reads
// outlives the input-gradient task. Buffers that the first part would overwrite get a successor
// instead, so nothing is copied where a kernel can write elsewhere.
#include "passes/weight_gradients.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "core/index.hpp"

namespace meshplan::program {
namespace {

class Separator {
 public:
  explicit Separator(ShardedLayer& layer) : layer_(layer), operations_(layer.block.backward) {}

  void run() {
    mark_deferrable();
    const auto stream = std::ranges::find_if(layer_.block.values, [](const Value& value) {
      return value.storage == Storage::LayerOutputGrad && !value.alias;
    });
    if (stream != layer_.block.values.end()) {
      if (std::ranges::any_of(operations_, &Operation::deferrable))
        stream->keep = Keep::BetweenGrads;
      stream_ = static_cast<ValueId>(stream - layer_.block.values.begin());
    }
    const bool stream_is_input_gradient =
        stream_ && layer_.input && layer_.needs_input_gradient && !has_input_gradient();
    for (std::size_t i = 0; i < operations_.size(); ++i)
      if (!operations_[i].deferrable) keep_older_versions(i);
    if (stream_is_input_gradient) value(*stream_).storage = Storage::LayerInputGrad;
    for (const Operation& operation : operations_)
      if (operation.deferrable)
        for (const ValueId input : operation.inputs) keep(layer_.root(input));
  }

 private:
  Value& value(ValueId id) { return layer_.block.values[at(id)]; }

  bool has_input_gradient() const {
    return std::ranges::find(layer_.block.values, Storage::LayerInputGrad, &Value::storage) !=
           layer_.block.values.end();
  }
  bool reads(const Operation& operation, ValueId root) const {
    return version_read(operation, root).has_value();
  }
  bool writes(const Operation& operation, ValueId root) const {
    return std::ranges::any_of(operation.outputs,
                               [&](ValueId id) { return layer_.root(id) == root; });
  }

  /// Weight gradients, and what is computed again for them alone.
  void mark_deferrable() {
    for (std::size_t i = operations_.size(); i-- > 0;) {
      Operation& operation = operations_[i];
      operation.deferrable = operation.phase == Phase::WeightGrad ||
                             (operation.phase == Phase::Recompute && only_deferred_use(i));
    }
  }
  bool only_deferred_use(std::size_t index) const {
    bool used = false;
    for (const ValueId output : operations_[index].outputs) {
      const ValueId root = layer_.root(output);
      for (std::size_t j = index + 1; j < operations_.size(); ++j) {
        if (!reads(operations_[j], root) && !writes(operations_[j], root)) continue;
        if (!operations_[j].deferrable) return false;
        used = true;
      }
    }
    return used;
  }

  bool read_by_deferred_before(std::size_t index, ValueId root) const {
    for (std::size_t j = 0; j < index; ++j)
      if (operations_[j].deferrable && reads(operations_[j], root)) return true;
    return false;
  }

  /// If operation `index` updates a buffer that a deferred one still has to read, it gets a new
  /// one.
  void keep_older_versions(std::size_t index) {
    const std::vector<ValueId> outputs = operations_[index].outputs;
    for (const ValueId output : outputs) {
      const ValueId root = layer_.root(output);
      const bool of_stream = stream_ == root && value(root).storage == Storage::LayerOutputGrad;
      const auto changed = version_read(operations_[index], root);
      if (!changed) continue;
      if (!of_stream && !read_by_deferred_before(index, root)) continue;
      const ValueId next = successor(root, output);
      if (stream_ == root) stream_ = next;
      if (!adds_elsewhere(operations_[index])) {
        insert_copy(index, *changed, next);
        move_versions(index + 1, root, next);
        return keep_older_versions(index + 1);
      }
      value(output).alias = next;
      move_versions(index + 1, root, next);
    }
  }

  /// What `operation` reads of the buffer `root`, if it does.
  std::optional<ValueId> version_read(const Operation& operation, ValueId root) const {
    const auto found =
        std::ranges::find_if(operation.inputs, [&](ValueId id) { return layer_.root(id) == root; });
    return found == operation.inputs.end() ? std::nullopt : std::optional(*found);
  }

  ValueId successor(ValueId root, ValueId output) {
    Value next = value(output);
    next.name = value(root).name + ".next";
    next.storage = Storage::Transient;
    next.keep = Keep::UntilInputGrad;
    next.alias.reset();
    return layer_.add_value(std::move(next), layer_.placement[at(output)]);
  }

  /// The gradient of a norm adds the residual stream's to its own wherever it is told to.
  static bool adds_elsewhere(const Operation& operation) {
    const auto* compute = std::get_if<ComputeOp>(&operation.work);
    return compute != nullptr &&
           (compute->kind == ComputeKind::RmsNorm || compute->kind == ComputeKind::LayerNorm);
  }

  void insert_copy(std::size_t index, ValueId from, ValueId to) {
    ComputeOp copy{.kind = ComputeKind::Scale, .tokens_sharded = layer_.tokens_sharded(from)};
    copy.attributes.scale = 1;
    operations_.insert(operations_.begin() + static_cast<std::ptrdiff_t>(index),
                       {.name = value(from).name + ".copy",
                        .phase = Phase::InputGrad,
                        .lane = Lane::Compute,
                        .work = copy,
                        .inputs = {from},
                        .outputs = {to}});
  }

  /// From operation `begin` on, `next` is the buffer of every version that lay in `root`.
  void move_versions(std::size_t begin, ValueId root, ValueId next) {
    const auto lies_there = [&](ValueId id) {
      if (layer_.root(id) != root) return false;
      require_invariant(value(id).shape.size() == value(next).shape.size(),
                        value(id).name + " is seen in another shape than its buffer");
      return true;
    };
    for (std::size_t i = begin; i < operations_.size(); ++i) {
      for (ValueId& input : operations_[i].inputs)  // made before: it has been copied
        if (lies_there(input)) input = next;
      for (const ValueId output : operations_[i].outputs)
        if (lies_there(output)) value(output).alias = next;
    }
  }

  void keep(ValueId root) {
    Value& kept = value(root);
    switch (kept.storage) {
      case Storage::Saved:
      case Storage::LayerInput:
        if (kept.keep == Keep::UntilInputGrad) kept.keep = Keep::UntilWeightGrad;
        return;
      case Storage::Transient:
        if (!made_before_deferral(root)) return;
        kept.storage = Storage::Saved;
        kept.keep = Keep::BetweenGrads;
        return;
      case Storage::LayerInputGrad:
      case Storage::LayerOutput:
        throw InvariantError(kept.name + " has left the layer when its weight gradient needs it");
      default:
        return;
    }
  }
  bool made_before_deferral(ValueId root) const {
    return std::ranges::any_of(operations_, [&](const Operation& operation) {
      return !operation.deferrable && writes(operation, root);
    });
  }

  ShardedLayer& layer_;
  std::vector<Operation>& operations_;
  std::optional<ValueId> stream_;  // the gradient that the layers of a task pass on
};

}  // namespace

void separate_weight_gradients(ShardedLayer& layer) {
  Separator(layer).run();
}

}  // namespace meshplan::program
