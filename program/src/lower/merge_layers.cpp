// Programs for the simulator in which a layer's pass over a micro-batch is one operation. A task's
// communication at its begin and end runs beside the tasks before and after it: it is listed as
// ever.
#include "lower/merge_layers.hpp"

#include <algorithm>
#include <array>
#include <bitset>
#include <cstddef>
#include <map>
#include <utility>

#include "core/index.hpp"

namespace meshplan::program {
namespace {

constexpr std::array kKinds = {TaskKind::Forward, TaskKind::BackwardFull, TaskKind::BackwardInput,
                               TaskKind::BackwardWeight};
constexpr std::size_t kPlaces = 4;  // in a task: neither first nor last, first, last, both

using LaneSet = std::bitset<kNumLanes>;

/// Does a task run the operation, in a visit that is not the layer's first in the step?
bool runs(const Operation& operation, TaskKind kind) {
  if (operation.once_per_step) return false;
  if (kind == TaskKind::BackwardInput) return !operation.deferrable;
  if (kind == TaskKind::BackwardWeight) return operation.deferrable;
  return true;
}

bool computes(const Operation& operation) {
  return operation.lane == Lane::Compute;
}

/// What a task of one kind runs of a block, and where it may be divided.
class Visit {
 public:
  Visit(const Block& block, TaskKind kind, const ListedOperations& listed)
      : block_(block),
        kind_(kind),
        merges_(!listed.passes.contains({block.name, kind})),
        all_(kind == TaskKind::Forward ? block.forward : block.backward) {
    for (std::size_t i = 0; i < all_.size(); ++i)
      if (runs(all_[i], kind)) indexes_.push_back(static_cast<int>(i));
    lead_ = end_of_lead();
    merges_ = merges_ && lead_ < size();
    tail_ = end_of_pass();
    early_lanes_ = find_early_lanes();
  }

  std::size_t size() const { return indexes_.size(); }
  bool merges() const { return merges_; }
  /// Operations before the pass where the layer is its task's first: communication, and what is
  /// recomputed while the gradient is under way.
  std::size_t lead() const { return lead_; }
  /// Of communication that waits for no computation of the visit.
  LaneSet early_lanes() const { return early_lanes_; }
  LaneSet tail_lanes() const {
    LaneSet lanes;
    for (std::size_t i = tail_; i < size(); ++i)
      if (!computes(at_place(i))) lanes.set(static_cast<std::size_t>(at_place(i).lane));
    return lanes;
  }
  /// Where what comes last begins: a communication, and what follows it.
  std::size_t tail() const { return tail_; }
  bool ends_communicating() const { return size() > 0 && !computes(at_place(size() - 1)); }

  /// @param begin, end  operations [begin, end) are the pass
  Operation pass(std::size_t begin, std::size_t end) const {
    const auto part = [&](std::size_t from, std::size_t to) {
      return std::vector<int>(indexes_.begin() + static_cast<std::ptrdiff_t>(from),
                              indexes_.begin() + static_cast<std::ptrdiff_t>(to));
    };
    Operation merged{.name = block_.name + (kind_ == TaskKind::Forward ? ".forward" : ".backward"),
                     .phase = kind_ == TaskKind::Forward          ? Phase::Forward
                              : kind_ == TaskKind::BackwardWeight ? Phase::WeightGrad
                                                                  : Phase::InputGrad};
    if (!merges_) begin = end = size();
    merged.work = LayerPassOp{kind_, part(0, begin), part(begin, end), part(end, size())};
    for (std::size_t i = begin; i < end; ++i) {
      add(at_place(i).inputs, begin, end, merged.inputs);
      add(at_place(i).outputs, begin, end, merged.outputs);
    }
    return merged;
  }

 private:
  const Operation& at_place(std::size_t i) const { return all_[at(indexes_[i])]; }

  bool touches(const std::vector<ValueId>& values, ValueId root) const {
    return std::ranges::any_of(values,
                               [&](ValueId value) { return root_of(block_, value) == root; });
  }
  bool touches(const Operation& operation, ValueId root) const {
    return touches(operation.inputs, root) || touches(operation.outputs, root);
  }
  bool reads_result(const Operation& reader, const Operation& of) const {
    return std::ranges::any_of(of.outputs, [&](ValueId output) {
      return touches(reader.inputs, root_of(block_, output));
    });
  }

