// What a layer keeps for its backward pass, and what that computes again.
#include <algorithm>

#include "stacks/layer_walk.hpp"

namespace meshplan::sim {
namespace {

using models::OpKind;

}  // namespace

void LayerWalk::count_saved(bool recomputed) {
  work_.input_bytes = layer_.input ? elements(*layer_.input) * kHalfBytes : 0;
  if (layer_.input) places_[at(*layer_.input)] = Place::Residual;
  if (layer_.input && layer_.output)
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
    case RunRecompute::PerOp:
      work_.saved_bytes = work_.input_bytes + kept_product_bytes();
      return;
  }
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
      for (const double part : parts) {
        if (keep) bytes += part * kHalfBytes;
        keep = !keep;
      }
    }
    if (op.kind == OpKind::Attention || op.kind == OpKind::LatentAttention)
      bytes += elements(op.outputs.front()) * kHalfBytes;
  }
  return bytes;
}

void LayerWalk::keep_what_backward_reads(std::vector<WorkItem>& items) {
  const auto last = std::find_if(items.rbegin(), items.rend(), [](const WorkItem& item) {
    return item.kind == WorkKind::Product;
  });
  if (last != items.rend()) items.erase(std::prev(last.base()), items.end());
  std::erase_if(items, [](const WorkItem& item) {
    return item.kind == WorkKind::Collective && item.collective == Collective::AllGather &&
           item.group == Group::Tp;
  });
}

void LayerWalk::add_recompute() {
  if (!layer_.input) return;
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
    case RunRecompute::PerOp: {
      bool keep = true;
      for (const WorkItem& item : work_.forward) {
        if (item.kind == WorkKind::Stream) work_.recompute.push_back(item);
        if (item.kind == WorkKind::Product) {
          if (!keep) work_.recompute.push_back(item);
          keep = !keep;
        }
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
