#include "layer_work.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "core/error.hpp"

namespace meshplan::sim {
namespace {

using models::LayerGraph;
using models::Op;
using models::OpKind;
using models::Split;
using models::TensorClass;
using models::TensorId;
using program::Collective;
using program::Group;

constexpr double kHalfBytes = 2;    // a 16-bit element
constexpr double kStatistic = 4;    // an fp32 element
constexpr double kMaskBytes = 1;    // of dropout
constexpr double kFlashTile = 128;  // queries that one thread block holds

/// How a value is spread over the tp group.
enum class Place {
  Residual,       // all features; tokens sharded under sequence parallelism, else replicated
  Sharded,        // all tokens, features over tp
  Expert,         // routed tokens, all features
  ExpertSharded,  // routed tokens, features over etp
};

std::size_t at(int i) {
  return static_cast<std::size_t>(i);
}

class Walker {
 public:
  Walker(const LayerGraph& layer, const TrainingRun& run, const ExecutionProfile& profile)
      : layer_(layer), run_(run), profile_(profile), places_(layer.tensors.size()) {
    const auto& parallel = run.parallel;
    tokens_ = static_cast<double>(run.local_tokens());
    tokens_per_rank_ = parallel.sp ? tokens_ / parallel.tp : tokens_;
    routed_ = 0;
    if (run.model.moe) routed_ = tokens_per_rank_ * run.model.moe->top_k * parallel.etp;
  }

  LayerWork run(bool recomputed) {
    for (const Op& op : layer_.ops) walk(op);
    std::ranges::reverse(backward_ops_);
    for (auto& items : backward_ops_)
      work_.backward.insert(work_.backward.end(), items.begin(), items.end());
    count_saved(recomputed);
    if (recomputed) add_recompute();
    work_.forward.push_back(
        {.kind = WorkKind::Stream, .bytes = 0, .kernels = profile_.layer_kernels});
    return std::move(work_);
  }

 private:
  // ---- sizes

  double rows(Place place) const {
    switch (place) {
      case Place::Residual:
        return tokens_per_rank_;
      case Place::Sharded:
        return tokens_;
      case Place::Expert:
      case Place::ExpertSharded:
        return routed_;
    }
    throw InvariantError("unknown place");
  }

  double width(TensorId id, Place place) const {
    const auto& tensor = layer_.tensors[at(id)];
    double features = 1;
    for (std::size_t d = 1; d < tensor.shape.size(); ++d)
      features *= static_cast<double>(tensor.shape[d].count);
    if (place == Place::Sharded) return features / run_.parallel.tp;
    if (place == Place::ExpertSharded) return features / run_.parallel.etp;
    return features;
  }

  double elements(TensorId id) const {
    const Place place = places_[at(id)];
    return rows(place) * width(id, place);
  }

  double parameter_elements(TensorId id) const {
    double product = 1;
    for (const auto& dim : layer_.tensors[at(id)].shape) product *= static_cast<double>(dim.count);
    return product;
  }

  // ---- emitting

  void begin() {
    forward_begin_ = work_.forward.size();
    backward_ops_.emplace_back();
  }
  WorkItem& forward(WorkItem item) { return work_.forward.emplace_back(item); }
  WorkItem& backward(WorkItem item) { return backward_ops_.back().emplace_back(item); }

  void streams(const OperationHabit& habit, double n) {
    forward({.kind = WorkKind::Stream,
             .bytes = n * habit.forward_bytes,
             .kernels = habit.forward_kernels});
    backward({.kind = WorkKind::Stream,
              .bytes = n * habit.backward_bytes,
              .kernels = habit.backward_kernels});
  }

  static WorkItem tp(Collective collective, double bytes, bool beside = true) {
    return {.kind = WorkKind::Collective,
            .bytes = bytes,
            .collective = collective,
            .group = Group::Tp,
            .beside_product = beside};
  }

