#include "program/memory/activations.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "core/error.hpp"
#include "core/index.hpp"
#include "core/uncovered.hpp"

namespace meshplan::program {
namespace {

// Tasks of a stage in which a micro-batch passes a chunk.
struct Passage {
  std::optional<int> forward, input, weight;
};

// What a chunk keeps of a micro-batch in one class: alive over tasks [first, last].
struct Buffer {
  std::int64_t bytes = 0;
  int first = 0;
  int last = 0;
  int chunk = 0;
  int microbatch = 0;
  Keep keep = Keep::UntilInputGrad;
  bool received = false;  // the input or the gradient of the chunk's output, from another stage
  std::vector<std::pair<std::int64_t, std::int64_t>> taken = {};  // places and bytes
};

bool is_arriving(Keep keep) {
  return keep == Keep::Arriving || keep == Keep::ArrivingGradient;
}

struct CoversCounts {
  bool operator()(const std::vector<KeptCounts>& more, const std::vector<KeptCounts>& less) const {
    for (std::size_t chunk = 0; chunk < less.size(); ++chunk)
      for (std::size_t keep = 0; keep < kNumKeeps; ++keep)
        if (more[chunk][keep] < less[chunk][keep]) return false;
    return true;
  }
};

// Free places below the highest that is taken.
class Holes {
 public:
  struct Hole {
    std::int64_t begin = 0;
    std::int64_t end = 0;
    std::int64_t size() const { return end - begin; }
  };

  /// @param bytes  free from the start
  /// @param tightest  take the smallest hole that is large enough, else the outermost
  Holes(std::int64_t bytes, bool tightest) : end_(bytes), tightest_(tightest) {
    if (bytes > 0) holes_.push_back({0, bytes});
  }

  /// @param high  of holes that serve as well the highest, and its end; else the lowest
  std::int64_t take(std::int64_t bytes, bool high) {
    auto found = holes_.end();
    for (auto hole = holes_.begin(); hole != holes_.end(); ++hole) {
      if (hole->size() < bytes) continue;
      const bool none = found == holes_.end();
      if (tightest_ ? none || hole->size() < found->size() : none || high) found = hole;
      if (!tightest_ && !high) break;
    }
    if (found == holes_.end()) found = grow(bytes);
    const std::int64_t place = high ? found->end - bytes : found->begin;
    (high ? found->end : found->begin) += high ? -bytes : bytes;
    if (found->size() == 0) holes_.erase(found);
    return place;
  }

  void release(std::int64_t place, std::int64_t bytes) {
    auto hole = std::ranges::lower_bound(holes_, place, {}, &Hole::begin);
    hole = holes_.insert(hole, {place, place + bytes});
    if (const auto next = hole + 1; next != holes_.end() && next->begin == hole->end) {
      hole->end = next->end;
      holes_.erase(next);
    }
    if (hole == holes_.begin()) return;
    if (const auto before = hole - 1; before->end == hole->begin) {
      before->end = hole->end;
      holes_.erase(hole);
    }
  }

 private:
  std::vector<Hole>::iterator grow(std::int64_t bytes) {
    if (holes_.empty() || holes_.back().end != end_) holes_.push_back({end_, end_});
    holes_.back().end = end_ = holes_.back().begin + bytes;
    return holes_.end() - 1;
  }

  std::vector<Hole> holes_;  // ascending
  std::int64_t end_ = 0;
  bool tightest_;
};

// What is placed from above, all else from below: what comes and goes otherwise breaks up the
// places that others leave.
enum class Above {
  Nothing,
  Brief,  // what no weight gradient needs
  Large,  // more than half of the largest: the head's, where other layers keep their input alone
};

struct Way {
  Above above = Above::Nothing;
  bool tightest = false;  // fit: the smallest hole, else the first
};
constexpr Way kWays[] = {{}, {.above = Above::Brief}, {.above = Above::Large}, {.tightest = true}};

// One way to place buffers, layer by layer.
class BufferPlacer {
 public:
  /// @param least  bytes that any placement takes
  BufferPlacer(const std::vector<ChunkKeeps>& chunks, int num_microbatches, std::int64_t least,
               const Way& way)
      : chunks_(chunks),
        num_microbatches_(num_microbatches),
        above_(way.above),
        holes_(way.above == Above::Nothing ? 0 : least, way.tightest) {
    for (const ChunkKeeps& chunk : chunks)
      for (const ChunkKeeps::Layer& layer : chunk.layers())
        largest_ = std::max(largest_, std::ranges::max(layer.bytes));
    for (const ChunkKeeps& chunk : chunks)
      first_layer_.push_back(first_layer_.back() + static_cast<int>(chunk.layers().size()));
    places_.resize(at(first_layer_.back()) * at(num_microbatches));
  }

