#include "engine/layer_passes.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "core/index.hpp"
#include "engine/player.hpp"

namespace meshplan::sim {
namespace {

using program::Lane;
using program::LayerPassOp;
using program::OperationInstance;
using program::Program;

/// Null of an operation that is no message between stages.
const program::PeerOp* message_of(const StageTables& tables, int instance) {
  return std::get_if<program::PeerOp>(
      &operation_of(*tables.program, tables.program->instances[at(instance)]).work);
}
bool receives(const StageTables& tables, int instance) {
  const program::PeerOp* message = message_of(tables, instance);
  return message != nullptr && !message->send;
}

/// Instances [begin, end) of a program: what a task runs of a layer.
struct Listed {
  std::size_t begin = 0;
  std::size_t end = 0;
};

using PassKey = std::pair<int, int>;  // layer, index into Block::passes

/// For each pass the second visit to its layer, whose operations are listed. (The first one has
/// nothing to wait for and writes gradients that later ones add to, the last ones are those between
/// which gradients are reduced.)
class Samples {
 public:
  explicit Samples(const Program& program) : program_(program) {
    for (const OperationInstance& instance : program.instances)
      if (instance.operation.pass) wanted_.insert({*instance.layer, instance.operation.index});
    const std::vector<OperationInstance>& instances = program.instances;
    if (wanted_.empty()) return;
    for (std::size_t begin = 0; begin < instances.size();) {
      std::size_t end = begin + 1;
      while (end < instances.size() && instances[end].layer == instances[begin].layer &&
             instances[end].task == instances[begin].task)
        ++end;
      if (instances[begin].layer) note({begin, end});
      begin = end;
    }
  }

  const std::map<PassKey, Listed>& all() const { return samples_; }
  const std::set<PassKey>& wanted() const { return wanted_; }

 private:
  void note(Listed visit) {
    const OperationInstance& instance = program_.instances[visit.begin];
    const int layer = *instance.layer;
    const auto& passes = program_.blocks[at(*instance.operation.block)].passes;
    for (auto i = wanted_.lower_bound({layer, 0}); i != wanted_.end() && i->first == layer; ++i) {
      const auto& pass = std::get<LayerPassOp>(passes[at(i->second)].work);
      const Listed listed{visit.begin + pass.lead.size(), visit.end - pass.tail.size()};
      constexpr int kSecond = 2;
      if (listed.end <= visit.end && runs(listed, pass) && ++visits_[*i] <= kSecond &&
          adds_to_gradients(listed))
        samples_[*i] = listed;
    }
  }

  bool runs(Listed listed, const LayerPassOp& pass) const {
    if (listed.begin + pass.operations.size() != listed.end) return false;
    for (std::size_t i = 0; i < pass.operations.size(); ++i) {
      const OperationInstance& instance = program_.instances[listed.begin + i];
      if (instance.operation.pass || instance.operation.index != pass.operations[i] ||
          instance.operation.backward != (pass.kind != program::TaskKind::Forward))
        return false;
    }
    return true;
  }
  bool adds_to_gradients(Listed listed) const {
    for (std::size_t i = listed.begin; i < listed.end; ++i)
      if (writes_gradient(program_.instances[i]) && !program_.instances[i].accumulate) return false;
    return true;
  }

  bool writes_gradient(const OperationInstance& instance) const {
    const program::Block& block = program_.blocks[at(*instance.operation.block)];
    return std::ranges::any_of(
        operation_of(program_, instance).outputs, [&](program::ValueId output) {
          return block.values[at(output)].storage == program::Storage::Gradient;
        });
  }

  const Program& program_;
  std::set<PassKey> wanted_;
  std::map<PassKey, int> visits_;
  std::map<PassKey, Listed> samples_;
};

/// Plays listed instances of one rank as if nothing else were there.
class Alone {
 public:
  Alone(Play& play, int rank, Listed listed)
      : play_(play),
        rank_(play.ranks[at(rank)]),
        tables_(play.stages[at(rank_.stage)]),
        listed_(listed),
        start_(listed.end - listed.begin),
        end_(listed.end - listed.begin, kNever) {}

  /// @returns false if they could not be one operation
  bool run() {
    if (!begins_with_its_computation()) return false;
    play_.resources.resize_activities(program::kNumLanes);
    for (std::size_t i = listed_.begin; i < listed_.end; ++i) queues_[tables_.lane[i]].push_back(i);
    for (std::size_t done = 0; done < end_.size(); ++done)
      if (!go_on()) return false;
    return ends_with_its_computation();
  }