  static WorkItem exchange(Collective collective, Group group, double bytes) {
    return {.kind = WorkKind::Collective, .bytes = bytes, .collective = collective, .group = group};
  }

  void save(TensorId id, double bytes_per_element) {
    if (layer_.input && id == *layer_.input && saved_.contains(id)) return;
    if (!saved_.insert(id).second) return;
    work_.saved_bytes += elements(id) * bytes_per_element;
  }

  // ---- operations

  void walk(const Op& op) {
    begin();
    const Place in = op.inputs.empty() ? Place::Residual : places_[at(op.inputs.front())];
    for (const TensorId out : op.outputs) places_[at(out)] = in;
    count_parameters(op);
    switch (op.kind) {
      case OpKind::Embedding:
        return embedding(op);
      case OpKind::Linear:
        return linear(op, in);
      case OpKind::GroupedLinear:
        return grouped_linear(op);
      case OpKind::RmsNorm:
      case OpKind::LayerNorm:
      case OpKind::HeadRmsNorm:
        streams(profile_.norm, elements(op.outputs.front()));
        return save(op.inputs.front(), kHalfBytes);
      case OpKind::Attention:
      case OpKind::LatentAttention:
        return attention(op);
      case OpKind::Router:
        return router(op);
      case OpKind::Dispatch:
        return dispatch(op);
      case OpKind::Combine:
        return combine(op);
      case OpKind::CrossEntropy:
        return cross_entropy(op);
      case OpKind::GatedActivation:
        streams(profile_.gated_activation, elements(op.outputs.front()));
        return save(op.inputs.front(), kHalfBytes);
      case OpKind::Activation:
        // What an epilogue reads or writes more moves under its product's arithmetic.
        if (!profile_.gelu_in_products ||
            op.attributes.activation != models::ActivationKind::GeluTanh)
          streams(profile_.activation, elements(op.outputs.front()));
        return save(op.inputs.front(), kHalfBytes);
      case OpKind::Rope:
        return streams(profile_.rope, elements(op.outputs.front()));
      case OpKind::Add:
        streams(profile_.residual_add, elements(op.outputs.front()));
        if (dropout() > 0 && profile_.separate_dropout_masks)
          work_.saved_bytes += elements(op.outputs.front()) * kMaskBytes;
        return;
      case OpKind::Slice:
      case OpKind::SumLoss:
        return;
      default:
        return streams(profile_.residual_add, elements(op.outputs.front()));
    }
  }

  double dropout() const {
    return run_.switches.dropout > 0 ? run_.switches.dropout : profile_.dropout;
  }

  void count_parameters(const Op& op) {
    const auto& parallel = run_.parallel;
    for (const TensorId id : op.parameters) {
      const double n = parameter_elements(id);
      const bool matrix = layer_.tensors[at(id)].shape.size() > 1;
      if (op.kind == OpKind::GroupedLinear)
        work_.expert_parameters += n / (parallel.ep * parallel.etp);
      else if (op.split == Split::None || (op.split == Split::Row && !matrix))
        work_.dense_parameters += n;
      else
        work_.dense_parameters += n / parallel.tp;
    }
  }

  void embedding(const Op& op) {
    const double full = tokens_ * width(op.outputs.front(), Place::Residual);
    streams(profile_.embedding, full);
    if (run_.parallel.tp > 1) {
      if (run_.parallel.sp) {
        forward(tp(Collective::ReduceScatter, full * kHalfBytes, false));
        backward(tp(Collective::AllGather, full * kHalfBytes / run_.parallel.tp, false));
      } else {
        forward(tp(Collective::AllReduce, full * kHalfBytes, false));
      }
    }
  }

