#include "estimator/chunk_maker.hpp"

#include <algorithm>
#include <utility>

#include "core/index.hpp"
#include "estimator/offloaded_layers.hpp"
#include "program/memory/offloaded_activations.hpp"

namespace meshplan::sim {
ChunkMaker::ChunkMaker(const Cluster& cluster, const StagePrices& base)
    : cluster_(cluster), base_(base) {
  // All ranks of a CPU host want its cores at once.
  if (cluster.device.kind == DeviceKind::Cpu)
    turns_ = std::max(1.0, static_cast<double>(cluster.devices_per_node) / cluster.cores_per_host);
  chunk_.tasks = base.tasks;
  chunk_.prelude = base.prelude;
  chunk_.load_seconds = base.load_seconds;
  chunk_.tied_elements = base.tied_elements;
  chunk_.frozen_tied_elements = base.frozen_tied_elements;
  chunk_.layer_copied_parts = base.layer_copied_parts;
  chunk_.sums = base.sums;
  chunk_.slots = base.slots;
  chunk_.kept_bytes = base.kept_bytes;
  add(-base.num_layers, base);
}

void ChunkMaker::add_layer(const StagePrices& stage) {
  add(1, stage);
  chunk_.slots.workspace = std::max(chunk_.slots.workspace, stage.slots.workspace);
  chunk_.slots.transient = std::max(chunk_.slots.transient, stage.slots.transient);
  ++chunk_.num_layers;
  keeps_.add(stage.layer_kept_bytes);
  layers_.push_back(&stage);
}

void ChunkMaker::add_saved(const StagePrices& pairs) {
  chunk_.tasks.overlap_saves += pairs.layer_tasks.overlap_saves;
}

ChunkCost ChunkMaker::run() {
  chunk_.sums.update_seconds *= turns_;
  chunk_.sums.norm_seconds *= turns_;
  chunk_.sums.once_seconds *= turns_;
  constexpr auto kInForward = static_cast<std::size_t>(program::Keep::InForward);
  chunk_.kept_bytes[kInForward] = keeps_.bytes()[kInForward];  // layers take turns
  for (const auto arriving : {program::Keep::Arriving, program::Keep::ArrivingGradient}) {
    const auto keep = static_cast<std::size_t>(arriving);
    chunk_.kept_bytes[keep] = base_.layer_kept_bytes[keep];  // of one layer, not of all
  }
  add_gradients();
  if (offloaded_ > 0) add_copies();
  return std::move(chunk_);
}

void ChunkMaker::offload(int layers, bool begins_model, bool ends_model) {
  offloaded_ = std::min(layers, chunk_.num_layers);
  begins_model_ = begins_model;
  ends_model_ = ends_model;
}

void ChunkMaker::add_copies() {
  constexpr auto kKept = static_cast<std::size_t>(program::Keep::UntilInputGrad);
  const std::size_t head = base_.first_layer_part + 1 - at(base_.num_layers);
  const auto place_of = [&](std::size_t layer) {  // they are in the order of backward
    return head + layers_.size() - 1 - layer;
  };
  std::vector<OffloadedLayer> all;  // with embedding and head, beside which copies run, too
  for (std::size_t i = chunk_.layers.size(); i-- > 0;)
    all.push_back({.forward = chunk_.layers[i].forward, .backward = chunk_.layers[i].backward});
  for (std::size_t i = 0; i < at(offloaded_); ++i) {
    const program::KeptBytes& kept = layers_[i]->layer_kept_bytes;
    const bool stays = i == 0 && !begins_model_;  // what arrives does
    const auto input = stays ? kept[static_cast<std::size_t>(program::Keep::Arriving)] : 0;
    all[all.size() - 1 - place_of(i)].bytes = static_cast<double>(kept[kKept] - input);
    if (cluster_.device.kind == DeviceKind::Gpu) {
      chunk_.kept_bytes[kKept] -= kept[kKept] - input;
      chunk_.host_kept_bytes[kKept] += kept[kKept] - input;
    }
    chunk_.slots.staging =
        std::max(chunk_.slots.staging, program::kStagedLayers * static_cast<double>(kept[kKept]));
  }
  const CopyDelays delays = copy_delays(all, ends_model_, cluster_);
  const auto delay = [&](TaskTime& task, double seconds) {
    task.seconds += seconds;
    task.host += seconds;
  };
  delay(chunk_.tasks.forward, delays.forward);
  delay(chunk_.tasks.backward_first, delays.backward);
  delay(chunk_.tasks.backward, delays.backward);
  for (std::size_t i = 0; i < at(offloaded_); ++i) {  // for ZeRO, which gathers under them
    chunk_.layers[place_of(i)].forward += delays.forward / offloaded_;
    chunk_.layers[place_of(i)].backward += delays.backward / offloaded_;
  }
}

void ChunkMaker::drop_backward() {
  chunk_.has_backward = false;
  chunk_.tasks = {.forward = chunk_.tasks.forward};
}

void ChunkMaker::add(int times, const StagePrices& stage) {
  chunk_.tasks = chunk_.tasks.plus(times, stage.layer_tasks);
  chunk_.sums = chunk_.sums.plus(times, stage.layer_sums);
  for (std::size_t keep = 0; keep < program::kNumKeeps; ++keep)
    chunk_.kept_bytes[keep] += times * stage.layer_kept_bytes[keep];
}

void ChunkMaker::add_gradients() {
  const bool split = chunk_.tasks.weight.seconds > 0;
  const auto last = split ? &TaskTimes::weight : &TaskTimes::backward;
  const auto single = split ? &TaskTimes::weight_first : &TaskTimes::backward_first;
  const std::size_t num_parts = base_.parts.size();
  const std::size_t before = base_.first_layer_part + 1 - at(base_.num_layers);  // head
  TaskTimes of_layers;
  for (const StagePrices* layer : layers_) of_layers = of_layers.plus(1, layer->layer_tasks);
  const auto rest = [&](TaskTime TaskTimes::*task) {
    return std::max(0.0, (chunk_.tasks.*task).seconds - (of_layers.*task).seconds);
  };
  const Seconds others{.forward = rest(&TaskTimes::forward),
                       .first = rest(&TaskTimes::backward_first),
                       .last = rest(last),
                       .single = rest(single)};
  // What is not of a layer is the head's, else the embedding's.
  needed_ = chunk_.tasks.forward.seconds;
  chunk_.layers.reserve(num_parts + layers_.size());
  for (std::size_t i = 0; i < before; ++i)
    add_part(base_, i, i == 0 ? others : Seconds{}, {}, true);
  for (std::size_t i = layers_.size(); i-- > 0;) {
    const TaskTimes& layer = layers_[i]->layer_tasks;
    add_part(*layers_[i], layers_[i]->first_layer_part,
             {.forward = layer.forward.seconds,
              .first = layer.backward_first.seconds,
              .last = (layer.*last).seconds,
              .single = (layer.*single).seconds},
             layers_[i]->layer_copied_parts, true);
  }
  for (std::size_t i = base_.first_layer_part + 1; i < num_parts; ++i)
    add_part(base_, i, before == 0 ? others : Seconds{}, {}, false);
}

void ChunkMaker::add_part(const StagePrices& stage, std::size_t index, const Seconds& seconds,
                          const std::vector<std::int64_t>& copied, bool backward_reads) {
  ready_ += seconds.last;
  ready_at_once_ += seconds.single;
  needed_ = std::max(0.0, needed_ - seconds.forward);
  LayerCost layer{.forward = seconds.forward,
                  .backward = seconds.first,
                  .frozen = stage.frozen_parts[index],
                  .copied_parts = copied,
                  .backward_reads = backward_reads && seconds.first > 0};
  for (const GradientPart& gradient : stage.parts[index]) {
    const auto elements = static_cast<double>(gradient.elements);
    chunk_.ready.push_back({.seconds = ready_,
                            .seconds_of_single = ready_at_once_,
                            .elements = elements,
                            .needed = needed_,
                            .expert = gradient.expert});
    (gradient.shared   ? chunk_.shared_elements
     : gradient.expert ? layer.experts
                       : layer.dense) += elements;
  }
  chunk_.layers.push_back(std::move(layer));
}

}  // namespace meshplan::sim
