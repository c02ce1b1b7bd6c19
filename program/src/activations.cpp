#include "program/activations.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>

#include "core/error.hpp"
#include "core/index.hpp"

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
  std::int64_t offset = 0;
  std::int64_t* place = nullptr;
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
      for (const Task& part : parts_of(tasks[at(i)])) {
        Passage& passage = of(part.chunk, part.microbatch);
        if (part.kind == TaskKind::Forward) passage.forward = i;
        if (gives_input_gradient(part)) passage.input = i;
        if (gives_weight_gradient(part)) passage.weight = i;
      }
  }

  ActivationPlan run(const std::vector<KeptBytes>& per_chunk) {
    add_buffers(per_chunk);
    place_buffers();
    count_slots();
    return std::move(plan_);
  }

  /// `bytes` is what lives at once, `places` are not filled in.
  ActivationPlan estimate(const std::vector<KeptBytes>& per_chunk) {
    for (const TaskMemory& task : by_task(per_chunk))
      plan_.bytes = std::max(plan_.bytes, task.during);
    count_slots();
    return std::move(plan_);
  }

  std::vector<TaskMemory> by_task(const std::vector<KeptBytes>& per_chunk) {
    add_buffers(per_chunk);
    std::vector<TaskMemory> tasks(schedule_.tasks[at(stage_)].size());
    std::vector<std::int64_t> begins(tasks.size(), 0), ends(tasks.size(), 0);
    for (const Buffer& buffer : buffers_) {
      begins[at(buffer.first)] += buffer.bytes;
      ends[at(buffer.last)] += buffer.bytes;
    }
    std::int64_t alive = 0;
    for (std::size_t i = 0; i < tasks.size(); ++i) {
      tasks[i].during = alive += begins[i];
      tasks[i].after = alive -= ends[i];
    }
    return tasks;
  }

 private:
  void add_buffers(const std::vector<KeptBytes>& per_chunk) {
    plan_.places.resize(passages_.size());
    for (int chunk = 0; chunk < schedule_.num_chunks; ++chunk)
      for (int m = 0; m < num_microbatches_; ++m) add_buffers(chunk, m, per_chunk[at(chunk)]);
  }

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

  void add_buffers(int chunk, int microbatch, const KeptBytes& bytes) {
    const Passage& own = of(chunk, microbatch);
    require_invariant(own.forward.has_value(), "every chunk sees every micro-batch");
    int begin = *own.forward;
    if (const auto before = neighbour(chunk, -1)) begin = *of(*before, microbatch).forward;
    KeptBytes& place = plan_.places[at(chunk * num_microbatches_ + microbatch)];
    const auto add = [&](Keep keep, int first, int last) {
      const auto k = static_cast<std::size_t>(keep);
      if (bytes[k] > 0)
        buffers_.push_back({.bytes = bytes[k], .first = first, .last = last, .place = &place[k]});
    };
    add(Keep::InForward, begin, *own.forward);
    if (!training_) {
      add(Keep::UntilInputGrad, begin, *own.forward);
      add(Keep::UntilWeightGrad, begin, *own.forward);
      return;
    }
    require_invariant(own.input && own.weight, "every chunk differentiates every micro-batch");
    int gradient = *own.input;
    if (const auto after = neighbour(chunk, 1)) gradient = *of(*after, microbatch).input;
    add(Keep::UntilInputGrad, begin, *own.input);
    add(Keep::UntilWeightGrad, begin, *own.weight);
    add(Keep::BetweenGrads, gradient, *own.weight);
  }

  void place_buffers() {
    std::ranges::stable_sort(buffers_, [](const Buffer& a, const Buffer& b) {
      return a.bytes != b.bytes ? a.bytes > b.bytes : a.first < b.first;
    });
    // What is placed already, by each task in which it lives, and by its first.
    std::vector<std::vector<const Buffer*>> alive(schedule_.tasks[at(stage_)].size());
    auto begun = alive;
    for (Buffer& buffer : buffers_) {
      buffer.offset = lowest_free(buffer, alive, begun);
      *buffer.place = buffer.offset;
      plan_.bytes = std::max(plan_.bytes, buffer.offset + buffer.bytes);
      for (int task = buffer.first; task <= buffer.last; ++task) alive[at(task)].push_back(&buffer);
      begun[at(buffer.first)].push_back(&buffer);
    }
  }

  static std::int64_t lowest_free(const Buffer& buffer,
                                  const std::vector<std::vector<const Buffer*>>& alive,
                                  const std::vector<std::vector<const Buffer*>>& begun) {
    // One that overlaps is alive at the first task, or begins later.
    std::vector<const Buffer*> others = alive[at(buffer.first)];
    for (int task = buffer.first + 1; task <= buffer.last; ++task)
      others.insert(others.end(), begun[at(task)].begin(), begun[at(task)].end());
    std::ranges::sort(others, {}, &Buffer::offset);
    std::int64_t offset = 0;
    for (const Buffer* other : others) {
      if (offset + buffer.bytes <= other->offset) break;
      offset = std::max(offset, other->offset + other->bytes);
    }
    return offset;
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
  std::vector<Buffer> buffers_;
  ActivationPlan plan_;
};

}  // namespace

KeptBytes ChunkKeeps::add(const KeptBytes& layer) {
  constexpr auto kInForward = static_cast<std::size_t>(Keep::InForward);
  KeptBytes begin = bytes_;
  for (std::size_t keep = 0; keep < kNumKeeps; ++keep)
    if (keep != kInForward) bytes_[keep] += layer[keep];
  if (layer[kInForward] == 0) return begin;
  begin[kInForward] = second_ ? layer[kInForward] : 0;
  bytes_[kInForward] = std::max(bytes_[kInForward], begin[kInForward] + layer[kInForward]);
  second_ = !second_;
  return begin;
}

ActivationPlan plan_activations(const Schedule& schedule, int stage, int num_microbatches,
                                const std::vector<KeptBytes>& per_chunk, bool training,
                                std::vector<bool> has_backward) {
  return Planner(schedule, stage, num_microbatches, training, std::move(has_backward))
      .run(per_chunk);
}

ActivationPlan estimate_activations(const Schedule& schedule, int stage, int num_microbatches,
                                    const std::vector<KeptBytes>& per_chunk) {
  return Planner(schedule, stage, num_microbatches, true).estimate(per_chunk);
}

std::vector<TaskMemory> kept_by_task(const Schedule& schedule, int stage, int num_microbatches,
                                     const std::vector<KeptBytes>& per_chunk) {
  return Planner(schedule, stage, num_microbatches, true).by_task(per_chunk);
}

}  // namespace meshplan::program