  double start(std::size_t instance) const { return start_[instance - listed_.begin]; }
  double end(std::size_t instance) const { return end_[instance - listed_.begin]; }
  double seconds() const { return now_; }
  LaneMask awaited() const {
    LaneMask lanes = 0;
    for (const int wait : waits(listed_.begin)) lanes |= lane_bit(tables_.lane[at(wait)]);
    return lanes;
  }

 private:
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  bool is_inside(int instance) const {
    return at(instance) >= listed_.begin && at(instance) < listed_.end;
  }
  std::span<const int> waits(std::size_t instance) const {
    const auto begin = at(tables_.wait_begin[instance]), end = at(tables_.wait_begin[instance + 1]);
    return std::span(tables_.waits).subspan(begin, end - begin);
  }

  /// The computation of the same task that comes before, if there is one.
  std::optional<std::size_t> before() const {
    const auto task = [&](std::size_t i) { return tables_.program->instances[i].task; };
    for (std::size_t i = listed_.begin; i-- > 0 && task(i) == task(listed_.begin);)
      if (tables_.lane[i] == kCompute) return i;
    return std::nullopt;
  }

  /// All of it waits for its first operation, which alone waits for a message, or for the
  /// computation before it.
  bool begins_with_its_computation() const {
    LaneMask begun = lane_bit(kCompute);
    const std::optional<std::size_t> previous = before();
    for (std::size_t i = listed_.begin; i < listed_.end; ++i) {
      if (rank_.target[i] < 0) return false;  // others take part
      const std::size_t lane = tables_.lane[i];
      bool waits_inside = (begun & lane_bit(lane)) != 0;
      for (const int wait : waits(i)) {
        waits_inside |= is_inside(wait) || (previous && at(wait) == *previous);
        if (i > listed_.begin && receives(tables_, wait) && !is_awaited(wait)) return false;
      }
      if (!waits_inside) return false;
      begun |= lane_bit(lane);
    }
    return true;
  }

  /// By the first operation, or what of the same visit comes before it?
  bool is_awaited(int message) const {
    const auto& instances = tables_.program->instances;
    for (std::size_t i = listed_.begin + 1;
         i-- > 0 && instances[i].task == instances[listed_.begin].task;)
      if (std::ranges::find(waits(i), message) != waits(i).end()) return true;
    return false;
  }

  bool ends_with_its_computation() const {
    double last = 0;
    for (std::size_t i = listed_.begin; i < listed_.end; ++i)
      if (tables_.lane[i] == kCompute) last = std::max(last, end(i));
    return last == now_;
  }

  bool may_start(std::size_t instance) const {
    return std::ranges::all_of(waits(instance), [&](int wait) {
      return !is_inside(wait) || end_[at(wait) - listed_.begin] <= now_;
    });
  }

  /// To the next end of an operation. @returns false if there is none
  bool go_on() {
    SharedResources& resources = play_.resources;
    for (std::size_t lane = 0; lane < queues_.size(); ++lane) {
      const std::vector<std::size_t>& queue = queues_[lane];
      if (busy_[lane] || next_[lane] == queue.size() || !may_start(queue[next_[lane]])) continue;
      const Work& work = play_.works[at(rank_.target[queue[next_[lane]]])];
      start_[queue[next_[lane]] - listed_.begin] = now_;
      resources.start(static_cast<int>(lane), work.usages, work.seconds, now_);
      busy_[lane] = true;
    }
    if (!resources.is_settled()) resources.settle(now_);
    resources.clear_changed();
    double soonest = kNever;
    std::size_t first = 0;
    for (std::size_t lane = 0; lane < queues_.size(); ++lane)
      if (const double ends = busy_[lane] ? resources.finish_time(static_cast<int>(lane)) : kNever;
          ends < soonest) {
        soonest = ends;
        first = lane;
      }
    if (soonest == kNever) return false;
    now_ = soonest;
    resources.stop(static_cast<int>(first), now_);
    busy_[first] = false;
    end_[queues_[first][next_[first]++] - listed_.begin] = now_;
    return true;
  }

