#include <algorithm>
#include <map>
#include <numeric>

#include "core/error.hpp"
#include "sharded_layer.hpp"

namespace meshplan::program {
namespace {

std::size_t at(int id) {
  return static_cast<std::size_t>(id);
}

// When a gradient is complete decides where it lies.
enum class Readiness { Early, Expert, Tied, TpPartial };

struct Candidate {
  Parameter parameter;
  Readiness readiness = Readiness::Early;
  int ready_after_layer = 0;
  std::vector<std::pair<int, int>> users;  // (layer instance, index within the layer)
};

std::string full_name(const PlacedLayer& placed, const Parameter& parameter, bool tied) {
  const bool head_copy =
      tied && placed.prefix == "head." && parameter.name == "embed_tokens.weight";
  return (head_copy ? "embedding." : placed.prefix) + parameter.name;
}

}  // namespace

std::int64_t Parameter::elements() const {
  return std::accumulate(local_shape.begin(), local_shape.end(), std::int64_t{1},
                         std::multiplies<>());
}

ParameterOrder place_parameters(Program& program, const std::vector<PlacedLayer>& placed,
                                const std::vector<ShardedLayer>& sharded) {
  const bool tied = program.plan.model.tied_embeddings;
  // In a V one rank holds both ends of the model, and so one copy.
  const bool tied_over_stages = tied && program.plan.parallel.pp > 1 &&
                                !(program.role.first_stage && program.role.last_stage);
  std::vector<Candidate> candidates;
  std::map<std::string, std::size_t> by_name;
  for (int layer = static_cast<int>(placed.size()) - 1; layer >= 0; --layer) {
    const auto& parameters = sharded[at(placed[at(layer)].sharded)].parameters;
    for (int index = 0; index < static_cast<int>(parameters.size()); ++index) {
      Candidate candidate{.parameter = parameters[at(index)].parameter};
      candidate.parameter.name = full_name(placed[at(layer)], candidate.parameter, tied);
      const auto [entry, fresh] = by_name.try_emplace(candidate.parameter.name, candidates.size());
      if (fresh) candidates.push_back(candidate);
      Candidate& known = candidates[entry->second];
      known.ready_after_layer = layer;
      known.users.emplace_back(layer, index);
      const bool is_embedding = known.parameter.name == "embedding.embed_tokens.weight";
      if (known.parameter.expert) known.readiness = Readiness::Expert;
      if (known.parameter.tp_partial) known.readiness = Readiness::TpPartial;
      if (is_embedding && tied_over_stages) {
        known.readiness = Readiness::Tied;
        known.parameter.tied_copy = !program.role.first_stage;
      }
    }
  }
  std::ranges::stable_sort(candidates, [](const Candidate& a, const Candidate& b) {
    if (a.readiness != b.readiness) return a.readiness < b.readiness;
    return a.ready_after_layer > b.ready_after_layer;
  });

  ParameterOrder order;
  for (std::size_t layer = 0; layer < placed.size(); ++layer)
    program.layers[layer].parameters.resize(sharded[at(placed[layer].sharded)].parameters.size());
  std::int64_t offset = 0;
  for (Candidate& candidate : candidates) {
    FlatRange* const ranges[] = {&order.early, &order.experts, &order.tied, &order.tp_partial};
    FlatRange& range = *ranges[static_cast<std::size_t>(candidate.readiness)];
    if (range.size() == 0) range = {offset, offset};
    candidate.parameter.offset = offset;
    const std::int64_t elements = candidate.parameter.elements();
    offset += (elements + kAlignmentElements - 1) / kAlignmentElements * kAlignmentElements;
    range.end = offset;
    const int index = static_cast<int>(program.parameters.size());
    for (const auto& [layer, local] : candidate.users)
      program.layers[at(layer)].parameters[at(local)] = index;
    order.ready_after_layer.push_back(candidate.ready_after_layer);
    program.parameters.push_back(std::move(candidate.parameter));
  }
  program.parameter_elements = offset;
  return order;
}

namespace {

void append_buckets(const Program& program, const ParameterOrder& order, FlatRange range,
                    Group group, std::vector<Bucket>& buckets) {
  const std::size_t first = buckets.size();
  for (std::size_t i = 0; i < program.parameters.size(); ++i) {
    const Parameter& parameter = program.parameters[i];
    if (parameter.offset < range.begin || parameter.offset >= range.end) continue;
    const bool last =
        i + 1 == program.parameters.size() || program.parameters[i + 1].offset >= range.end;
    const std::int64_t end = last ? range.end : program.parameters[i + 1].offset;
    const bool full = buckets.size() > first && buckets.back().range.size() * size_of(DType::F32) >=
                                                    program.plan.bucket_bytes;
    if (buckets.size() == first || full)
      buckets.push_back({.range = {parameter.offset, end},
                         .ready_after_layer = order.ready_after_layer[i],
                         .group = group});
    buckets.back().range.end = end;
    buckets.back().ready_after_layer =
        std::min(buckets.back().ready_after_layer, order.ready_after_layer[i]);
  }
}

}  // namespace

std::vector<Bucket> make_buckets(const Program& program, const ParameterOrder& order) {
  std::vector<Bucket> buckets;
  append_buckets(program, order, order.early, Group::DpCp, buckets);
  append_buckets(program, order, order.experts, Group::ExpertDp, buckets);
  return buckets;
}

}  // namespace meshplan::program