  void product(double count, double m, double n, double k, bool low_precision,
               const OperationHabit& habit, bool routed = false) {
    forward({.kind = WorkKind::Product,
             .count = count,
             .m = m,
             .n = n,
             .k = k,
             .low_precision = low_precision,
             .routed = routed,
             .kernels = habit.forward_kernels});
    backward({.kind = WorkKind::Product,
              .count = count,
              .m = m,
              .n = k,
              .k = n,
              .low_precision = low_precision,
              .routed = routed,
              .kernels = habit.backward_kernels / 2});
    backward({.kind = WorkKind::Product,
              .count = count,
              .m = n,
              .n = k,
              .k = m,
              .low_precision = low_precision,
              .bytes = count * n * k * profile_.gradient_accumulation_bytes,
              .routed = routed,
              .kernels = habit.backward_kernels / 2});
  }

  /// Inputs and output gradients become FP8 next to the product.
  /// @param pieces  tensors with scales of their own: the experts of a rank. With one scale per
  /// tensor they are cast by one kernel where products are grouped (Transformer Engine's
  /// nvte_multi_cast_transpose), else one by one.
  void casts(double inputs, double outputs, double pieces = 1, bool routed = false) {
    if (!run_is_fp8()) return;
    const bool per_tensor = run_.precision == RunPrecision::Fp8;
    const OperationHabit& habit = per_tensor ? profile_.fp8_cast : profile_.block_cast;
    if (per_tensor && !run_.switches.no_grouped_gemm) pieces = 1;
    forward({.kind = WorkKind::Stream,
             .bytes = inputs * habit.forward_bytes,
             .routed = routed,
             .kernels = habit.forward_kernels * pieces});
    backward({.kind = WorkKind::Stream,
              .bytes = outputs * habit.backward_bytes,
              .routed = routed,
              .kernels = habit.backward_kernels * pieces});
  }

  bool is_head(const Op& op) const { return op.split == Split::Vocab; }

  void linear(const Op& op, Place in) {
    const auto& parallel = run_.parallel;
    const TensorId input = op.inputs.front(), output = op.outputs.front();
    const bool column = op.split == Split::Column || op.split == Split::Vocab;
    Place out = in;
    if (column) out = Place::Sharded;
    if (op.split == Split::Row) out = Place::Residual;
    places_[at(output)] = out;
    const bool gathers = column && in == Place::Residual;
    const double m = op.split == Split::None ? rows(in) : tokens_;
    double n = width(output, column ? Place::Sharded : Place::Residual);
    if (is_head(op)) n = padded_vocabulary(n * parallel.tp) / parallel.tp;
    const double k = width(input, op.split == Split::Row ? Place::Sharded : Place::Residual);
    if (parallel.tp > 1 && gathers) gather_input(op, input);
    const bool low = run_is_fp8() && !is_head(op);
    product(1, m, n, k, low, profile_.linear);
    if (low) casts(m * k, m * n);
    if (parallel.tp > 1 && op.split == Split::Row) reduce_output(m * n);
    save_product_input(input, low);
    if (profile_.linear.forward_bytes > 0)  // an unfused bias
      forward({.kind = WorkKind::Stream, .bytes = m * n * profile_.linear.forward_bytes});
    if (is_head(op)) work_.logits = m * n;
  }

  bool run_is_fp8() const {
    return run_.precision != RunPrecision::Bf16 && run_.precision != RunPrecision::Fp16;
  }

  /// Megatron pads the vocabulary to a multiple of 128 tp.
  double padded_vocabulary(double v) const {
    const double multiple = 128.0 * run_.parallel.tp;
    return std::ceil(v / multiple) * multiple;
  }