  /// @param buffers  in the order in which they are placed
  /// @param by_last  their indexes in the order in which they are released
  void run(std::vector<Buffer>& buffers, const std::vector<std::size_t>& by_last) {
    auto released = by_last.begin();
    for (Buffer& next : buffers) {
      for (; buffers[*released].last < next.first; ++released) release(buffers[*released]);
      place(next);
    }
    for (; released != by_last.end(); ++released) release(buffers[*released]);
  }

  std::int64_t bytes() const { return bytes_; }
  std::vector<KeptBytes> take_places() { return std::move(places_); }

 private:
  std::int64_t& place_of(const Buffer& buffer, Keep keep, std::size_t layer) {
    const std::size_t number = at(first_layer_[at(buffer.chunk)]) + layer;
    return places_[number * at(num_microbatches_) + at(buffer.microbatch)]
                  [static_cast<std::size_t>(keep)];
  }

  /// The part of a buffer that came from another stage: it was placed before the rest.
  struct Received {
    Keep as = Keep::Arriving;
    std::size_t layer = 0;
    std::int64_t bytes = 0;
  };

  Received received(const Buffer& buffer) const {
    const ChunkKeeps& chunk = chunks_[at(buffer.chunk)];
    const bool gradient = buffer.keep == Keep::BetweenGrads;
    Received part{.as = gradient ? Keep::ArrivingGradient : Keep::Arriving,
                  .layer = gradient ? chunk.layers().size() - 1 : 0};
    if (buffer.received && (gradient || chunk.input() == buffer.keep))
      part.bytes = chunk.layers()[part.layer].bytes[static_cast<std::size_t>(part.as)];
    return part;
  }

  void release(Buffer& buffer) {
    for (const auto& [place, bytes] : buffer.taken) holes_.release(place, bytes);
    buffer.taken.clear();
  }

  void place(Buffer& buffer) {
    const auto& layers = chunks_[at(buffer.chunk)].layers();
    if (buffer.keep == Keep::InForward) {  // its layers take turns in it
      const std::int64_t place = take(buffer, buffer.bytes);
      for (std::size_t layer = 0; layer < layers.size(); ++layer)
        place_of(buffer, buffer.keep, layer) = place + layers[layer].in_forward;
    } else if (is_arriving(buffer.keep)) {
      const std::size_t layer = buffer.keep == Keep::Arriving ? 0 : layers.size() - 1;
      place_of(buffer, buffer.keep, layer) = take(buffer, buffer.bytes);
      buffer.taken.clear();  // it stays, as a part of what it is received for
    } else {
      place_layers(buffer);
    }
  }

  /// Largest first: what is left of a place that was freed stays in one piece.
  void place_layers(Buffer& buffer) {
    const auto& layers = chunks_[at(buffer.chunk)].layers();
    const Received part = received(buffer);
    if (part.bytes > 0) {
      std::int64_t& place = place_of(buffer, part.as, part.layer);
      if (buffer.first == 0)  // there was no task before
        place = take(buffer, part.bytes);
      else
        buffer.taken.emplace_back(place, part.bytes);
    }
    const auto before = [&](std::size_t layer) { return layer == part.layer ? part.bytes : 0; };
    const auto size = [&](std::size_t layer) {
      return layers[layer].bytes[static_cast<std::size_t>(buffer.keep)] - before(layer);
    };
    std::vector<std::size_t> order(layers.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, std::greater{}, size);
    for (const std::size_t layer : order)
      if (size(layer) > 0)
        place_of(buffer, buffer.keep, layer) = take(buffer, size(layer)) - before(layer);
  }

  bool is_above(const Buffer& buffer, std::int64_t bytes) const {
    Keep keep = buffer.keep;
    if (keep == Keep::Arriving) keep = *chunks_[at(buffer.chunk)].input();
    switch (above_) {
      case Above::Nothing:
        return false;
      case Above::Brief:
        return keep != Keep::UntilWeightGrad;
      case Above::Large:
        return 2 * bytes > largest_;
    }
    throw InvariantError("an unknown way to place buffers");
  }

  std::int64_t take(Buffer& buffer, std::int64_t bytes) {
    const std::int64_t place = holes_.take(bytes, is_above(buffer, bytes));
    bytes_ = std::max(bytes_, place + bytes);
    buffer.taken.emplace_back(place, bytes);
    return place;
  }

