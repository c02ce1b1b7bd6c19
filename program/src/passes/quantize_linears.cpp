// Products of linears in FP8. Matrix units read FP8 only with the summed dimension last, so
//
//   forward          y  = x w^T     reads x and w
//   input gradient   dx = dy w      reads dy and w^T
//   weight gradient  dw = dy^T x    reads dy^T and x^T
//
// with values and weights in E4M3 and gradients in E5M2 (Micikevicius et al. 2022, section 3; the
// layouts: NVIDIA, Transformer Engine, "Using FP8 with Transformer Engine"). Each tensor is
// quantized once, before the first product that reads it, into the layouts that are needed. The
// scale is that of what this rank holds: shards over tp have scales of their own.
#include "passes/quantize_linears.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <set>

#include "core/error.hpp"
#include "core/index.hpp"
#include "models/adapters.hpp"
#include "plan/float8.hpp"

namespace meshplan::program {
namespace {

// A tensor in FP8: what its Quantize has been asked for so far.
struct Codes {
  bool forward_list = true;   // which list that operation is in
  std::size_t operation = 0;  // and where
  ValueId of = 0;
  ValueId scale = 0;
  std::optional<ValueId> rows;
  std::optional<ValueId> columns;
};

enum class Layout { Rows, Columns };

class Quantizer {
 public:
  Quantizer(ShardedLayer& layer, bool keep_weights) : layer_(layer), keep_weights_(keep_weights) {}

  void run() {
    rewrite(layer_.block.forward, /*forward_list=*/true);
    rewrite(layer_.block.backward, /*forward_list=*/false);
    for (const ValueId id : replaced_)
      if (!read_backward(id)) value(id).storage = Storage::Transient;
  }

 private:
  Value& value(ValueId id) { return layer_.block.values[at(id)]; }

  void rewrite(std::vector<Operation>& operations, bool forward_list) {
    std::vector<Operation> before = std::move(operations);
    operations.clear();
    list_ = &operations;
    forward_list_ = forward_list;
    current_.clear();
    for (Operation& operation : before) {
      if (is_scaled(operation)) {
        scale(std::move(operation));
      } else {
        list_->push_back(std::move(operation));
      }
      forget_overwritten();
    }
  }

  /// A linear whose product is worth it: not a gate of one feature, nor of a low rank.
  bool is_scaled(const Operation& operation) {
    const auto* work = std::get_if<ComputeOp>(&operation.work);
    if (work == nullptr || work->kind != ComputeKind::Linear) return false;
    if (models::is_of_adapter(operation.name)) return false;
    const bool weight_grad = operation.phase == Phase::WeightGrad;
    const ValueId weight = weight_grad ? operation.outputs.front() : operation.inputs[1];
    return computes_in_float8(work->split, value(weight).shape.front().count);
  }

  void scale(Operation operation) {
    std::get<ComputeOp>(operation.work).kind = ComputeKind::ScaledLinear;
    switch (operation.phase) {
      case Phase::Forward:
      case Phase::Recompute:
        return scale_forward(std::move(operation));
      case Phase::InputGrad:
        return scale_input_grad(std::move(operation));
      case Phase::WeightGrad:
        return scale_weight_grad(std::move(operation));
      default:
        throw InvariantError(operation.name + " is no phase of a linear");
    }
  }

  void scale_forward(Operation operation) {
    const auto x = codes_of(operation.inputs[0], operation.phase, Layout::Rows);
    const auto w = weight_codes_of(operation.inputs[1], operation.phase, Layout::Rows);
    std::vector<ValueId> inputs = {x.first, x.second, w.first, w.second};
    inputs.insert(inputs.end(), operation.inputs.begin() + 2, operation.inputs.end());
    operation.inputs = std::move(inputs);
    list_->push_back(std::move(operation));
  }

  void scale_input_grad(Operation operation) {
    const auto dy = codes_of(operation.inputs[0], operation.phase, Layout::Rows, true);
    const auto w = weight_codes_of(operation.inputs[1], operation.phase, Layout::Columns);
    operation.inputs = {dy.first, dy.second, w.first, w.second};
    list_->push_back(std::move(operation));
  }

  /// The gradient of a bias is a sum of dy as it was: products in FP8 have no epilogue for it.
  void scale_weight_grad(Operation operation) {
    const ValueId dy = operation.inputs[0];
    const auto dy_columns = codes_of(dy, Phase::InputGrad, Layout::Columns, true);
    const auto x = input_codes_of(operation.inputs[1]);
    std::optional<Operation> bias;
    if (operation.outputs.size() > 1) {
      bias = operation;
      bias->name += ".bias";
      bias->work =
          ComputeOp{.kind = ComputeKind::BiasAdd, .tokens_sharded = layer_.tokens_sharded(dy)};
      bias->inputs = {dy};
      bias->outputs = {operation.outputs[1]};
      operation.outputs.pop_back();
    }
    operation.inputs = {dy_columns.first, dy_columns.second, x.first, x.second};
    list_->push_back(std::move(operation));
    if (bias) list_->push_back(std::move(*bias));
  }