  void gather_input(const Op& op, TensorId input) {
    const double full = tokens_ * width(input, Place::Residual) * kHalfBytes;
    const bool fresh = gathered_.insert(input).second;
    const bool beside = !is_head(op);
    if (!fresh) return;
    if (run_.parallel.sp) {
      // The gathered input is not kept: backward gathers again (Korthikanti et al. 2022, 4.2.2).
      work_.forward.push_back(tp(Collective::AllGather, full / run_.parallel.tp, beside));
      if (profile_.keeps_gathered_inputs)
        work_.saved_bytes += full * (run_.parallel.tp - 1) / run_.parallel.tp;
      else
        backward(tp(Collective::AllGather, full / run_.parallel.tp, beside)).beside_gradient = true;
      backward(tp(Collective::ReduceScatter, full, beside)).beside_gradient = true;
    } else {
      backward(tp(Collective::AllReduce, full, beside)).beside_gradient = true;
    }
  }

  void reduce_output(double elements_full) {
    const double full = elements_full * kHalfBytes;
    if (run_.parallel.sp) {
      forward(tp(Collective::ReduceScatter, full));
      backward(tp(Collective::AllGather, full / run_.parallel.tp));
    } else {
      forward(tp(Collective::AllReduce, full));
    }
  }

  void save_product_input(TensorId input, bool low) {
    save(input, low && profile_.saves_fp8_inputs ? 1 : kHalfBytes);
  }

  void grouped_linear(const Op& op) {
    const auto& parallel = run_.parallel;
    const TensorId input = op.inputs.front(), output = op.outputs.front();
    const bool column = op.split == Split::Column;
    places_[at(output)] = column ? Place::ExpertSharded : Place::Expert;
    const double experts = static_cast<double>(op.attributes.num_experts) / parallel.ep;
    const double n = width(output, places_[at(output)]);
    const double k = width(input, column ? Place::Expert : Place::ExpertSharded);
    double m = routed_ / experts;
    if (run_is_fp8()) m = std::ceil(m / kFp8Rows) * kFp8Rows;
    // Grouped products are issued expert by expert (Transformer Engine's multi-stream cuBLAS) or,
    // without them, module by module.
    OperationHabit habit = profile_.linear;
    habit.forward_kernels *= experts;
    habit.backward_kernels *= experts;
    product(experts, m, n, k, run_is_fp8(), habit, true);
    if (run_is_fp8()) casts(routed_ * k, routed_ * n, experts, true);
    save_product_input(input, run_is_fp8());
  }

  // ---- attention

  void attention(const Op& op) {
    const auto& parallel = run_.parallel;
    places_[at(op.outputs.front())] = Place::Sharded;
    const double heads = static_cast<double>(op.attributes.heads) / parallel.tp;
    const double head = op.attributes.head_size;
    const double value = op.attributes.value_head_size > 0 ? op.attributes.value_head_size : head;
    const double seq = static_cast<double>(run_.seq_len);
    streams(profile_.attention, elements(op.outputs.front()));
    for (const TensorId id : op.inputs)
      if (layer_.tensors[at(id)].tensor_class == TensorClass::Activation) save(id, kHalfBytes);
    save(op.outputs.front(), kHalfBytes);
    if (run_.attention == AttentionKernel::Unfused) return scores(op, heads, head, value, seq);
    double keys = op.attributes.causal ? (seq + kFlashTile) / 2 : seq;  // diagonal tiles run whole
    const double window = op.attributes.window;
    if (window > 0 && window < seq) keys = window - window * window / (2 * seq) + kFlashTile / 2;
    const double pairs = heads * tokens_ * keys;
    const double blocks = heads * std::ceil(tokens_ / kFlashTile);
    forward(
        {.kind = WorkKind::Flash, .pairs = pairs, .head_sizes = head + value, .blocks = blocks});
    backward({.kind = WorkKind::Flash,
              .pairs = pairs,
              .head_sizes = head + value,
              .blocks = blocks,
              .backward = true});
    work_.saved_bytes += heads * tokens_ * kStatistic;
    if (parallel.cp > 1) exchange_context(op, heads, head, value);
  }

