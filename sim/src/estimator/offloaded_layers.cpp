#include "estimator/offloaded_layers.hpp"

#include <algorithm>
#include <array>

#include "prices/offload.hpp"
#include "program/memory/offloaded_activations.hpp"

namespace meshplan::sim {
namespace {

class CopyPlayer {
 public:
  CopyPlayer(const std::vector<OffloadedLayer>& layers, bool returns_at_once,
             const Cluster& cluster)
      : layers_(layers),
        returns_at_once_(returns_at_once),
        cluster_(cluster),
        stored_(layers.size(), 0) {
    for (std::size_t i = 0; i < layers.size(); ++i)
      if (layers[i].bytes > 0) num_offloaded_ = i + 1;
  }

  void forward() {
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      const OffloadedLayer& layer = layers_[i];
      if (layer.bytes <= 0) {
        now_ += layer.forward;
        continue;
      }
      double& own = take_slot();
      now_ = std::max(now_, own) + layer.forward;
      const bool next_is_staged = i + 1 < layers_.size() && layers_[i + 1].bytes > 0;
      if (next_is_staged) now_ = std::max(now_, free_at_[next_]);  // its input is written there
      to_host_ = std::max(to_host_, now_) + copy_seconds(layer);
      own = to_host_;
      if (returns_at_once_) stored_[i] = to_host_;
    }
  }

  void backward() {
    double below_fetched = 0;  // when the layer below is there, if it comes first
    for (std::size_t i = layers_.size(); i-- > 0;) {
      const OffloadedLayer& layer = layers_[i];
      if (layer.bytes <= 0) {
        now_ += layer.backward;
        continue;
      }
      double& own = take_slot();
      // Of what has just gone to the host the layer below is there first, and so first to return.
      const bool below_first =
          returns_at_once_ && i + 1 == num_offloaded_ && i > 0 && layers_[i - 1].bytes > 0;
      double fetched = below_fetched;
      below_fetched = below_first ? fetch(i - 1, free_at_[next_]) : 0;
      if (fetched <= 0) fetched = fetch(i, own);
      now_ = std::max(now_, fetched) + layer.backward;
      own = now_;
    }
  }

  double now() const { return now_; }

 private:
  /// @param slot  when its slot is free
  /// @returns when it is there
  double fetch(std::size_t layer, double slot) {
    from_host_ = std::max({from_host_, slot, stored_[layer]}) + copy_seconds(layers_[layer]);
    return from_host_;
  }
  double copy_seconds(const OffloadedLayer& layer) const {
    return host_copy_seconds(layer.bytes, cluster_);
  }
  /// When it is free, to be set.
  double& take_slot() {
    double& slot = free_at_[next_];
    next_ = (next_ + 1) % free_at_.size();
    return slot;
  }

  const std::vector<OffloadedLayer>& layers_;
  bool returns_at_once_;
  std::size_t num_offloaded_ = 0;  // the layers up to the last that is
  const Cluster& cluster_;
  std::vector<double> stored_;  // when, by layer
  std::array<double, program::kStagedLayers> free_at_{};
  std::size_t next_ = 0;
  double now_ = 0, to_host_ = 0, from_host_ = 0;
};

CopyDelays on_one_thread(const std::vector<OffloadedLayer>& layers, const Cluster& cluster) {
  CopyDelays delays;
  for (const OffloadedLayer& layer : layers)
    if (layer.bytes > 0) delays.forward += host_copy_seconds(layer.bytes, cluster);
  delays.backward = delays.forward;
  return delays;
}

}  // namespace

CopyDelays copy_delays(const std::vector<OffloadedLayer>& layers, bool returns_at_once,
                       const Cluster& cluster) {
  if (cluster.device.kind == DeviceKind::Cpu) return on_one_thread(layers, cluster);
  double forward = 0, backward = 0;
  for (const OffloadedLayer& layer : layers) {
    forward += layer.forward;
    backward += layer.backward;
  }
  constexpr int kTurns = 4;  // until every turn takes as long as the one before
  CopyPlayer player(layers, returns_at_once, cluster);
  CopyDelays last;
  for (int turn = 0; turn < kTurns; ++turn) {
    const double begin = player.now();
    player.forward();
    const double middle = player.now();
    player.backward();
    last = {middle - begin - forward, player.now() - middle - backward};
  }
  return {std::max(0.0, last.forward), std::max(0.0, last.backward)};
}

}  // namespace meshplan::sim
