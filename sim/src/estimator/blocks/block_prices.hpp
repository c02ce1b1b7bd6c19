#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "estimator/blocks/operation_forms.hpp"
#include "estimator/cost_sums.hpp"
#include "prices/operator_table.hpp"
#include "program/lower/lower.hpp"
#include "sim/clusters/cluster.hpp"
#include "sim/prices/pricing.hpp"

namespace meshplan::sim {

/// Time of a task, or of one layer's part of it. What is not forward, recompute or backward is
/// exposed communication; `idle` is the part of it in which the rank holds no core.
struct TaskTime {
  double operations = 0;  // that the host issues
  double seconds = 0;
  double forward = 0;
  double recompute = 0;
  double backward = 0;
  double idle = 0;
  double moving = 0;   // seconds of its communication, hidden or not
  double context = 0;  // the part of these that goes over the cp group
  double experts = 0;  // the part that goes between experts
  double link = 0;     // see BusyTime::link
  double host = 0;     // waiting for copies of offloaded activations

  /// this + times * other
  TaskTime plus(double times, const TaskTime& other) const {
    return {operations + times * other.operations,
            seconds + times * other.seconds,
            forward + times * other.forward,
            recompute + times * other.recompute,
            backward + times * other.backward,
            idle + times * other.idle,
            moving + times * other.moving,
            context + times * other.context,
            experts + times * other.experts,
            link + times * other.link,
            host + times * other.host};
  }
};

/// A parameter whose gradient is reduced as soon as it is ready.
struct GradientPart {
  std::int64_t elements = 0;
  bool expert = false;
  bool shared = false;  // by two layers of the stage
};
/// Parameters of one layer instance.
using BucketParts = std::vector<GradientPart>;
/// Frozen elements of one layer instance that no other one, here or on another stage, reads.
struct FrozenElements {
  double dense = 0;
  double experts = 0;
};

/// Tasks of a chunk. The first backward and weight gradient write gradients, others add. A full
/// backward of a program that splits them is the sum of its halves.
struct TaskTimes {
  TaskTime forward, backward_first, backward, input, weight_first, weight;
  double overlap_saves = 0;  // of forward and backward, where they run together

  /// this + times * other
  TaskTimes plus(double times, const TaskTimes& other) const {
    return {forward.plus(times, other.forward),
            backward_first.plus(times, other.backward_first),
            backward.plus(times, other.backward),
            input.plus(times, other.input),
            weight_first.plus(times, other.weight_first),
            weight.plus(times, other.weight),
            overlap_saves + times * other.overlap_saves};
  }
};

/// What the stages of a small pipeline say about a stage: everything for its own number of layers,
/// and what one layer more adds.
struct StagePrices {
  int num_layers = 0;
  TaskTimes tasks;
  double prelude = 0;  // of a backward: recomputed before the next stage's gradient is needed
  CostSums sums;
  SlotBytes slots;
  double load_seconds = 0;
  double frozen_tied_elements = 0;  // frozen ones that the other end of the pipeline has, too
  double tied_elements = 0;         // reduced with the other end of the pipeline
  program::KeptBytes kept_bytes{};  // of one micro-batch
  std::vector<BucketParts> parts;   // in the order of the backward pass: head, layers, embedding
  std::vector<FrozenElements> frozen_parts;  // in the same order
  std::size_t first_layer_part = 0;          // index in `parts` of a layer, to be repeated

  TaskTimes layer_tasks;
  CostSums layer_sums;
  std::vector<std::int64_t> layer_copied_parts;  // runs of key/value heads summed over holders
  program::KeptBytes layer_kept_bytes{};
};

/// Operations that were priced before, by signature: parsing one takes longer than finding it.
struct KnownPrice {
  double flops = 0;
  double bytes = 0;
  double seconds = 0;
};
using KnownPrices = std::unordered_map<std::string, KnownPrice>;

/// Seconds of an operation.
struct OperationPrice {
  double seconds = 0;
  double at_bandwidth = 0;  // of communication: if the message were large
  double wake = 0;          // the part until the rank runs again
};
/// Of operations of layers, by BlockPricing::context, form and whether they accumulate: a signature
/// takes longer than finding them.
using KnownOperations = std::unordered_map<std::uint64_t, OperationPrice>;

/// How operations are priced while a stage is summed up.
struct BlockPricing {
  const Cluster* cluster = nullptr;
  const OperatorTable* table = nullptr;
  KnownPrices* known = nullptr;  // of this cluster and table
  KnownOperations* known_operations = nullptr;
  std::uint32_t context = 0;  // a number for all that the prices of equal forms depend on
  GroupPlacement tp;          // of a tensor-parallel group
  GroupPlacement cp;          // of a context-parallel group
  GroupPlacement ep;          // of ranks that exchange tokens, and of those that share experts
  GroupPlacement etp;
  GroupPlacement ep_within;  // of those of a node
  GroupPlacement ep_across;  // of those of the same place in their nodes
};

/// While all cores of a CPU host are busy with the same operation, its memory bandwidth limits
/// them.
double seconds_on_busy_host(const Price& price, const Cluster& cluster);

/// @param program  one stage of the small pipeline, at least two micro-batches, with tasks of all
/// the kinds that are asked of it
/// @param forms  of its operations
StagePrices price_stage(const program::Program& program, const OperationForms::Numbers& forms,
                        const BlockPricing& pricing);

}  // namespace meshplan::sim