  Play& play_;
  const SimulatedRank& rank_;
  const StageTables& tables_;
  Listed listed_;
  std::vector<double> start_, end_;  // of `listed`
  std::array<std::vector<std::size_t>, program::kNumLanes> queues_;
  std::array<std::size_t, program::kNumLanes> next_{};
  std::array<bool, program::kNumLanes> busy_{};
  double now_ = 0;
};

/// Operations outside that wait for one of a pass find it at the pass's end, but for those that
/// come after it anyway.
bool leaves_at_its_end(const StageTables& tables, Listed listed, const Alone& alone) {
  const std::vector<OperationInstance>& instances = tables.program->instances;
  const std::optional<int> task = instances[listed.begin].task;
  constexpr int kTasksOfMessages = 4;  // a message waits for none that is further back
  for (std::size_t i = listed.end; i < tables.lane.size(); ++i) {
    const bool same_task = instances[i].task == task;
    if (instances[i].task > *task + kTasksOfMessages) break;
    if (tables.lane[i] == kCompute ||
        !(same_task || message_of(tables, static_cast<int>(i)) != nullptr))
      continue;
    const std::span<const int> waits =
        std::span(tables.waits)
            .subspan(at(tables.wait_begin[i]), at(tables.wait_begin[i + 1] - tables.wait_begin[i]));
    const bool waits_longer = std::ranges::any_of(waits, [&](int wait) {
      return tables.lane[at(wait)] == kCompute && at(wait) + 1 >= listed.end;
    });
    for (const int wait : waits)
      if (at(wait) >= listed.begin && at(wait) < listed.end && !waits_longer &&
          alone.end(at(wait)) != alone.seconds())
        return false;
  }
  return true;
}

LayerPass pass_of(const Program& program, Listed listed, const Alone& alone,
                  const program::Mesh& mesh, int rank) {
  LayerPass pass{.seconds = alone.seconds(), .awaited = alone.awaited()};
  for (std::size_t i = listed.begin; i < listed.end; ++i)
    pass.pieces.push_back(
        {.kind =
             kind_of(program::make_span(program, program.instances[i], mesh, rank), mesh.config()),
         .start = alone.start(i),
         .end = alone.end(i)});
  std::ranges::stable_sort(pass.pieces, {}, &LayerPass::Piece::start);
  std::vector<LayerPass::Piece> pieces;
  LayerPass::Piece* computes = nullptr;
  pieces.reserve(pass.pieces.size());
  for (const LayerPass::Piece& piece : pass.pieces) {
    if (!piece.kind.communicates && computes != nullptr && computes->end == piece.start &&
        computes->kind.category == piece.kind.category) {
      computes->end = piece.end;
      continue;
    }
    pieces.push_back(piece);
    if (!piece.kind.communicates) computes = &pieces.back();
  }
  pass.pieces = std::move(pieces);
  return pass;
}

/// Most that each rank, and its meetings with others, ask of each resource.
class Demands {
 public:
  explicit Demands(const Play& play) : resources_(play.resources) {
    for (std::size_t r = 0; r < play.ranks.size(); ++r) {
      for (const int target : play.ranks[r].target)
        if (target >= 0) see(play.works[at(target)].usages);
      note_seen(static_cast<int>(r));
    }
    for (const Meeting& meeting : play.meetings) see(meeting.usages);
    note_seen(kMeetings);
  }

  /// Would what a rank does by itself always get what it asks for? @param own_device  of its
  /// computation: what takes of that is looked for where it has run (last_disturbed_task)
  bool leave_room(int rank, UsageSpan usages, UsageSpan own_device) const {
    const std::span<const Usage> device = resources_.usages_of(own_device);
    for (const Usage& usage : resources_.usages_of(usages)) {
      if (std::ranges::find(device, usage.resource, &Usage::resource) != device.end()) continue;
      const std::map<int, double>& asked = asked_.at(usage.resource);
      double all = 0;
      for (const auto& [who, most] : asked) all += most;
      constexpr double kSlightly = 1e-9;
      const bool own = asked.size() == 1 && asked.begin()->first == rank;
      if (!own && all > resources_.capacity(usage.resource) * (1 + kSlightly)) return false;
    }
    return true;
  }

 private:
  static constexpr int kMeetings = -1;

  void see(UsageSpan usages) {
    if (seen_.empty() || seen_.back().begin != usages.begin) seen_.push_back(usages);
  }
  void note_seen(int who) {
    std::ranges::sort(seen_, {}, &UsageSpan::begin);
    const auto repeated = std::ranges::unique(seen_, {}, &UsageSpan::begin);
    seen_.erase(repeated.begin(), repeated.end());
    for (const UsageSpan usages : seen_)
      for (const Usage& usage : resources_.usages_of(usages)) {
        double& most = asked_[usage.resource][who];
        most = std::max(most, usage.demand);
      }
    seen_.clear();
  }

