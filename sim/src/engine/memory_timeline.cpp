#include "sim/engine/memory_timeline.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>
#include <unordered_map>

#include "core/error.hpp"
#include "core/index.hpp"
#include "core/units.hpp"
#include "program/memory/activations.hpp"
#include "program/memory/address.hpp"
#include "program/memory/offloaded_activations.hpp"
#include "sim/engine/memory.hpp"

namespace meshplan::sim {
namespace {

using program::OperationInstance;
using program::Program;
using program::Span;

/// What a chunk keeps of a micro-batch.
std::vector<program::KeptBytes> kept_per_chunk(const Program& program) {
  std::vector<program::ChunkKeeps> keeps(program.chunks.size());
  for (int i = 0; i < static_cast<int>(program.layers.size()); ++i)
    keeps[at(program.layers[at(i)].chunk)].add(program::resident_bytes(program, i));
  std::vector<program::KeptBytes> kept;
  for (const program::ChunkKeeps& chunk : keeps) kept.push_back(chunk.bytes());
  return kept;
}

/// Bytes of the transient region that a direction of a block reaches.
class TransientSizes {
 public:
  explicit TransientSizes(const Program& program) {
    std::set<std::tuple<int, bool, int>> seen;
    for (const OperationInstance& instance : program.instances) {
      const auto& ref = instance.operation;
      if (!ref.block || !seen.emplace(*ref.block, ref.backward, ref.index).second) continue;
      const program::Footprint touched = program::footprint(program, instance);
      for (const auto* list : {&touched.reads, &touched.writes})
        for (const program::Address& address : *list)
          if (address.region == program::Region::Transient)
            note(*ref.block, ref.backward, address.offset + address.bytes);
    }
  }

  double of(const OperationInstance& instance) const {
    const auto found = bytes_.find({*instance.operation.block, instance.operation.backward});
    return found == bytes_.end() ? 0 : static_cast<double>(found->second);
  }

 private:
  void note(int block, bool backward, std::int64_t end) {
    std::int64_t& bytes = bytes_[{block, backward}];
    bytes = std::max(bytes, end);
  }
  std::map<std::pair<int, bool>, std::int64_t> bytes_;
};

/// Walks the compute lane, which runs in issue order: what a task keeps is there from its first
/// operation on, and what only it needed until its last; a layer's working set likewise.
class Recorder {
 public:
  Recorder(const Program& program, const Cluster& cluster, const std::vector<const Span*>& spans)
      : program_(program), transient_(program) {
    for (const Span* span : spans) spans_.emplace(span->id, span);
    timeline_.stage = program.role.stage;
    if (!spans.empty()) timeline_.rank = spans.front()->rank;
    const StageMemory memory = stage_memory(program, cluster);
    timeline_.planned_bytes = memory.total();
    now_[MemoryClass::Weights] = memory.parameters;
    now_[MemoryClass::Gradients] = memory.gradients;
    now_[MemoryClass::Optimizer] = memory.master_parameters + memory.optimizer;
    now_[MemoryClass::Communication] = memory.communication + memory.boundary;
    now_[MemoryClass::Runtime] = memory.runtime_base + memory.workspace;
    const auto saved = static_cast<std::size_t>(program::Region::Saved);
    staged_ = memory.activations - static_cast<double>(program.memory.regions[saved].bytes());
    now_[MemoryClass::Activations] = staged_;
  }

  MemoryTimeline run() {
    find_ends();
    const auto kept =
        program::kept_by_task(program::schedule_of(program_.plan), program_.role.stage,
                              program_.plan.num_microbatches(), kept_per_chunk(program_));
    require_invariant(kept.size() == program_.tasks.size(), "tasks are those of the schedule");
    double& activations = now_[MemoryClass::Activations];
    double& transient = now_[MemoryClass::Transient];
    record(first_start(), nullptr);
    std::optional<int> task;
    for (const OperationInstance* instance : computing_) {
      const Span& span = *spans_.at(instance->id);
      if (instance->task != task) {
        task = instance->task;
        activations = staged_ + static_cast<double>(kept[at(*task)].during);
        record(span.start_s, instance);
      }
      if (instance->layer && open_.insert(layer_of(*instance)).second) {
        transient += transient_.of(*instance);
        record(span.start_s, instance);
      }
      if (instance->layer && last_of_layer_.at(layer_of(*instance)) == instance) {
        transient -= transient_.of(*instance);
        record(span.end_s, instance);
      }
      if (last_of_task_.at(*task) != instance) continue;
      activations = staged_ + static_cast<double>(kept[at(*task)].after);
      record(span.end_s, instance);
    }
    require_invariant(last_of_task_.size() == working_tasks_.size(), "every task has spans");
    return std::move(timeline_);
  }

 private:
  // A task's work on one layer in one direction.
  using LayerOfTask = std::tuple<int, int, bool>;
  static LayerOfTask layer_of(const OperationInstance& instance) {
    return {*instance.task, *instance.layer, instance.operation.backward};
  }