  const std::vector<ChunkKeeps>& chunks_;
  int num_microbatches_;
  Above above_;
  std::int64_t largest_ = 0;  // part of a layer
  Holes holes_;
  std::vector<int> first_layer_ = {0};  // of each chunk
  std::vector<KeptBytes> places_;
  std::int64_t bytes_ = 0;
};

class Planner {
 public:
  Planner(const Schedule& schedule, int stage, int num_microbatches, bool training,
          std::vector<bool> has_backward = {})
      : schedule_(schedule),
        stage_(stage),
        num_microbatches_(num_microbatches),
        training_(training),
        has_backward_(std::move(has_backward)),
        passages_(at(schedule.num_chunks * num_microbatches)) {
    if (has_backward_.empty()) has_backward_.assign(at(schedule.num_chunks), true);
    const auto& tasks = schedule.tasks[at(stage)];
    for (int i = 0; i < static_cast<int>(tasks.size()); ++i)
      if (tasks[at(i)].kind == TaskKind::Overlapped)
        for (const Task& part : parts_of(tasks[at(i)])) note(part, i);
      else
        note(tasks[at(i)], i);
  }

  ActivationPlan run(const std::vector<ChunkKeeps>& per_chunk) {
    std::vector<KeptBytes> bytes;
    for (const ChunkKeeps& chunk : per_chunk) bytes.push_back(chunk.bytes());
    const std::int64_t most = most_bytes(bytes);
    std::vector<Buffer> buffers;
    each_buffer(bytes, [&](const Buffer& buffer) { buffers.push_back(buffer); });
    std::ranges::stable_sort(buffers, [](const Buffer& a, const Buffer& b) {
      if (a.first != b.first) return a.first < b.first;
      return a.last != b.last ? a.last > b.last : a.bytes > b.bytes;
    });
    std::vector<std::size_t> by_last(buffers.size());
    std::iota(by_last.begin(), by_last.end(), std::size_t{0});
    std::ranges::stable_sort(by_last, {}, [&](std::size_t i) { return buffers[i].last; });
    std::optional<BufferPlacer> best;
    for (const Way& way : kWays) {
      if (best && best->bytes() == most) break;
      BufferPlacer placer(per_chunk, num_microbatches_, most, way);
      placer.run(buffers, by_last);
      if (!best || placer.bytes() < best->bytes()) best.emplace(std::move(placer));
    }
    plan_.bytes = best->bytes();
    plan_.places = best->take_places();
    count_slots();
    return std::move(plan_);
  }

  /// The most that lives at once.
  std::int64_t most_bytes(const std::vector<KeptBytes>& per_chunk) {
    std::int64_t most = 0;
    for (const TaskMemory& task : by_task(per_chunk)) most = std::max(most, task.during);
    return most;
  }

  std::vector<std::vector<KeptCounts>> fullest_tasks() {
    Uncovered<std::vector<KeptCounts>, CoversCounts> fullest;
    KeptBytes one;
    one.fill(1);
    const std::vector<KeptBytes> per_chunk(at(schedule_.num_chunks), one);
    const std::size_t tasks = schedule_.tasks[at(stage_)].size();
    struct Kept {
      std::size_t chunk = 0, keep = 0;
      int next_begins = -1, next_ends = -1;  // of those that begin, or end, with the same task
    };
    std::vector<Kept> kept;
    constexpr std::size_t kOfTask = 4;  // at most, about
    kept.reserve(kOfTask * tasks);
    std::vector<int> begins(tasks, -1), ends(tasks, -1);  // the first of each task
    each_buffer(per_chunk, [&](const Buffer& buffer) {
      int& first = begins[at(buffer.first)];
      int& last = ends[at(buffer.last)];
      kept.push_back({at(buffer.chunk), static_cast<std::size_t>(buffer.keep), first, last});
      first = last = static_cast<int>(kept.size()) - 1;
    });
    std::vector<KeptCounts> alive(per_chunk.size(), KeptCounts{});
    for (std::size_t task = 0; task < tasks; ++task) {
      for (int i = begins[task]; i >= 0; i = kept[at(i)].next_begins)
        ++alive[kept[at(i)].chunk][kept[at(i)].keep];
      if (begins[task] >= 0) fullest.add(alive);
      for (int i = ends[task]; i >= 0; i = kept[at(i)].next_ends)
        --alive[kept[at(i)].chunk][kept[at(i)].keep];
    }
    return fullest.take();
  }

