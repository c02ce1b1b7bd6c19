// What a layer keeps for its backward pass, and what that computes again.
#include <algorithm>

#include "stacks/layer/layer_walk.hpp"

namespace meshplan::sim {
namespace {

using models::OpKind;

bool is_exchange(const WorkItem& item) {
  return item.kind == WorkKind::Dispatch ||
         (item.kind == WorkKind::Collective && item.group == program::Group::Ep);
}

}  // namespace

void LayerWalk::count_saved(bool recomputed) {
  work_.input_bytes = layer_.input ? elements(*layer_.input) * kHalfBytes : 0;
  if (layer_.input) places_[at(*layer_.input)] = Place::Residual;
  const bool has_backward = !layer_.output || has_gradient_[at(*layer_.output)];
  if (!has_backward) work_.input_bytes = 0;
  if (layer_.input && layer_.output && has_backward)
    work_.saved_bytes +=
        profile_.unfused_saved_bytes * tokens_ * run_.model.hidden_size / run_.parallel.tp;
  work_.transient_bytes = work_.saved_bytes;
  if (!recomputed || !layer_.input) return;
  switch (run_.recompute) {
    case RunRecompute::None:
      return;
    case RunRecompute::Full:
    case RunRecompute::EverySecondLayer:
      work_.saved_bytes = work_.input_bytes;
      return;
    case RunRecompute::CoreAttention:
      work_.saved_bytes -= core_saved_;
      return;
    case RunRecompute::Modules:
      work_.saved_bytes -= module_bytes();
      return;
    case RunRecompute::PerOp:
      work_.saved_bytes = work_.input_bytes + kept_product_bytes();
      return;
  }
}

double LayerWalk::module_bytes() const {
  using models::Module;
  const models::ModuleSet wanted = run_.recompute_modules;
  models::ModuleSet hand_on = wanted;  // their output, which the operation behind them keeps
  for (const Module module :
       {Module::Norms, Module::Activations, Module::MoeAct, Module::MlaUpProj})
    hand_on.remove(module);
  const auto made_by = [&](const Op& op) {
    models::ModuleSet modules = op.modules;
    modules.remove(Module::Attention);  // the projection behind it keeps what it makes
    return modules;
  };
  double bytes = wanted.contains(Module::Attention) ? core_saved_ : 0;
  for (const Op& op : layer_.ops) {
    if (!made_by(op).intersects(wanted)) continue;
    for (const TensorId id : op.outputs) {
      const auto saved = saved_.find(id);
      if (saved == saved_.end()) continue;
      const bool leaves = std::ranges::any_of(layer_.ops, [&](const Op& reader) {
        return std::ranges::find(reader.inputs, id) != reader.inputs.end() &&
               !reader.modules.intersects(hand_on);
      });
      if (!leaves || !made_by(op).intersects(hand_on)) bytes += saved->second;
    }
  }
  return bytes;
}

/// Each module is entered once, whatever it consists of.
void LayerWalk::recompute_modules() {
  bool inside = false;
  for (std::size_t i = 0; i < layer_.ops.size(); ++i) {
    const bool again = layer_.ops[i].modules.intersects(run_.recompute_modules);
    if (again && !inside && !work_.recompute.empty())
      work_.recompute.push_back(
          {.kind = WorkKind::Stream, .bytes = 0, .kernels = profile_.recompute_kernels});
    inside = again;
    if (!again) continue;
    const std::size_t begin = i == 0 ? 0 : end_of_[i - 1];
    work_.recompute.insert(work_.recompute.end(),
                           work_.forward.begin() + static_cast<std::ptrdiff_t>(begin),
                           work_.forward.begin() + static_cast<std::ptrdiff_t>(end_of_[i]));
  }
}

/// The gradients of a sum read nothing of it.
bool LayerWalk::only_added(TensorId id) const {
  return std::ranges::all_of(layer_.ops, [&](const Op& reader) {
    return std::ranges::find(reader.inputs, id) == reader.inputs.end() ||
           reader.kind == OpKind::Add;
  });
}

double LayerWalk::kept_product_bytes() const {
  double bytes = 0;
  bool keep = true;
  for (const Op& op : layer_.ops) {
    if (op.kind == OpKind::Linear) {
      // Such stacks multiply by each part of a fused weight on its own.
      const auto& tensor = layer_.tensors[at(op.outputs.front())];
      const double whole = elements(op.outputs.front());
      std::vector<double> parts{whole};
      if (!tensor.sections.empty()) {
        parts.clear();
        const double features = width(op.outputs.front(), Place::Residual);
        for (const std::int64_t section : tensor.sections)
          parts.push_back(whole * static_cast<double>(section) / features);
      }
      const bool kept = profile_.keeps_unread_products || !only_added(op.outputs.front());
      for (const double part : parts) {
        if (keep && kept) bytes += part * kHalfBytes;
        keep = !keep;
      }
    }
    if (op.kind == OpKind::Attention || op.kind == OpKind::LatentAttention)
      bytes += elements(op.outputs.front()) * kHalfBytes;
    // To the experts and back each rank gets as many rows as it sends.
    const bool exchanges = op.kind == OpKind::Dispatch || op.kind == OpKind::Combine;
    if (exchanges && run_.parallel.ep > 1 && profile_.keeps_exchanged_rows)
      bytes +=
          routed_ / run_.parallel.etp * width(op.outputs.front(), Place::Residual) * kHalfBytes;
  }
  return bytes;
}

/// Leaves out the layer's last product, and of experts the last and all up to the end of their way
/// back, whose results nothing in the backward pass reads.
void LayerWalk::keep_what_backward_reads(std::vector<WorkItem>& items) const {
  const auto last_of = [&](auto is_one) {
    const auto last = std::find_if(items.rbegin(), items.rend(), is_one);
    return last == items.rend() ? items.end() : std::prev(last.base());
  };
  const auto is_product = [](const WorkItem& item) { return item.kind == WorkKind::Product; };
  items.erase(last_of(is_product), items.end());
  const auto experts =
      last_of([&](const WorkItem& item) { return is_product(item) && item.routed; });
  const auto back = last_of(is_exchange);
  if (experts != items.end() && back != items.end() && experts < back)
    items.erase(experts, std::next(back));
  if (!profile_.recompute_skips_gathers) return;
  std::erase_if(items, [](const WorkItem& item) {
    return item.kind == WorkKind::Collective && item.collective == Collective::AllGather &&
           item.group == Group::Tp;
  });
}

void LayerWalk::add_recompute() {
  if (!layer_.input || work_.input_bytes <= 0) return;  // nothing that leads to a gradient
  switch (run_.recompute) {
    case RunRecompute::None:
      return;
    case RunRecompute::Full:
    case RunRecompute::EverySecondLayer:
      work_.recompute = work_.forward;
      if (profile_.recompute_stops_early) keep_what_backward_reads(work_.recompute);
      break;
    case RunRecompute::CoreAttention:
      work_.recompute.assign(work_.forward.begin() + static_cast<std::ptrdiff_t>(core_begin_),
                             work_.forward.begin() + static_cast<std::ptrdiff_t>(core_end_));
      break;
    case RunRecompute::Modules:
      recompute_modules();
      break;
    case RunRecompute::PerOp: {
      bool keep = true;
      for (const WorkItem& item : work_.forward) {
        if (item.kind == WorkKind::Stream) work_.recompute.push_back(item);
        // Grouped products and a router's are not among those of which every second is kept
        // (torchtitan's save list: aten.mm; force_recompute_mm_shapes_by_fqns: moe.router.gate).
        if (item.kind == WorkKind::Product) {
          const bool counts = !item.routed && !item.static_router;
          if (!keep || !counts) work_.recompute.push_back(item);
          if (counts) keep = !keep;
        }
        const bool exchange =
            item.kind == WorkKind::Dispatch ||
            (item.kind == WorkKind::Collective && item.collective == Collective::AllToAll);
        if (exchange && item.routed && !profile_.keeps_exchanged_rows)
          work_.recompute.push_back(item);
        // A gather's result is not kept; a reduce-scatter's is (torchtitan's save list).
        if (item.kind == WorkKind::Collective && item.collective == Collective::AllGather)
          work_.recompute.push_back(item);
      }
      break;
    }
  }
  work_.recompute.push_back(
      {.kind = WorkKind::Stream, .bytes = 0, .kernels = profile_.recompute_kernels});
}

}  // namespace meshplan::sim