  void find_ends() {
    for (const OperationInstance& instance : program_.instances) {
      if (!instance.task) continue;
      if (program::operation_of(program_, instance).lane != program::Lane::Compute) continue;
      working_tasks_.insert(*instance.task);
      if (!spans_.contains(instance.id)) continue;
      computing_.push_back(&instance);
      last_of_task_[*instance.task] = &instance;
      if (instance.layer) last_of_layer_[layer_of(instance)] = &instance;
    }
  }

  double first_start() {
    double first = 0;
    for (const auto& [id, span] : spans_) {
      first = std::min(first, span->start_s);
      timeline_.end_s = std::max(timeline_.end_s, span->end_s);
    }
    return first;
  }

  std::string name_of_work(const OperationInstance& instance) const {
    const program::Task& task = program_.tasks[at(*instance.task)];
    const bool backward = instance.operation.backward;
    const bool overlapped = task.kind == program::TaskKind::Overlapped;
    const int microbatch = overlapped && backward ? task.backward_microbatch : task.microbatch;
    std::string text = fmt::format("{} {}", backward ? "backward" : "forward", microbatch);
    if (!instance.layer) return text;
    const program::LayerInstance& layer = program::layer_of(program_, instance);
    return layer.layer ? fmt::format("{}, layer {}", text, *layer.layer)
                       : fmt::format("{}, {}", text, program_.blocks[at(layer.block)].name);
  }

  void record(double time_s, const OperationInstance* instance) {
    auto& samples = timeline_.samples;
    if (!samples.empty() && samples.back().time_s == time_s)
      samples.back().use = now_;
    else
      samples.push_back({time_s, now_});
    if (now_.total() <= timeline_.peak.use.total()) return;
    timeline_.peak = samples.back();
    timeline_.during = instance == nullptr ? "" : name_of_work(*instance);
  }

  const Program& program_;
  TransientSizes transient_;
  std::unordered_map<std::uint64_t, const Span*> spans_;
  std::vector<const OperationInstance*> computing_;
  std::set<int> working_tasks_;  // all, but for backward ones where nothing is trained
  std::map<int, const OperationInstance*> last_of_task_;
  std::map<LayerOfTask, const OperationInstance*> last_of_layer_;
  std::set<LayerOfTask> open_;  // or over
  MemoryUse now_;
  double staged_ = 0;  // bytes for offloaded activations, there all the time
  MemoryTimeline timeline_;
};

}  // namespace

std::string_view name_of(MemoryClass memory_class) {
  switch (memory_class) {
    case MemoryClass::Weights:
      return "weights";
    case MemoryClass::Gradients:
      return "gradients";
    case MemoryClass::Optimizer:
      return "optimizer";
    case MemoryClass::Communication:
      return "communication";
    case MemoryClass::Runtime:
      return "runtime";
    case MemoryClass::Activations:
      return "activations";
    case MemoryClass::Transient:
      return "transient";
  }
  throw InvariantError("memory class without a name");
}

bool changes_over_step(MemoryClass memory_class) {
  return memory_class == MemoryClass::Activations || memory_class == MemoryClass::Transient;
}

double MemoryUse::total() const {
  return std::accumulate(bytes.begin(), bytes.end(), 0.0);
}

double MemoryTimeline::mean_bytes() const {
  if (samples.empty() || end_s <= samples.front().time_s) return 0;
  double sum = 0;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const double until = i + 1 < samples.size() ? samples[i + 1].time_s : end_s;
    sum += samples[i].use.total() * (until - samples[i].time_s);
  }
  return sum / (end_s - samples.front().time_s);
}

MemoryTimeline memory_timeline(const Program& program, const Cluster& cluster,
                               const std::vector<const Span*>& spans) {
  return Recorder(program, cluster, spans).run();
}

std::vector<MemoryTimeline> memory_timelines(const std::vector<Program>& stages,
                                             const Cluster& cluster, const program::Trace& trace) {
  if (trace.spans.empty()) return {};
  const program::Mesh mesh = program::mesh_of(trace.plan);
  const int step = std::ranges::min_element(trace.spans, {}, &Span::step)->step;
  std::map<int, std::vector<const Span*>> by_rank;
  for (const Span& span : trace.spans)
    if (span.step == step) by_rank[span.rank].push_back(&span);
  std::vector<MemoryTimeline> timelines;
  for (const auto& [rank, spans] : by_rank)
    timelines.push_back(memory_timeline(stages[at(mesh.coordinates(rank).pp)], cluster, spans));
  return timelines;
}

program::CounterTrack counter_track(const MemoryTimeline& timeline) {
  program::CounterTrack track{.rank = timeline.rank,
                              .name = "memory, MiB",
                              .series = {"activations", "transient", "all else"},
                              .samples = {}};
  for (const MemorySample& sample : timeline.samples) {
    const double activations = sample.use[MemoryClass::Activations];
    const double transient = sample.use[MemoryClass::Transient];
    track.samples.push_back({sample.time_s,
                             {activations / kMib, transient / kMib,
                              (sample.use.total() - activations - transient) / kMib}});
  }
  return track;
}

}  // namespace meshplan::sim