  StageSlots slots() {
    count_slots();
    return {plan_.boundary, plan_.transient_slots};
  }

  std::vector<TaskMemory> by_task(const std::vector<KeptBytes>& per_chunk) {
    std::vector<TaskMemory> tasks(schedule_.tasks[at(stage_)].size());
    std::vector<std::int64_t> begins(tasks.size(), 0), ends(tasks.size(), 0);
    each_buffer(per_chunk, [&](const Buffer& buffer) {
      begins[at(buffer.first)] += buffer.bytes;
      if (is_arriving(buffer.keep))  // until the next task begins, which keeps it as something else
        begins[at(buffer.last) + 1] -= buffer.bytes;
      else
        ends[at(buffer.last)] += buffer.bytes;
    });
    std::int64_t alive = 0;
    for (std::size_t i = 0; i < tasks.size(); ++i) {
      tasks[i].during = alive += begins[i];
      tasks[i].after = alive -= ends[i];
    }
    return tasks;
  }

 private:
  void note(const Task& task, int index) {
    Passage& passage = of(task.chunk, task.microbatch);
    if (task.kind == TaskKind::Forward) passage.forward = index;
    if (gives_input_gradient(task)) passage.input = index;
    if (gives_weight_gradient(task)) passage.weight = index;
  }

  template <class Visit>
  void each_buffer(const std::vector<KeptBytes>& per_chunk, Visit visit) {
    for (int chunk = 0; chunk < schedule_.num_chunks; ++chunk) {
      const Neighbours neighbours{.before = neighbour(chunk, -1),
                                  .after = neighbour(chunk, 1),
                                  .before_elsewhere = has_neighbour_elsewhere(chunk, -1),
                                  .after_elsewhere = has_neighbour_elsewhere(chunk, 1)};
      for (int m = 0; m < num_microbatches_; ++m)
        each_buffer(chunk, m, neighbours, per_chunk[at(chunk)], visit);
    }
  }

  /// Of a chunk: the chunks before and after it that this stage holds, and whether others do.
  struct Neighbours {
    std::optional<int> before, after;
    bool before_elsewhere = false;
    bool after_elsewhere = false;
  };

  Passage& of(int chunk, int microbatch) {
    return passages_[at(chunk * num_microbatches_ + microbatch)];
  }

  /// The chunk `steps` virtual stages on, if this stage holds it, too.
  std::optional<int> neighbour(int chunk, int steps) const {
    const int stages = schedule_.num_stages();
    const int wanted = virtual_stage(schedule_.placement, stages, {stage_, chunk}) + steps;
    if (wanted < 0 || wanted >= schedule_.num_virtual_stages()) return std::nullopt;
    const ChunkPlace place = place_of(schedule_.placement, stages, wanted);
    return place.stage == stage_ ? std::optional(place.chunk) : std::nullopt;
  }
  bool has_neighbour_elsewhere(int chunk, int steps) const {
    const int wanted =
        virtual_stage(schedule_.placement, schedule_.num_stages(), {stage_, chunk}) + steps;
    return wanted >= 0 && wanted < schedule_.num_virtual_stages() && !neighbour(chunk, steps);
  }

  template <class Visit>
  void each_buffer(int chunk, int microbatch, const Neighbours& neighbours, const KeptBytes& bytes,
                   Visit& visit) {
    const Passage& own = of(chunk, microbatch);
    require_invariant(own.forward.has_value(), "every chunk sees every micro-batch");
    int begin = *own.forward;
    if (neighbours.before) begin = *of(*neighbours.before, microbatch).forward;
    const auto add = [&](Keep keep, int first, int last) {
      if (const std::int64_t size = bytes[static_cast<std::size_t>(keep)]; size > 0)
        visit(Buffer{.bytes = size,
                     .first = first,
                     .last = last,
                     .chunk = chunk,
                     .microbatch = microbatch,
                     .keep = keep,
                     .received = keep == Keep::BetweenGrads ? neighbours.after_elsewhere
                                                            : neighbours.before_elsewhere});
    };
    if (neighbours.before_elsewhere && begin > 0) add(Keep::Arriving, begin - 1, begin - 1);
    add(Keep::InForward, begin, *own.forward);
    if (!training_) {
      add(Keep::UntilInputGrad, begin, *own.forward);
      add(Keep::UntilWeightGrad, begin, *own.forward);
      return;
    }
    require_invariant(own.input && own.weight, "every chunk differentiates every micro-batch");
    int gradient = *own.input;
    if (neighbours.after) gradient = *of(*neighbours.after, microbatch).input;
    add(Keep::UntilInputGrad, begin, *own.input);
    add(Keep::UntilWeightGrad, begin, *own.weight);
    if (neighbours.after_elsewhere) add(Keep::ArrivingGradient, gradient - 1, gradient - 1);
    add(Keep::BetweenGrads, gradient, *own.weight);
  }

