#include "checks/dataflow.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <functional>

#include "core/error.hpp"
#include "core/index.hpp"

namespace meshplan::program {
namespace {

/// Added to by many operations, of many layers: no version has a maker of its own.
bool is_sum_of_many(Storage storage) {
  return storage == Storage::Gradient || storage == Storage::LossScalar ||
         storage == Storage::RouterLosses || storage == Storage::IndexerLoss ||
         storage == Storage::ExpertLoad;
}

/// There before the layer's operations begin.
bool comes_from_outside(Storage storage) {
  switch (storage) {
    case Storage::Parameter:
    case Storage::BatchIds:
    case Storage::BatchTargets:
    case Storage::BatchPositions:
    case Storage::BatchKeyRanges:
    case Storage::BatchOrder:
    case Storage::LayerInput:
    case Storage::LayerOutputGrad:
      return true;
    default:
      return is_sum_of_many(storage);
  }
}

class Tracer {
 public:
  explicit Tracer(const Block& block) : block_(block), buffers_(block.values.size()) {
    flow_.forward.resize(block.forward.size());
    flow_.backward.resize(block.backward.size());
  }

  Dataflow run() {
    play(block_.forward, /*backward=*/false, [](const Operation&) { return true; });
    flow_.output = last_maker(Storage::LayerOutput);
    forget_transients();
    const std::vector<Buffer> after_forward = buffers_;
    play(block_.backward, true, [](const Operation&) { return true; });
    flow_.input_gradient = maker_of_input_gradient();
    if (std::ranges::none_of(block_.backward, &Operation::deferrable)) return std::move(flow_);
    const Dataflow::Makers as_listed = flow_.backward;
    buffers_ = after_forward;
    play(block_.backward, true, [](const Operation& op) { return !op.deferrable; });
    forget_transients();
    play(block_.backward, true, &Operation::deferrable);
    compare_with(as_listed);
    return std::move(flow_);
  }

 private:
  /// What lies in a buffer, by its root value.
  struct Buffer {
    std::optional<ValueId> holds;
    std::optional<Maker> maker;
  };

  template <class Runs>
  void play(const std::vector<Operation>& operations, bool backward, Runs runs) {
    for (std::size_t i = 0; i < operations.size(); ++i) {
      const Operation& operation = operations[i];
      if (!std::invoke(runs, operation)) continue;
      auto& makers = (backward ? flow_.backward : flow_.forward)[i];
      makers.clear();
      for (const ValueId input : operation.inputs) makers.push_back(read(operation, input));
      for (const ValueId output : operation.outputs)
        buffer(output) = {output, Maker{backward, static_cast<int>(i)}};
    }
  }

  std::optional<Maker> read(const Operation& reader, ValueId id) {
    const ValueId root = root_of(block_, id);
    const Storage storage = block_.values[at(root)].storage;
    if (is_sum_of_many(storage)) return std::nullopt;
    const Buffer& found = buffer(id);
    if (!found.holds) {
      if (id != root || !comes_from_outside(storage))
        error(fmt::format("{} reads {} before it is made", reader.name, name_of(id)));
      return std::nullopt;
    }
    if (*found.holds != id)
      error(fmt::format("{} reads {} when {} has been written over it by {}", reader.name,
                        name_of(id), name_of(*found.holds), operation_at(*found.maker).name));
    return found.maker;
  }

  Buffer& buffer(ValueId id) { return buffers_[at(root_of(block_, id))]; }
  const std::string& name_of(ValueId id) const { return block_.values[at(id)].name; }
  const Operation& operation_at(const Maker& maker) const {
    return (maker.backward ? block_.backward : block_.forward)[at(maker.operation)];
  }
  void error(std::string text) {
    if (std::ranges::find(flow_.errors, text) == flow_.errors.end())
      flow_.errors.push_back(std::move(text));
  }

  void forget_transients() {
    for (std::size_t id = 0; id < buffers_.size(); ++id)
      if (block_.values[id].storage == Storage::Transient) buffers_[id] = {};
  }

  std::optional<Maker> last_maker(Storage storage) const {
    std::optional<Maker> last;
    for (std::size_t id = 0; id < buffers_.size(); ++id) {
      const Value& value = block_.values[id];
      if (value.storage == storage && !value.alias && buffers_[id].maker) last = buffers_[id].maker;
    }
    return last;
  }

  std::optional<Maker> maker_of_input_gradient() const {
    const auto own = last_maker(Storage::LayerInputGrad);
    return own ? own : last_maker(Storage::LayerOutputGrad);
  }

  /// Putting weight gradients off may change the order, and not what is read.
  void compare_with(const Dataflow::Makers& as_listed) {
    for (std::size_t i = 0; i < as_listed.size(); ++i)
      if (as_listed[i] != flow_.backward[i])
        error(fmt::format("{} reads something else when weight gradients are put off",
                          block_.backward[i].name));
  }

  const Block& block_;
  std::vector<Buffer> buffers_;  // by root
  Dataflow flow_;
};

/// Does one of two operations write what the other one reads or writes?
bool meet(const Block& block, const Operation& first, const Operation& second) {
  const auto share = [&](const std::vector<ValueId>& a, const std::vector<ValueId>& b) {
    return std::ranges::any_of(a, [&](ValueId x) {
      return std::ranges::any_of(b,
                                 [&](ValueId y) { return root_of(block, x) == root_of(block, y); });
    });
  };
  return share(first.inputs, second.outputs) || share(first.outputs, second.inputs) ||
         share(first.outputs, second.outputs);
}

}  // namespace

Dataflow dataflow_of(const Block& block) {
  return Tracer(block).run();
}

void require_sound(const Block& block, std::string_view pass) {
  const std::vector<std::string> errors = dataflow_of(block).errors;
  if (!errors.empty())
    throw InvariantError(
        fmt::format("layer '{}' after {}: {}", block.name, pass, fmt::join(errors, "; ")));
}

bool may_move(const Block& block, const std::vector<Operation>& operations, std::size_t from,
              std::size_t to) {
  for (std::size_t i = std::min(from, to); i <= std::max(from, to); ++i)
    if (i != from && meet(block, operations[from], operations[i])) return false;
  return true;
}

}  // namespace meshplan::program
