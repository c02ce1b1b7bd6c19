#include "lower/place_parameters.hpp"

#include <algorithm>
#include <map>
#include <numeric>

#include "core/error.hpp"
#include "core/index.hpp"
#include "program/compression/compression.hpp"
#include "program/plan/frozen.hpp"

namespace meshplan::program {
namespace {

// When a gradient is complete decides where it lies. With ZeRO-2 and 3, what several layers use is
// not streamed with any of them. Frozen parameters come last: there are weights of them only.
enum class Readiness {
  Early,
  Expert,
  Tied,
  Shared,
  TpPartial,
  Untrained,
  FrozenWhole,  // with ZeRO-3: of several layers or stages
  Frozen,
  FrozenExpert,
};

struct Candidate {
  Parameter parameter;
  Readiness readiness = Readiness::Early;
  int ready_after_layer = 0;
  std::vector<std::pair<int, int>> users;  // (layer instance, index within the layer)
};

/// Is it reduced, or with ZeRO-3 gathered, with the layers of its unit?
bool is_streamed(const Plan& plan, Readiness readiness) {
  if (readiness <= Readiness::Expert) return plan.zero_stage >= 2;
  return readiness >= Readiness::Frozen && plan.zero_stage == 3;
}

// Lays parameters one after another and cuts them into buckets.
class BucketCutter {
 public:
  BucketCutter(Program& program, bool bucketed)
      : program_(program), bucketed_(bucketed), alignment_(parameter_alignment(program.plan)) {}

  /// @returns where the parameter lies
  std::int64_t add(const Candidate& candidate) {
    const bool expert =
        candidate.readiness == Readiness::Expert || candidate.readiness == Readiness::FrozenExpert;
    const bool frozen = candidate.parameter.frozen;
    const bool late = candidate.readiness > Readiness::Expert;
    const bool trained = candidate.parameter.trained;
    const std::optional<int> unit = is_streamed(program_.plan, candidate.readiness)
                                        ? unit_of(candidate.ready_after_layer)
                                        : std::nullopt;
    if (!open_ || current().expert() != expert || current().late != late ||
        current().unit != unit || current().trained != trained || current().frozen != frozen ||
        is_full()) {
      close();
      begin(expert, late, unit);
      current().trained = trained;
      current().frozen = frozen;
      if (!trained && !unit) keep_whole();
    }
    const std::int64_t offset = current().range.end;
    const std::int64_t elements = candidate.parameter.elements();
    current().range.end += (elements + alignment_ - 1) / alignment_ * alignment_;
    current().ready_after_layer =
        std::min(current().ready_after_layer, candidate.ready_after_layer);
    return offset;
  }

  /// Every rank's part begins on an aligned element, so the last one is filled up with zeros.
  void close() {
    if (!open_) return;
    open_ = false;
    Bucket& bucket = current();
    const int parts = bucket_parts(program_.plan, bucket);
    const std::int64_t block = parts * alignment_;
    if (parts > 1)
      bucket.range.end = bucket.range.begin + (bucket.range.size() + block - 1) / block * block;
    program_.parameter_elements = bucket.range.end;
    if (!bucket.unit) return;
    Unit& unit = program_.units[at(*bucket.unit)];
    bucket.unit_begin = unit.elements;
    unit.elements += bucket.range.size();
    if (bucket.trained) unit.trained_elements = unit.elements;  // what is frozen comes behind
    unit.buckets.push_back(static_cast<int>(program_.buckets.size()) - 1);
  }

 private:
  Bucket& current() { return program_.buckets.back(); }

  bool is_full() {
    return bucketed_ && !current().late && !current().unit &&
           current().range.size() * size_of(DType::F32) >= program_.plan.bucket_bytes;
  }

  /// What no gradient moves, and no unit gathers, is on every rank.
  void keep_whole() {
    current().shards = 1;
    current().shard_group = current().group;
    current().replicas.reset();
  }

  std::optional<int> unit_of(int layer) const {
    for (std::size_t i = 0; i < program_.units.size(); ++i)
      if (layer >= program_.units[i].first_layer && layer < program_.units[i].end_layer)
        return static_cast<int>(i);
    return std::nullopt;
  }

  void begin(bool expert, bool late, std::optional<int> unit) {
    const Plan& plan = program_.plan;
    Bucket bucket{.range = {program_.parameter_elements, program_.parameter_elements},
                  .group = expert ? Group::ExpertDp : Group::DpCp,
                  .unit = unit,
                  .ready_after_layer = static_cast<int>(program_.layers.size()),
                  .late = late};
    bucket.shard_group = bucket.group;
    if (plan.zero_stage > 0) {
      const Group shards = expert ? Group::ExpertZeroShards : Group::ZeroShards;
      const Group replicas = expert ? Group::ExpertZeroReplicas : Group::ZeroReplicas;
      bucket.shards = group_size(shards, plan);
      if (group_size(replicas, plan) > 1) {
        bucket.shard_group = shards;
        bucket.replicas = replicas;
      }
    }
    if (!program_.buckets.empty()) {
      const Bucket& before = current();
      bucket.owned_begin = before.owned_begin + before.owned_elements();
      bucket.owned_streamed_begin = before.owned_streamed_begin +
                                    (before.unit ? before.owned_elements() : before.range.size());
    }
    program_.buckets.push_back(bucket);
    open_ = true;
  }