  /// The first computation that waits for the gradient that the task receives, and for all
  /// communication before it; the end if there is none.
  std::size_t end_of_lead() const {
    std::size_t i = kind_ == TaskKind::Forward ? 0 : first_reader_of_gradient();
    while (i < size() && !(computes(at_place(i)) && is_all_read_before(i))) ++i;
    return i;
  }
  /// The first of all where nothing is received.
  std::size_t first_reader_of_gradient() const {
    for (std::size_t i = 0; i < size(); ++i)
      for (const ValueId input : at_place(i).inputs)
        if (block_.values[at(root_of(block_, input))].storage == Storage::LayerOutputGrad) return i;
    return 0;
  }
  bool is_all_read_before(std::size_t computation) const {
    for (std::size_t i = 0; i < computation; ++i)
      if (!computes(at_place(i)) && !is_read(at_place(i), i + 1, computation + 1)) return false;
    return true;
  }
  LaneSet find_early_lanes() const {
    LaneSet lanes;
    std::vector<std::size_t> late;
    for (std::size_t i = 0; i < size(); ++i) {
      if (computes(at_place(i)) || reads_any(at_place(i), late))
        late.push_back(i);
      else
        lanes.set(static_cast<std::size_t>(at_place(i).lane));
    }
    return lanes;
  }
  bool reads_any(const Operation& reader, const std::vector<std::size_t>& of) const {
    return std::ranges::any_of(of,
                               [&](std::size_t i) { return reads_result(reader, at_place(i)); });
  }

  /// The last communication that begins when nothing else is in progress, if little comes after it;
  /// else the end.
  std::size_t end_of_pass() const {
    constexpr std::size_t kShort = 4;
    for (std::size_t cut = size(); cut-- > lead_ && size() - cut <= kShort;)
      if (is_quiet_before(cut)) return cut;
    return size();
  }

  bool is_quiet_before(std::size_t cut) const {
    const Operation& first = at_place(cut);
    if (computes(first) || cut == 0 || !computes(at_place(cut - 1)) ||
        !reads_result(first, at_place(cut - 1)))
      return false;
    for (std::size_t i = cut + 1; i < size(); ++i)  // waits for it, as its lane is the same
      if (!computes(at_place(i)) && at_place(i).lane != first.lane) return false;
    for (std::size_t i = lead_; i < cut; ++i)
      if (!computes(at_place(i)) && !is_read(at_place(i), i + 1, cut)) return false;
    return true;
  }
  bool is_read(const Operation& communication, std::size_t begin, std::size_t end) const {
    for (std::size_t i = begin; i < end; ++i)
      if (computes(at_place(i)) && reads_result(at_place(i), communication)) return true;
    return false;
  }

  /// Values that others than the operations [begin, end) touch, too.
  void add(const std::vector<ValueId>& values, std::size_t begin, std::size_t end,
           std::vector<ValueId>& added) const {
    for (const ValueId value : values) {
      const ValueId root = root_of(block_, value);
      if (std::ranges::find(added, root) != added.end()) continue;
      bool shared = is_shared(block_.values[at(root)].storage);
      for (std::size_t i = 0; i < size() && !shared; ++i)
        shared = (i < begin || i >= end) && touches(at_place(i), root);
      if (shared) added.push_back(root);
    }
  }
  static bool is_shared(Storage storage) {
    switch (storage) {
      case Storage::Parameter:
      case Storage::Gradient:
      case Storage::LayerInput:
      case Storage::LayerOutput:
      case Storage::LayerInputGrad:
      case Storage::LayerOutputGrad:
        return true;
      default:
        return false;
    }
  }

  const Block& block_;
  TaskKind kind_;
  bool merges_;
  const std::vector<Operation>& all_;
  std::vector<int> indexes_;  // into `all_`
  std::size_t lead_ = 0, tail_ = 0;
  LaneSet early_lanes_;
};

/// The layer whose operations end a task.
int last_layer(const Program& program, const Task& task) {
  const Chunk& chunk = program.chunks[at(task.chunk)];
  return task.kind == TaskKind::Forward ? chunk.end_layer - 1 : chunk.first_layer;
}
int first_layer(const Program& program, const Task& task) {
  const Chunk& chunk = program.chunks[at(task.chunk)];
  return task.kind == TaskKind::Forward ? chunk.first_layer : chunk.end_layer - 1;
}

/// What of a task may run beside its neighbours, by block and kind.
class Ends {
 public:
  Ends(const Program& program, const ListedOperations& listed) : program_(program) {
    for (const Block& block : program.blocks)
      for (const TaskKind kind : kKinds) visits_.emplace_back(block, kind, listed);
  }