  /// Keys and values travel around the cp ring, their gradients too (Liu et al. 2023, Ring
  /// Attention, section 3); or heads are exchanged for tokens (Jacobs et al. 2023, Ulysses).
  void exchange_context(const Op& op, double heads, double head, double value) {
    const auto& parallel = run_.parallel;
    const double kv_heads =
        op.kind == OpKind::LatentAttention
            ? heads
            : std::max(1.0, static_cast<double>(op.attributes.kv_heads) / parallel.tp);
    const double kv = tokens_ * kv_heads * (head + value) * kHalfBytes;
    if (run_.switches.cp_all_to_all) {
      const double qkvo = tokens_ * (heads * head * 2 + kv_heads * (head + value)) * kHalfBytes;
      forward(exchange(Collective::AllToAll, Group::Cp, qkvo));
      backward(exchange(Collective::AllToAll, Group::Cp, qkvo));
      return;
    }
    const double steps = parallel.cp - 1;
    const double merge = tokens_ * heads * value;  // partial outputs are rescaled and added
    forward({.kind = WorkKind::Ring, .count = steps, .bytes = kv, .group = Group::Cp});
    backward({.kind = WorkKind::Ring, .count = steps, .bytes = 2 * kv, .group = Group::Cp});
    forward({.kind = WorkKind::Stream,
             .bytes = steps * merge * profile_.ring.forward_bytes,
             .kernels = profile_.ring.forward_kernels * steps});
    backward({.kind = WorkKind::Stream,
              .bytes = steps * merge * profile_.ring.backward_bytes,
              .kernels = profile_.ring.backward_kernels * steps});
  }

  /// Scores in memory: 5 a s^2 b bytes are kept (Korthikanti et al. 2022, section 4.1).
  void scores(const Op& op, double heads, double head, double value, double seq) {
    const double batch = heads * tokens_ / seq;
    const double n = batch * seq * seq;
    const auto batched = [&](double rows_, double columns, double inner) {
      return WorkItem{
          .kind = WorkKind::Product, .count = batch, .m = rows_, .n = columns, .k = inner};
    };
    core_begin_ = work_.forward.size();
    forward(batched(seq, seq, head));
    forward({.kind = WorkKind::Stream,
             .bytes = n * (dropout() > 0 ? profile_.scores.forward_bytes : 4),
             .kernels = profile_.scores.forward_kernels});
    forward(batched(seq, value, seq));
    core_end_ = work_.forward.size();
    backward(batched(seq, seq, value));
    backward(batched(seq, value, seq));
    backward({.kind = WorkKind::Stream,
              .bytes = n * (dropout() > 0 ? profile_.scores.backward_bytes : 6),
              .kernels = profile_.scores.backward_kernels});
    backward(batched(seq, head, seq));
    backward(batched(seq, head, seq));
    const double kept = dropout() > 0 ? 2 * kHalfBytes + kMaskBytes : kHalfBytes;
    work_.saved_bytes += n * kept;
    core_saved_ = n * kept;
    (void)op;
  }

  // ---- experts

  void router(const Op& op) {
    const double experts = op.attributes.num_experts;
    const double n = tokens_per_rank_ * experts;
    const double d = width(op.inputs.front(), Place::Residual);
    const std::size_t first = work_.forward.size();
    product(1, tokens_per_rank_, experts, d, false, {0, 0, 1, 2});
    streams(profile_.router, n);
    for (std::size_t i = first; i < work_.forward.size(); ++i)
      work_.forward[i].static_router = true;
    for (WorkItem& item : backward_ops_.back()) item.static_router = true;
    save(op.inputs.front(), kHalfBytes);
    work_.saved_bytes += 2 * n * kStatistic;
  }

  /// Tokens to the ranks of their experts, or back. A fused dispatcher sends one copy to a rank
  /// (and across the network to a node) that holds several of a token's experts.
  WorkItem to_experts(double d) const {
    const double k = run_.model.moe->top_k;
    const double token_bytes = tokens_per_rank_ * d * kHalfBytes;
    WorkItem item = exchange(Collective::AllToAll, Group::Ep, token_bytes * k);
    item.routed = true;
    if (run_.switches.fused_dispatch) {
      item.kind = WorkKind::Dispatch;
      item.bytes = token_bytes;
      item.count = k;
    }
    return item;
  }

