// Offloaded activations (as vDNN moves them, Rhu et al. 2016, section 3; here all that a layer
// keeps goes at once). Copies have a lane each way, so both run beside what is computed; what they
// wait for follows from the memory that they touch.
#include "lower/activation_copies.hpp"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "core/index.hpp"
#include "program/memory/offloaded_activations.hpp"
#include "step_operations.hpp"

namespace meshplan::program {
namespace {

class CopyMaker {
 public:
  CopyMaker(Program& program, std::vector<OperationInstance>& instances,
            std::vector<Addition>& additions)
      : program_(program), instances_(instances), additions_(additions) {}

  void run() {
    find_visits();
    for (std::size_t i = 0; i < visits_.size(); ++i) {
      const Visit& visit = visits_[i];
      if (visit.forward)
        add(visit, visit.end, false);
      else
        add(visit, fetch_position(i), true);
    }
  }

 private:
  // A task's work on an offloaded layer.
  struct Visit {
    int task = 0;
    int layer = 0;
    int slot = 0;
    int begin = 0;  // instances
    int end = 0;
    bool forward = true;
  };

  /// When the visit that had the slot before is over, and the copy to the host is issued.
  int fetch_position(std::size_t i) const {
    constexpr std::size_t kAhead = kStagedLayers - 1;
    const Visit& visit = visits_[i];
    const int stored = stored_.at({visit.layer, *instances_[at(visit.begin)].microbatch});
    return i < kAhead ? stored : std::max(stored, visits_[i - kAhead].begin);
  }

  void find_visits() {
    int slot = 0;  // of the next visit
    for (int i = 0; i < static_cast<int>(instances_.size()); ++i) {
      OperationInstance& instance = instances_[at(i)];
      if (!instance.layer || !instance.operation.block) continue;
      if (!program_.layers[at(*instance.layer)].offloaded) {
        // An embedding writes the input of the first layer: the slot after its own.
        instance.staged_slot = (slot + kStagedLayers - 1) % kStagedLayers;
        continue;
      }
      if (visits_.empty() || visits_.back().task != *instance.task ||
          visits_.back().layer != *instance.layer) {
        visits_.push_back({.task = *instance.task,
                           .layer = *instance.layer,
                           .slot = slot,
                           .begin = i,
                           .forward = !instance.operation.backward});
        slot = (slot + 1) % kStagedLayers;
      }
      Visit& visit = visits_.back();
      visit.end = i + 1;
      instance.staged_slot = visit.slot;
      if (visit.forward) stored_[{visit.layer, *instance.microbatch}] = visit.end;
    }
  }

  void add(const Visit& visit, int position, bool fetch) {
    const FlatRange bytes = staged_range(program_, visit.layer);
    if (bytes.size() == 0) return;
    const OperationInstance& within = instances_[at(visit.begin)];
    OperationInstance copy{.task = visit.task,
                           .microbatch = within.microbatch,
                           .chunk = within.chunk,
                           .layer = visit.layer,
                           .staged_slot = visit.slot};
    copy.operation = {.index = operation_of(bytes, fetch)};
    copy.id =
        instance_id(copy.task, copy.layer, program_.step_operations[at(copy.operation.index)].name);
    additions_.emplace_back(position, std::move(copy));
  }

  int operation_of(const FlatRange& bytes, bool fetch) {
    const auto [entry, fresh] = operations_.try_emplace(
        {bytes.begin, bytes.end, fetch}, static_cast<int>(program_.step_operations.size()));
    if (fresh)
      program_.step_operations.push_back(
          {.name = fetch ? "activations.fetch" : "activations.store",
           .phase = fetch ? Phase::InputGrad : Phase::Forward,
           .lane = fetch ? Lane::FromHost : Lane::ToHost,
           .work = StepOp{.work = fetch ? StepWork::FetchActivations : StepWork::StoreActivations,
                          .range = bytes}});
    return entry->second;
  }

  Program& program_;
  std::vector<OperationInstance>& instances_;
  std::vector<Addition>& additions_;
  std::vector<Visit> visits_;
  std::map<std::pair<int, int>, int> stored_;  // position, by layer and micro-batch
  std::map<std::tuple<std::int64_t, std::int64_t, bool>, int> operations_;
};

}  // namespace

void add_activation_copies(Program& program, std::vector<OperationInstance>& instances,
                           std::vector<Addition>& additions) {
  CopyMaker(program, instances, additions).run();
}

}  // namespace meshplan::program