  /// Of communication that waits for no computation of the task. Weight gradients wait for nothing
  /// that the layer before computes.
  LaneSet early_lanes(const Task& task) const {
    if (task.kind != TaskKind::BackwardWeight)
      return visit(task.kind, first_layer(program_, task)).early_lanes();
    LaneSet lanes;
    const Chunk& chunk = program_.chunks[at(task.chunk)];
    for (int layer = chunk.first_layer; layer < chunk.end_layer; ++layer)
      lanes |= visit(task.kind, layer).early_lanes();
    return lanes;
  }
  /// Could early communication begin while what is merged of the task before runs? Not behind what
  /// that one ends with on the same lane.
  bool is_beside(const Task& before, const Task& task) const {
    const Visit& last = visit(before.kind, last_layer(program_, before));
    return last.merges() && (early_lanes(task) & ~last.tail_lanes()).any();
  }

 private:
  const Visit& visit(TaskKind kind, int layer) const {
    const int block = program_.layers[at(layer)].block;
    return visits_[at(block) * kKinds.size() + static_cast<std::size_t>(kind)];
  }
  const Program& program_;
  std::vector<Visit> visits_;
};

}  // namespace

void add_passes(Block& block, const ListedOperations& listed) {
  for (const TaskKind kind : kKinds) {
    const Visit visit(block, kind, listed);
    for (std::size_t place = 0; place < kPlaces; ++place) {
      const bool first = (place & 1) != 0, last = (place & 2) != 0;
      block.passes.push_back(visit.pass(first ? visit.lead() : 0, last || visit.ends_communicating()
                                                                      ? visit.tail()
                                                                      : visit.size()));
    }
  }
}

const Operation& pass_of(const Block& block, TaskKind kind, bool first, bool last) {
  const std::size_t place = (first ? 1U : 0U) + (last ? 2U : 0U);
  return block.passes[static_cast<std::size_t>(kind) * kPlaces + place];
}

std::vector<bool> merged_tasks(const Program& program, const ListedOperations& listed) {
  const std::vector<Task>& tasks = program.tasks;
  const Ends ends(program, listed);
  const bool any_begins_early =
      std::ranges::any_of(tasks, [&](const Task& task) { return ends.early_lanes(task).any(); });
  std::map<std::pair<TaskKind, int>, int> left;  // visits to a chunk, by kind of task
  for (const Task& task : tasks) ++left[{task.kind, task.chunk}];
  std::map<std::pair<TaskKind, int>, int> visited;
  std::vector<bool> merged(tasks.size(), false);
  constexpr int kSamples = 2;  // the first visit differs: it writes gradients that others add to
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    const Task& task = tasks[i];
    const std::pair key(task.kind, task.chunk);
    // Gradients begin to be reduced; those of norms are part of what gives the input's gradient.
    if (--left[key] == 0 && task.kind != TaskKind::Forward) break;
    const bool is_beside_the_next = i + 1 < tasks.size() && ends.is_beside(task, tasks[i + 1]);
    // Weight gradients fill the gaps in which communication of others begins.
    const bool fills = task.kind == TaskKind::BackwardWeight && any_begins_early;
    merged[i] = ++visited[key] > kSamples && static_cast<int>(i) >= listed.first_tasks &&
                !is_beside_the_next && !fills;
  }
  return merged;
}

/// Where parameters are frozen, some of a layer's tasks have little work left, and their
/// communication runs beside other layers': one such plan in a thousand took other time on a rank.
bool merges_layers(const Plan& plan) {
  return plan.frozen.empty() && plan.zero_stage < 2 && !overlaps_tasks(plan.schedule) &&
         plan.schedule != ScheduleKind::Custom && plan.offload_activations == 0;
}

}  // namespace meshplan::program
