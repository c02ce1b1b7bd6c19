// What a virtual stage of a plan costs: the stage of a small pipeline, priced once, with the number
// of layers that it really has.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "estimator/blocks/block_prices.hpp"
#include "estimator/blocks/operation_forms.hpp"
#include "models/graph.hpp"
#include "prices/operator_table.hpp"
#include "program/lower/lower.hpp"
#include "program/plan/lowering_profile.hpp"
#include "program/plan/plan.hpp"
#include "schedules/compiled_schedule.hpp"
#include "schedules/plan_keys.hpp"
#include "sim/clusters/cluster.hpp"

namespace meshplan::sim {

/// Gradients that become ready together: `seconds` after the begin of the task that completes them.
struct ReadyGradients {
  double seconds = 0;
  double seconds_of_single = 0;  // if the step has one micro-batch, whose task writes gradients
  double elements = 0;
  double needed = 0;  // seconds after the begin of a forward task: when it reads their weights
  bool expert = false;
};

/// A layer instance of a chunk.
struct LayerCost {
  double forward = 0;                      // seconds
  double backward = 0;                     // seconds, of one that writes gradients
  double dense = 0;                        // elements whose gradients are ready with it
  double experts = 0;                      // elements
  FrozenElements frozen;                   // that nothing else reads
  std::vector<std::int64_t> copied_parts;  // runs of elements summed over their holders
  bool backward_reads = true;              // its weights; an embedding's are read forward only
};

struct ChunkCost {
  TaskTimes tasks;
  double prelude = 0;
  CostSums sums;
  SlotBytes slots;
  double load_seconds = 0;
  double frozen_tied_elements = 0;  // see StagePrices
  double tied_elements = 0;
  bool has_backward = true;
  double shared_elements = 0;  // by two layers of the chunk; in `ready`, too
  int num_layers = 0;
  std::vector<std::int64_t> layer_copied_parts;  // of each layer, summed over their holders
  program::KeptBytes kept_bytes{};               // on a GPU without what is offloaded
  program::KeptBytes host_kept_bytes{};          // that
  std::vector<ReadyGradients> ready;  // in the order of the backward pass, times ascending
  int gradient_shape = 0;             // one number for equal elements of `ready`
  std::vector<LayerCost> layers;      // in that order, too; without what is shared
};

/// Where the groups are that a plan's tasks communicate over.
struct TaskGroups {
  GroupPlacement tp, cp, ep, etp, ep_within, ep_across;
};

/// Prices small pipelines and remembers them, and the chunks made of them.
class ChunkCosts {
 public:
  /// @param cluster, table  must outlive it
  ChunkCosts(const Cluster& cluster, const OperatorTable& table)
      : cluster_(cluster), table_(table) {}

  /// Forgets everything: plans of another task follow.
  void set_task(const program::Plan& plan);

  /// Is so much remembered that a search of many meshes should begin anew?
  bool is_full() const { return remembered_ > kMostRemembered; }
  /// Forgets all chunks and prices of the task: references to them end.
  void forget();

  /// The small pipelines of a plan, one for each kind of layer, all of whose layers are of that
  /// kind; the reference holds until set_task().
  struct Set;
  Set& set_of(const program::Plan& plan, const PlanKeys& keys,
              const program::RecomputedPart& recompute, TaskMix mix, const TaskGroups& groups);

  /// A virtual stage: its number, and which layers of the model it has. The last `plain_layers` of
  /// them do not recompute.
  struct Place {
    int number = 0;
    int first_layer = 0;
    int num_layers = 0;
    int plain_layers = 0;
  };
  /// @param plain  of the same plan without recompute; used if fewer than all layers recompute
  const ChunkCost& chunk_of(const program::Plan& plan, Set& set, Set* plain, const Place& place);

  /// A number for the elements of gradients, whatever their times.
  int shape_of(const std::vector<ReadyGradients>& gradients);