  Program& program_;
  bool bucketed_;
  std::int64_t alignment_;  // elements
  bool open_ = false;
};

std::vector<Candidate> candidates_of(const Program& program, const std::vector<PlacedLayer>& placed,
                                     const std::vector<ShardedLayer>& sharded) {
  // In a V one rank holds both ends of the model, and so one copy.
  const bool tied_over_stages = models::ending_reads_embedding(program.plan.model) &&
                                program.plan.parallel.pp > 1 &&
                                !(program.role.first_stage && program.role.last_stage);
  std::vector<Candidate> candidates;
  std::map<std::string, std::size_t> by_name;
  for (int layer = static_cast<int>(placed.size()) - 1; layer >= 0; --layer) {
    const auto& parameters = sharded[at(placed[at(layer)].sharded)].parameters;
    for (int index = 0; index < static_cast<int>(parameters.size()); ++index) {
      Candidate candidate{.parameter = parameters[at(index)].parameter};
      candidate.parameter.name = parameter_name(placed[at(layer)].prefix, candidate.parameter.name);
      const auto [entry, fresh] = by_name.try_emplace(candidate.parameter.name, candidates.size());
      if (fresh) candidates.push_back(candidate);
      Candidate& known = candidates[entry->second];
      known.ready_after_layer = layer;
      known.users.emplace_back(layer, index);
      const bool is_embedding = known.parameter.name == "embedding.embed_tokens.weight";
      if (program.plan.zero_stage >= 2 && !fresh) known.readiness = Readiness::Shared;
      if (known.parameter.expert) known.readiness = Readiness::Expert;
      if (known.parameter.tp_partial) known.readiness = Readiness::TpPartial;
      if (!known.parameter.trained) known.readiness = Readiness::Untrained;
      if (is_embedding && tied_over_stages) {
        known.readiness = Readiness::Tied;
        known.parameter.tied_copy = !program.role.first_stage;
      }
      if (!known.parameter.frozen) continue;
      const bool several = known.users.size() > 1 || known.readiness == Readiness::Tied;
      known.readiness = several && program.plan.zero_stage == 3 ? Readiness::FrozenWhole
                        : known.parameter.expert                ? Readiness::FrozenExpert
                                                                : Readiness::Frozen;
    }
  }
  std::ranges::stable_sort(candidates, [](const Candidate& a, const Candidate& b) {
    if (a.readiness != b.readiness) return a.readiness < b.readiness;
    return a.ready_after_layer > b.ready_after_layer;
  });
  return candidates;
}

/// Layers of a chunk from its last to its first, until what is streamed of them fills a bucket of
/// fp32 gradients.
void make_units(Program& program, const std::vector<Candidate>& candidates) {
  std::vector<std::int64_t> elements(program.layers.size(), 0);
  for (const Candidate& candidate : candidates)
    if (is_streamed(program.plan, candidate.readiness))
      elements[at(candidate.ready_after_layer)] += candidate.parameter.elements();
  for (int chunk = static_cast<int>(program.chunks.size()) - 1; chunk >= 0; --chunk) {
    std::int64_t size = 0;
    int end = program.chunks[at(chunk)].end_layer;
    for (int layer = end - 1; layer >= program.chunks[at(chunk)].first_layer; --layer) {
      size += elements[at(layer)] * size_of(DType::F32);
      const bool full = size >= program.plan.bucket_bytes;
      if (!full && layer > program.chunks[at(chunk)].first_layer) continue;
      program.units.push_back({.first_layer = layer, .end_layer = end, .buckets = {}});
      end = layer;
      size = 0;
    }
  }
}

}  // namespace

ParameterOrder place_parameters(Program& program, const std::vector<PlacedLayer>& placed,
                                const std::vector<ShardedLayer>& sharded,
                                const LoweringProfile& profile) {
  ParameterOrder order;
  for (std::size_t layer = 0; layer < placed.size(); ++layer)
    program.layers[layer].parameters.resize(sharded[at(placed[layer].sharded)].parameters.size());
  std::vector<Candidate> candidates = candidates_of(program, placed, sharded);
  if (program.plan.zero_stage >= 2) make_units(program, candidates);
  BucketCutter cutter(program, profile.bucketed_gradients);
  for (Candidate& candidate : candidates) {
    candidate.parameter.offset = cutter.add(candidate);
    candidate.parameter.bucket = static_cast<int>(program.buckets.size()) - 1;
    FlatRange* range = nullptr;
    if (candidate.readiness == Readiness::Tied) range = &order.tied;
    if (candidate.readiness == Readiness::TpPartial) range = &order.tp_partial;
    if (range != nullptr) {
      if (range->size() == 0) range->begin = candidate.parameter.offset;
      range->end = program.buckets.back().range.end;
    }
    const int index = static_cast<int>(program.parameters.size());
    for (const auto& [layer, local] : candidate.users)
      program.layers[at(layer)].parameters[at(local)] = index;
    program.parameters.push_back(std::move(candidate.parameter));
  }
  cutter.close();
  return order;
}

}  // namespace meshplan::program
