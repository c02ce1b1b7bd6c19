#include "certificate/shrink_layers.hpp"

#include <algorithm>
#include <numeric>
#include <set>

#include "core/index.hpp"

namespace meshplan::program {
namespace {

/// Layers that show every kind of the model: of attention, dense and with experts.
int least_layers(const models::ModelSpec& model) {
  if (!model.ffn_pattern.empty())
    return std::max(2, static_cast<int>(models::layers_of_each_kind(model).size()));
  const std::set<models::Mixer> kinds(model.layer_pattern.begin(), model.layer_pattern.end());
  const bool mixed = model.moe && !model.moe->dense_layers.empty();
  const int attentions = std::max<int>(1, static_cast<int>(kinds.size()));
  return std::max(2, attentions + (mixed ? 1 : 0));
}

/// The plan's virtual stage that stage `i` of `stages` stands for: the ends for the ends.
std::size_t stands_for(int i, int stages, std::size_t all) {
  if (stages == 1) return 0;
  const auto last = static_cast<int>(all) - 1;
  return static_cast<std::size_t>((i * last + (stages - 1) / 2) / (stages - 1));
}

/// Does a stage recompute some layers, but not all?
bool recomputes_partly(const Plan& plan) {
  if (plan.recompute.kind == RecomputeKind::None) return false;
  const std::vector<int> layers = resolved_layers_per_stage(plan);
  const std::vector<int> again = recomputed_layers_per_stage(plan);
  for (std::size_t i = 0; i < layers.size(); ++i)
    if (again[i] > 0 && again[i] < layers[i]) return true;
  return false;
}

/// Have two stages with layers unequally many?
bool is_uneven(const std::vector<int>& layers_per_stage) {
  std::set<int> some(layers_per_stage.begin(), layers_per_stage.end());
  some.erase(0);
  return some.size() > 1;
}

bool has_empty_stage(const Plan& plan) {
  return std::ranges::any_of(resolved_layers_per_stage(plan), [](int own) { return own == 0; });
}

/// As even as the plan's.
int evenly_divided_layers(const Plan& plan, int stages, int each) {
  const int least = least_layers(plan.model);
  if (stages == 1) return std::max(least, each);
  const int ends = plan.count_ends_as_layers ? 2 : 0;
  const bool even = (plan.model.num_layers + ends) % (plan.parallel.pp * plan.parallel.vpp) == 0;
  int units = stages * each + (even ? 0 : 1);
  while (units - ends < least) units += stages;
  return units - ends;
}

/// Stage by stage like the plan's.
std::vector<int> unevenly_divided_layers(const Plan& plan, int stages, int each) {
  const std::vector<int> all = resolved_layers_per_stage(plan);
  int fewest = plan.model.num_layers;
  for (const int layers : all)
    if (layers > 0) fewest = std::min(fewest, layers);
  std::vector<int> own;
  for (int i = 0; i < stages; ++i) {
    const int layers = all[stands_for(i, stages, all.size())];
    own.push_back(layers == 0 ? 0 : layers == fewest ? each : each + 1);
  }
  int& middle = own[at(stages / 2)];  // with two stages, both ends could be without layers
  if (middle == 0) middle = each;
  if (is_uneven(all) && !is_uneven(own)) ++middle;
  const int sum = std::accumulate(own.begin(), own.end(), 0);
  middle += std::max(0, least_layers(plan.model) - sum);
  return own;
}

std::vector<int> recomputed(const Plan& plan, const std::vector<int>& layers) {
  const std::vector<int> all = resolved_layers_per_stage(plan);
  const std::vector<int> again = recomputed_layers_per_stage(plan);
  std::vector<int> own;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const std::size_t stage =
        stands_for(static_cast<int>(i), static_cast<int>(layers.size()), all.size());
    const bool partly = again[stage] > 0 && again[stage] < all[stage];
    own.push_back(again[stage] == 0 ? 0 : partly ? std::max(1, layers[i] - 1) : layers[i]);
  }
  return own;
}

}  // namespace

ShrunkLayers shrunk_layers(const Plan& plan, int stages) {
  const bool partly = recomputes_partly(plan);
  const int each = partly ? 2 : 1;
  // As even as two layers a stage are, no end is without any.
  const bool by_stage = !plan.layers_per_stage.empty() || (partly && has_empty_stage(plan));
  ShrunkLayers shrunk{
      .recompute = {.kind = plan.recompute.kind, .modules = plan.recompute.modules}};
  if (stages == 1 || !by_stage) {
    shrunk.num_layers = evenly_divided_layers(plan, stages, each);
  } else {
    shrunk.layers_per_stage = unevenly_divided_layers(plan, stages, each);
    shrunk.num_layers =
        std::accumulate(shrunk.layers_per_stage.begin(), shrunk.layers_per_stage.end(), 0);
  }
  if (plan.recompute.kind == RecomputeKind::None) return shrunk;
  if (stages > 1 && !plan.recompute.layers_per_stage.empty()) {
    Plan divided = plan;
    divided.model.num_layers = shrunk.num_layers;
    divided.layers_per_stage = shrunk.layers_per_stage;
    divided.recompute = {};
    divided.parallel.pp = stages;
    divided.parallel.vpp = 1;
    shrunk.recompute.layers_per_stage = recomputed(plan, resolved_layers_per_stage(divided));
  } else if (partly) {
    shrunk.recompute.num_layers = 1;
  } else if (plan.recompute.num_layers == 0) {
    shrunk.recompute.num_layers = 0;
  }
  return shrunk;
}

}  // namespace meshplan::program