  /// Stages that are lowered and priced when they are first asked for.
  struct Pipeline {
    program::Plan plan;  // of two layers a stage
    program::LoweringProfile profile;
    TaskGroups groups;
    std::uint32_t context = 0;                          // of its prices: see BlockPricing
    CacheKey program;                                   // what its programs depend on
    std::map<std::pair<int, int>, StagePrices> stages;  // by class of layer and stage
  };
  /// Layers without experts cost the same whatever divides experts, so sets have theirs in common.
  struct PipelinePair {
    Pipeline* dense = nullptr;
    Pipeline* experts = nullptr;
  };
  struct Set {
    int num_stages = 1;   // of `ends`
    PipelinePair ends;    // with the embedding and the head as the plan's chunks have them
    PipelinePair middle;  // the stage between its ends says what a layer adds
    PipelinePair pairs;   // OverlappedFull: a stage that runs a forward and a backward together
    std::unordered_map<std::int64_t, ChunkCost> chunks;
  };

 private:
  /// Gradients and layers of chunks: some 100 bytes each, with the prices that they are made of.
  static constexpr std::size_t kMostRemembered = 400'000;
  /// Some 10 KB each. A search comes back to them: lowering and pricing takes most of its time.
  static constexpr std::size_t kMostPipelines = 5'000;

  /// How gradients pass a layer of a model that is frozen in parts.
  enum class Flow {
    Through,  // something below it is trained
    Ends,     // it is the lowest with something trained
    None,     // it is below that
  };
  /// Layers that cost the same.
  struct LayerClass {
    int kind = 0;              // of ModelGraph::kinds
    std::vector<bool> frozen;  // its parameters; empty = none
    Flow flow = Flow::Through;
    bool operator==(const LayerClass&) const = default;
  };
  void classify_layers(const program::Plan& plan);
  int class_of(LayerClass wanted);
  /// Class of the layers in the small pipeline to whose costs those of all other layers are added.
  int base_class(int layer);
  /// What is frozen in a small pipeline of such layers.
  program::FrozenPart frozen_part(int layer_class, int num_layers) const;
  bool has_experts(int layer_class) const;
  void describe(const PlanKeys& keys, const program::RecomputedPart& recompute, TaskMix mix,
                const TaskGroups& groups, int num_stages, bool experts);
  std::uint32_t context_of(const PlanKeys& keys, const TaskGroups& groups, bool experts);
  PipelinePair pipelines_of(const program::Plan& plan, const PlanKeys& keys,
                            const program::RecomputedPart& recompute, TaskMix mix,
                            const TaskGroups& groups, int num_stages);
  void forget_programs();
  /// A lowered stage of a small pipeline.
  struct Stage {
    program::Program program;
    OperationForms::Numbers forms;
  };
  const Stage& stage_of(const Pipeline& pipeline, int layer_class, int stage);
  const program::StageLowering& lowering_of(const Pipeline& pipeline, int layer_class);
  const StagePrices& prices(const PipelinePair& pipelines, int layer_class, int stage);

  const Cluster& cluster_;
  const OperatorTable& table_;
  std::size_t remembered_ = 0;
  models::ModelGraph graph_;
  std::vector<bool> kinds_with_experts_;
  std::vector<LayerClass> classes_;
  std::vector<int> layer_class_;          // by layer of the model
  std::vector<std::string> frozen_ends_;  // frozen parameters of embedding and head
  int lowest_trained_ = -1;
  OperationForms forms_;
  KnownPrices known_;  // of operations
  KnownOperations known_operations_;
  std::unordered_map<CacheKey, std::uint32_t, CacheKey::Hash> contexts_;  // numbers of them
  CacheKey key_, program_key_, shape_;
  /// Stages of the last plans, which differ in the size of micro-batches: lowering takes longest.
  std::unordered_map<CacheKey, Stage, CacheKey::Hash> programs_;
  std::unordered_map<CacheKey, program::StageLowering, CacheKey::Hash> lowerings_;  // of these
  CacheKey last_programs_;
  std::unordered_map<CacheKey, Pipeline, CacheKey::Hash> pipelines_;
  std::unordered_map<CacheKey, Set, CacheKey::Hash> sets_;
  std::unordered_map<CacheKey, int, CacheKey::Hash> shapes_;  // numbers of them
};

}  // namespace meshplan::sim