  const SharedResources& resources_;
  std::vector<UsageSpan> seen_;                 // of one of them
  std::map<int, std::map<int, double>> asked_;  // by resource, then by who
};

}  // namespace

void time_layer_passes(Play& play, const program::Mesh& mesh) {
  std::vector<Samples> samples;
  samples.reserve(play.stages.size());
  for (const StageTables& tables : play.stages) samples.emplace_back(*tables.program);
  if (std::ranges::all_of(samples, [](const Samples& of) { return of.wanted().empty(); })) return;
  const Demands demands(play);
  for (std::size_t r = 0; r < play.ranks.size(); ++r) {
    const SimulatedRank& rank = play.ranks[r];
    const StageTables& tables = play.stages[at(rank.stage)];
    const Program& program = *tables.program;
    const Samples& of_stage = samples[at(rank.stage)];
    const auto is_alike = [&](Listed listed) {  // alone and among others
      const auto usages = [&](std::size_t i) { return play.works[at(rank.target[i])].usages; };
      std::size_t computes = listed.begin;
      while (tables.lane[computes] != kCompute) ++computes;
      for (std::size_t i = listed.begin; i < listed.end; ++i)
        if (tables.lane[i] != kCompute &&
            !demands.leave_room(static_cast<int>(r), usages(i), usages(computes)))
          return false;
      return true;
    };
    std::map<PassKey, int> timed;
    for (const PassKey& key : of_stage.wanted()) {
      const auto found = of_stage.all().find(key);
      std::optional<Alone> alone;
      if (found != of_stage.all().end()) alone.emplace(play, static_cast<int>(r), found->second);
      if (!alone || !alone->run() || !leaves_at_its_end(tables, found->second, *alone) ||
          !is_alike(found->second)) {
        const program::Block& block = program.blocks[at(program.layers[at(key.first)].block)];
        play.inseparable_passes.insert(
            {block.name, std::get<LayerPassOp>(block.passes[at(key.second)].work).kind});
        continue;
      }
      timed[key] = static_cast<int>(play.passes.size());
      play.passes.push_back(pass_of(program, found->second, *alone, mesh, rank.rank));
    }
    if (!play.inseparable_passes.empty()) continue;
    for (std::size_t i = 0; i < program.instances.size(); ++i) {
      const program::OperationRef& operation = program.instances[i].operation;
      if (!operation.pass) continue;
      Work& work = play.works[at(rank.target[i])];
      work.pass = timed.at({*program.instances[i].layer, operation.index});
      work.seconds = play.passes[at(*work.pass)].seconds;
    }
  }
}

std::optional<int> last_disturbed_task(const Play& play, const Outcome& outcome) {
  std::optional<int> last;
  if (play.passes.empty()) return last;
  for (std::size_t r = 0; r < play.ranks.size(); ++r) {
    const StageTables& tables = play.stages[at(play.ranks[r].stage)];
    const double* start = outcome.last.start.data() + outcome.offset[r];
    const double* end = outcome.last.end.data() + outcome.offset[r];
    std::vector<std::pair<double, double>> beside;
    for (std::size_t lane = 0; lane < tables.lane_order.size(); ++lane)
      if (lane != kCompute && lane != static_cast<std::size_t>(Lane::Host))
        for (const int i : tables.lane_order[lane])
          if (message_of(tables, i) == nullptr) beside.emplace_back(start[i], end[i]);
    std::ranges::sort(beside);
    std::size_t next = 0;
    double latest = -std::numeric_limits<double>::infinity();  // end of what began so far
    double free = latest;
    const std::vector<OperationInstance>& instances = tables.program->instances;
    for (const int i : tables.lane_order[kCompute]) {
      if (!instances[at(i)].operation.pass) {
        free = end[i];
        continue;
      }
      const Work& work = play.works[at(play.ranks[r].target[at(i)])];
      const LaneMask awaited = play.passes[at(*work.pass)].awaited;
      double ready = free;
      for (int w = tables.wait_begin[at(i)]; w < tables.wait_begin[at(i) + 1]; ++w)
        if (const int wait = tables.waits[at(w)];
            receives(tables, wait) || instances[at(wait)].task == instances[at(i)].task ||
            (awaited & lane_bit(tables.lane[at(wait)])) != 0)
          ready = std::max(ready, end[wait]);
      for (; next < beside.size() && beside[next].first < end[i]; ++next)
        latest = std::max(latest, beside[next].second);
      if (start[i] != ready || latest > start[i])
        last = std::max(last.value_or(0), *instances[at(i)].task);
      free = end[i];
    }
  }
  return last;
}

}  // namespace meshplan::sim