  void dispatch(const Op& op) {
    const auto& parallel = run_.parallel;
    places_[at(op.outputs.front())] = Place::Expert;
    const double d = width(op.inputs.front(), Place::Residual);
    const double bytes = routed_ / parallel.etp * d * kHalfBytes;
    streams(profile_.permutation, routed_ / parallel.etp * d);
    if (parallel.ep > 1) {
      forward(to_experts(d));
      backward(to_experts(d));
      streams(profile_.permutation, routed_ * d);  // by expert, after arrival
    }
    if (parallel.etp > 1) {
      forward(exchange(Collective::AllGather, Group::Etp, bytes));
      backward(exchange(Collective::ReduceScatter, Group::Etp, bytes * parallel.etp));
    }
  }

  void combine(const Op& op) {
    const auto& parallel = run_.parallel;
    places_[at(op.outputs.front())] = Place::Residual;
    const double d = width(op.outputs.front(), Place::Residual);
    const double bytes = routed_ / parallel.etp * d * kHalfBytes;
    if (parallel.etp > 1) {
      forward(exchange(Collective::ReduceScatter, Group::Etp, bytes * parallel.etp));
      backward(exchange(Collective::AllGather, Group::Etp, bytes));
    }
    if (parallel.ep > 1) {
      forward(to_experts(d));
      backward(to_experts(d));
      streams(profile_.permutation, routed_ * d);
    }
    streams(profile_.permutation, routed_ / parallel.etp * d);
    save(op.inputs.front(), kHalfBytes);
  }

  void cross_entropy(const Op& op) {
    const double logits = work_.logits > 0 ? work_.logits : elements(op.inputs.front());
    streams(profile_.cross_entropy, logits);
    if (run_.parallel.tp > 1)
      for (int i = 0; i < 3; ++i)  // maximum, target's logit, sum of exponentials
        forward(tp(Collective::AllReduce, tokens_ * kStatistic, false));
  }

  // ---- recompute

  void count_saved(bool recomputed) {
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

  /// Every second product's output, and attention's.
  double kept_product_bytes() const {
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

  /// Backward reads the input of a layer's last product, but nothing after it; what is gathered to
  /// recompute serves the weight gradients' gathers, too.
  static void keep_what_backward_reads(std::vector<WorkItem>& items) {
    const auto last = std::find_if(items.rbegin(), items.rend(), [](const WorkItem& item) {
      return item.kind == WorkKind::Product;
    });
    if (last != items.rend()) items.erase(std::prev(last.base()), items.end());
    std::erase_if(items, [](const WorkItem& item) {
      return item.kind == WorkKind::Collective && item.collective == Collective::AllGather &&
             item.group == Group::Tp;
    });
  }

  void add_recompute() {
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

  static constexpr double kFp8Rows = 16;  // TMA and scaling want rows in multiples of 16

  const LayerGraph& layer_;
  const TrainingRun& run_;
  const ExecutionProfile& profile_;
  std::vector<Place> places_;
  double tokens_ = 0;
  double tokens_per_rank_ = 0;
  double routed_ = 0;
  LayerWork work_;
  std::vector<std::vector<WorkItem>> backward_ops_;
  std::size_t forward_begin_ = 0;
  std::size_t core_begin_ = 0, core_end_ = 0;
  double core_saved_ = 0;
  std::set<TensorId> saved_;
  std::set<TensorId> gathered_;
};

}  // namespace

LayerWork layer_work(const LayerGraph& layer, const TrainingRun& run,
                     const ExecutionProfile& profile, bool recomputed) {
  return Walker(layer, run, profile).run(recomputed);
}

}  // namespace meshplan::sim