  /// Codes and scale of `id` in the current list, from the operation that quantizes it there.
  std::pair<ValueId, ValueId> codes_of(ValueId id, Phase phase, Layout layout,
                                       bool gradient = false) {
    auto found = current_.find(id);
    if (found == current_.end())
      found = current_.emplace(id, quantize(id, phase, gradient, Storage::Transient)).first;
    Codes& codes = found->second;
    const ValueId made = codes_in(codes, layout, Storage::Transient);
    if (forward_list_) of_forward_[id] = codes;
    return {made, codes.scale};
  }

  /// Kept weights are quantized in the forward pass, in whatever layouts are needed.
  std::pair<ValueId, ValueId> weight_codes_of(ValueId id, Phase phase, Layout layout) {
    if (!keep_weights_) return codes_of(id, phase, layout);
    auto found = weights_.find(id);
    if (found == weights_.end()) {
      require_invariant(forward_list_, value(id).name + " is first read in the backward pass");
      found = weights_.emplace(id, quantize(id, phase, false, Storage::QuantizedWeight)).first;
      list_->back().once_per_step = true;
    }
    const ValueId made = codes_in(found->second, layout, Storage::QuantizedWeight);
    return {made, found->second.scale};
  }

  /// A linear's input as its weight gradient reads it: in FP8 since the forward pass where it would
  /// have been kept for that, else of what is computed again, or of what a product that is computed
  /// again has quantized just before.
  std::pair<ValueId, ValueId> input_codes_of(ValueId id) {
    const ValueId root = layer_.root(id);
    const auto kept = of_forward_.find(id);
    if (value(root).storage != Storage::Saved || kept == of_forward_.end() || current_.contains(id))
      return codes_of(id, Phase::Recompute, Layout::Columns);
    replaced_.insert(root);
    const ValueId made = codes_in(kept->second, Layout::Columns, Storage::Saved);
    value(kept->second.scale).storage = Storage::Saved;
    return {made, kept->second.scale};
  }

  Codes quantize(ValueId id, Phase phase, bool gradient, Storage storage) {
    Codes codes{.forward_list = forward_list_, .operation = list_->size(), .of = id};
    codes.scale = layer_.add_value(
        {.name = value(id).name + ".scale", .shape = {models::Dim{}}, .storage = storage},
        Placement::Replicated);
    list_->push_back({.name = unique(value(id).name + ".quantize"),
                      .phase = phase,
                      .lane = Lane::Compute,
                      .work = ComputeOp{.kind = ComputeKind::Quantize,
                                        .tokens_sharded = layer_.tokens_sharded(id),
                                        .cast = Float8Cast{.gradient = gradient}},
                      .inputs = {id},
                      .outputs = {codes.scale}});
    return codes;
  }

  /// Asks the operation for this layout, too.
  ValueId codes_in(Codes& codes, Layout layout, Storage storage) {
    const bool columns = layout == Layout::Columns;
    std::optional<ValueId>& made = columns ? codes.columns : codes.rows;
    if (made) return *made;
    Value codes_value{.name = value(codes.of).name + (columns ? ".fp8_t" : ".fp8"),
                      .dtype = DType::U8,
                      .shape = value(codes.of).shape,
                      .storage = storage};
    require_invariant(codes_value.shape.size() == 2, codes_value.name + " is no matrix");
    if (columns) std::ranges::reverse(codes_value.shape);
    made = layer_.add_value(std::move(codes_value), layer_.placement[at(codes.of)]);
    auto& list = codes.forward_list ? layer_.block.forward : layer_.block.backward;
    Operation& operation = list[codes.operation];
    operation.outputs = {codes.scale};
    for (const auto& output : {codes.rows, codes.columns})
      if (output) operation.outputs.push_back(*output);
    Float8Cast& cast = *std::get<ComputeOp>(operation.work).cast;
    cast.rows = codes.rows.has_value();
    cast.columns = codes.columns.has_value();
    return *made;
  }

  /// What the last operation has written is to be quantized anew.
  void forget_overwritten() {
    for (const ValueId output : list_->back().outputs)
      std::erase_if(current_, [&](const auto& entry) {
        return layer_.root(entry.first) == layer_.root(output);
      });
  }

  bool read_backward(ValueId root) const {
    return std::ranges::any_of(layer_.block.backward, [&](const Operation& operation) {
      return std::ranges::any_of(operation.inputs,
                                 [&](ValueId id) { return layer_.root(id) == root; });
    });
  }

  std::string unique(std::string name) {
    const int times = ++names_[name];
    return times == 1 ? name : fmt::format("{}.{}", name, times);
  }

  ShardedLayer& layer_;
  bool keep_weights_;
  std::vector<Operation>* list_ = nullptr;
  bool forward_list_ = true;
  std::map<ValueId, Codes> current_;     // of the list, as long as they are what the tensor is
  std::map<ValueId, Codes> of_forward_;  // of the forward pass, as its linears read them
  std::map<ValueId, Codes> weights_;     // kept
  std::set<ValueId> replaced_;           // kept so far for weight gradients alone, or also for them
  std::map<std::string, int> names_;
};

}  // namespace

void quantize_linears(ShardedLayer& layer, bool keep_weights) {
  Quantizer(layer, keep_weights).run();
}

}  // namespace meshplan::program
