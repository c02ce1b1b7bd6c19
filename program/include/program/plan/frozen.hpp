// Which parameters a plan trains (docs/fine_tuning/frozen_parameters.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/graph.hpp"

namespace meshplan::program {

/// A parameter as Program::parameters names it. @param prefix  of its layer: "embedding.",
/// "layers.7.", "head."; the embedding's weight keeps its name where a tied head or a prediction
/// module reads it
std::string parameter_name(std::string_view prefix, std::string_view name);

/// "layers.7."
std::string layer_prefix(int layer);

/// Does a pattern of Plan::frozen (without its '!') name this parameter, or a module that holds it?
/// '*' stands for any characters, dots included; where a part between dots is 'a-b', it stands for
/// the numbers from a to b. "layers.0-3" and "layers.0-3.*" mean the same.
bool matches_parameter(std::string_view pattern, std::string_view name);

/// What is frozen in a part of a model that is lowered by itself: gradients pass it as they do in
/// the whole.
struct FrozenPart {
  std::vector<std::string> patterns;  // as Plan::frozen
  int lowest_trained = -1;            // as FrozenParameters::lowest_trained()
};

/// What a plan leaves to train.
class FrozenParameters {
 public:
  /// @param patterns  Plan::frozen
  FrozenParameters(std::vector<std::string> patterns, const models::ModelGraph& graph);
  /// As a part of a model, given the lowest trained layer.
  explicit FrozenParameters(const FrozenPart& part)
      : patterns_(part.patterns), lowest_trained_(part.lowest_trained) {}

  /// The last pattern that matches decides; '!' before it = trained after all.
  bool contains(std::string_view name) const;

  /// Which parameters of a layer are frozen, in the order of its graph.
  std::vector<bool> mask(const models::LayerGraph& layer, std::string_view prefix) const;

  /// The lowest layer with something that a gradient moves: -1 the embedding, num_layers the head;
  /// none if all is frozen. Below it nothing is differentiated.
  std::optional<int> lowest_trained() const { return lowest_trained_; }

  /// Is the layer at or above the lowest trained one?
  bool has_backward(int layer) const { return lowest_trained_ && layer >= *lowest_trained_; }
  /// Is anything below it trained?
  bool needs_input_gradient(int layer) const { return lowest_trained_ && layer > *lowest_trained_; }

 private:
  bool trains(const models::LayerGraph& layer, std::string_view prefix) const;

  std::vector<std::string> patterns_;
  std::optional<int> lowest_trained_;
};

/// Names of all parameters of a model, in the order of the forward pass.
std::vector<std::string> parameter_names(const models::ModelGraph& graph);

/// Elements of the parameters that are frozen; a tied embedding counts once.
std::int64_t frozen_elements(const std::vector<std::string>& patterns,
                             const models::ModelGraph& graph);

/// What is wrong with patterns for a model: those that match nothing, with the nearest names, a '!'
/// before anything is frozen, or that all is.
std::vector<std::string> frozen_errors(const std::vector<std::string>& patterns,
                                       const models::ModelSpec& model);

}  // namespace meshplan::program
