// Two tasks on one device: the operation that could begin first, of the two that are next, is
// issued next. Where both could, one of them is preferred, whose gaps the other one fills: the
// first, the second, or always that with more left, whichever ends them sooner. Times are nominal,
// so that every rank chooses the same order: what is wanted is only that a long exchange has enough
// to compute behind it.
#include "lower/overlap_tasks.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include "core/index.hpp"

namespace meshplan::program {
namespace {

/// One of the two lists, and when what it has made is there.
class Stream {
 public:
  Stream(const Program& program, const std::vector<OperationInstance>& list)
      : program_(program), list_(list) {}

  bool ended() const { return next_ == list_.size(); }
  const OperationInstance& next() const { return list_[next_]; }
  const Operation& operation() const { return operation_of(program_, next()); }

  /// When everything is there that the next operation reads.
  double ready() const {
    double ready = 0;
    for (const ValueId input : operation().inputs) {
      const auto found = made_.find(key_of(input));
      if (found != made_.end()) ready = std::max(ready, found->second);
    }
    return ready;
  }
  void issue(double end) {
    for (const ValueId output : operation().outputs) made_[key_of(output)] = end;
    ++next_;
  }

 private:
  using Key = std::pair<int, int>;  // layer and value; what layers hand on has no layer

  Key key_of(ValueId id) const {
    const Block& block = program_.blocks[at(layer_of(program_, next()).block)];
    const ValueId root = root_of(block, id);
    switch (block.values[at(root)].storage) {
      case Storage::LayerInput:
      case Storage::LayerOutput:
        return {-1, 0};
      case Storage::LayerInputGrad:
      case Storage::LayerOutputGrad:
        return {-1, 1};
      default:
        return {*next().layer, root};
    }
  }

  const Program& program_;
  const std::vector<OperationInstance>& list_;
  std::size_t next_ = 0;
  std::map<Key, double> made_;
};

}  // namespace

double TaskOverlap::seconds_of(const OperationInstance& instance) {
  if (!instance.layer) return 0;  // a message: it goes beside everything
  if (!times_) times_.emplace(program_, program_.blocks);
  return times_->seconds(instance.operation);
}

double TaskOverlap::seconds_of(const Instances& list) {
  double seconds = 0;
  for (const OperationInstance& instance : list) seconds += seconds_of(instance);
  return seconds;
}

TaskOverlap::Played TaskOverlap::play(const Instances& first, const Instances& second,
                                      Preferred preferred) {
  Played played;
  std::array<Stream, 2> streams{Stream(program_, first), Stream(program_, second)};
  std::array<double, 2> left{seconds_of(first), seconds_of(second)};
  std::array<double, kNumLanes> lanes{};  // until when each is taken
  constexpr double kNever = std::numeric_limits<double>::infinity();
  const auto begin_of = [&](const Stream& stream) {
    if (stream.ended()) return kNever;
    return std::max(stream.ready(), lanes[static_cast<std::size_t>(stream.operation().lane)]);
  };
  while (!streams[0].ended() || !streams[1].ended()) {
    const double begin = begin_of(streams[0]), other = begin_of(streams[1]);
    const bool prefers_second =
        preferred == Preferred::MoreLeft ? left[1] > left[0] : preferred == Preferred::Second;
    const bool second_next = other < begin || (other == begin && prefers_second);
    const std::size_t which = second_next ? 1 : 0;
    Stream& stream = streams[which];
    const double seconds = seconds_of(stream.next());
    const double end = std::min(begin, other) + seconds;
    lanes[static_cast<std::size_t>(stream.operation().lane)] = end;
    left[which] -= seconds;
    stream.issue(end);
    played.turns.push_back(second_next);
    played.seconds = std::max(played.seconds, end);
  }
  return played;
}

TaskOverlap::Turns TaskOverlap::turns_of(const Instances& first, const Instances& second) {
  constexpr double kGain = 0.99;  // that is worth it to end both tasks late
  Played best = play(first, second, Preferred::First);
  for (const Preferred preferred : {Preferred::Second, Preferred::MoreLeft}) {
    Played other = play(first, second, preferred);
    if (other.seconds < kGain * best.seconds) best = std::move(other);
  }
  return std::move(best.turns);
}

TaskOverlap::Instances TaskOverlap::merge(const Instances& first, const Instances& second) {
  const auto chunk_of = [](const Instances& list) {
    return list.empty() ? -1 : list.front().chunk;
  };
  const auto [known, fresh] =
      known_.try_emplace({chunk_of(first), chunk_of(second), first.size(), second.size()});
  if (fresh) known->second = turns_of(first, second);
  Instances merged;
  merged.reserve(first.size() + second.size());
  auto next_of_first = first.begin(), next_of_second = second.begin();
  for (const bool of_second : known->second)
    merged.push_back(of_second ? *next_of_second++ : *next_of_first++);
  return merged;
}

}  // namespace meshplan::program