  void count_slots() {
    for (int chunk = 0; chunk < schedule_.num_chunks; ++chunk) {
      const std::size_t leg = leg_of(chunk);
      // The next output is computed while one is being sent; the same for gradients.
      const bool remote = has_neighbour_elsewhere(chunk, 1);
      if (remote) plan_.boundary.outputs[leg] = 2;
      if (training_ && remote && has_backward_[at(chunk)]) plan_.boundary.gradients[leg] = 1;
    }
    if (!training_) return;
    for (const std::size_t leg : {0U, 1U}) plan_.boundary.gradients[leg] += most_gradients(leg);
    for (const Task& task : schedule_.tasks[at(stage_)])
      if (task.kind == TaskKind::Overlapped) plan_.transient_slots = 2;
  }

  std::size_t leg_of(int chunk) const {
    return schedule_.placement == ChunkPlacement::V && chunk % 2 == 1 ? 1 : 0;
  }

  /// Gradient streams that begin on a leg, held at once: of a task, and of those that wait for the
  /// chunk before on the same rank.
  int most_gradients(std::size_t leg) {
    std::vector<int> change(schedule_.tasks[at(stage_)].size() + 1, 0);
    for (int begin = 0; begin < schedule_.num_chunks; ++begin) {
      if (leg_of(begin) != leg || neighbour(begin, 1) || !has_backward_[at(begin)]) continue;
      int end = begin;
      for (auto before = neighbour(end, -1); before && has_backward_[at(*before)];
           before = neighbour(end, -1))
        end = *before;
      for (int m = 0; m < num_microbatches_; ++m) {
        ++change[at(*of(begin, m).input)];
        --change[at(*of(end, m).input) + 1];
      }
    }
    int held = 0, most = 0;
    for (const int step : change) most = std::max(most, held += step);
    return most;
  }

  const Schedule& schedule_;
  int stage_;
  int num_microbatches_;
  bool training_;
  std::vector<bool> has_backward_;  // by chunk
  std::vector<Passage> passages_;
  ActivationPlan plan_;
};

}  // namespace

void ChunkKeeps::add(const KeptBytes& layer, std::optional<Keep> input) {
  constexpr auto kInForward = static_cast<std::size_t>(Keep::InForward);
  for (const Keep keep : {Keep::UntilInputGrad, Keep::UntilWeightGrad, Keep::BetweenGrads})
    bytes_[static_cast<std::size_t>(keep)] += layer[static_cast<std::size_t>(keep)];
  constexpr auto kArriving = static_cast<std::size_t>(Keep::Arriving);
  constexpr auto kArrivingGradient = static_cast<std::size_t>(Keep::ArrivingGradient);
  if (layers_.empty()) {
    bytes_[kArriving] = layer[kArriving];
    input_ = input;
  }
  bytes_[kArrivingGradient] = layer[kArrivingGradient];
  std::int64_t begin = 0;
  if (layer[kInForward] > 0) {
    begin = second_ ? layer[kInForward] : 0;
    bytes_[kInForward] = std::max(bytes_[kInForward], begin + layer[kInForward]);
    second_ = !second_;
  }
  layers_.push_back({.bytes = layer, .in_forward = begin});
}

ActivationPlan plan_activations(const Schedule& schedule, int stage, int num_microbatches,
                                const std::vector<ChunkKeeps>& per_chunk, bool training,
                                std::vector<bool> has_backward) {
  return Planner(schedule, stage, num_microbatches, training, std::move(has_backward))
      .run(per_chunk);
}

std::vector<std::vector<KeptCounts>> fullest_tasks(const Schedule& schedule, int stage,
                                                   int num_microbatches) {
  return Planner(schedule, stage, num_microbatches, true).fullest_tasks();
}

StageSlots stage_slots(const Schedule& schedule, int stage, int num_microbatches) {
  return Planner(schedule, stage, num_microbatches, true).slots();
}

std::vector<TaskMemory> kept_by_task(const Schedule& schedule, int stage, int num_microbatches,
                                     const std::vector<KeptBytes>& per_chunk) {
  return Planner(schedule, stage, num_microbatches, true).by_task(per_chunk);
}

}  // namespace meshplan::program
