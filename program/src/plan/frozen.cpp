#include "program/plan/frozen.hpp"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/error.hpp"
#include "core/index.hpp"

namespace meshplan::program {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

/// Takes a number from the front of `text`.
std::optional<int> take_number(std::string_view& text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || text.empty() || !is_digit(text.front())) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return number;
}

bool ends_part(std::string_view text) {
  return text.empty() || text.front() == '.';
}

struct Range {
  int first = 0;
  int last = 0;
};

/// Takes a whole part 'a-b' from the front of a pattern.
std::optional<Range> take_range(std::string_view& pattern) {
  std::string_view rest = pattern;
  const auto first = take_number(rest);
  if (!first || rest.empty() || rest.front() != '-') return std::nullopt;
  rest.remove_prefix(1);
  const auto last = take_number(rest);
  if (!last || !ends_part(rest)) return std::nullopt;
  pattern = rest;
  return Range{*first, *last};
}

/// @param begins_part  both begin, or follow a dot
bool matches(std::string_view pattern, std::string_view name, bool begins_part) {
  if (pattern.empty()) return ends_part(name);
  if (pattern.front() == '*') {
    for (std::size_t skip = 0; skip <= name.size(); ++skip)
      if (matches(pattern.substr(1), name.substr(skip), false)) return true;
    return false;
  }
  if (begins_part) {
    std::string_view rest = pattern, other = name;
    if (const auto range = take_range(rest)) {
      const auto number = take_number(other);
      return number && ends_part(other) && *number >= range->first && *number <= range->last &&
             matches(rest, other, false);
    }
  }
  return !name.empty() && pattern.front() == name.front() &&
         matches(pattern.substr(1), name.substr(1), name.front() == '.');
}

template <class Visit>
void for_each_layer(const models::ModelGraph& graph, Visit visit) {
  const int num_layers = static_cast<int>(graph.layer_kind.size());
  visit(-1, graph.embedding, std::string("embedding."));
  for (int layer = 0; layer < num_layers; ++layer) {
    const int kind = graph.layer_kind[at(layer)];
    visit(layer, graph.kinds[static_cast<std::size_t>(kind)], layer_prefix(layer));
  }
  visit(num_layers, graph.ending, std::string("head."));
}

}  // namespace

std::string parameter_name(std::string_view prefix, std::string_view name) {
  const bool copy = prefix == "head." && name == "embed_tokens.weight";
  return fmt::format("{}{}", copy ? "embedding." : prefix, name);
}

std::string layer_prefix(int layer) {
  return fmt::format("layers.{}.", layer);
}

bool matches_parameter(std::string_view pattern, std::string_view name) {
  return !pattern.empty() && matches(pattern, name, true);
}

FrozenParameters::FrozenParameters(std::vector<std::string> patterns,
                                   const models::ModelGraph& graph)
    : patterns_(std::move(patterns)) {
  if (patterns_.empty()) {
    lowest_trained_ = -1;
    return;
  }
  for_each_layer(graph, [&](int layer, const models::LayerGraph& own, const std::string& prefix) {
    if (!lowest_trained_ && trains(own, prefix)) lowest_trained_ = layer;
  });
}

bool FrozenParameters::contains(std::string_view name) const {
  for (auto pattern = patterns_.rbegin(); pattern != patterns_.rend(); ++pattern) {
    const bool keeps = pattern->starts_with('!');
    if (matches_parameter(std::string_view(*pattern).substr(keeps ? 1 : 0), name)) return !keeps;
  }
  return false;
}

std::vector<bool> FrozenParameters::mask(const models::LayerGraph& layer,
                                         std::string_view prefix) const {
  std::vector<bool> frozen;
  if (patterns_.empty()) return frozen;
  for (const models::Tensor& tensor : layer.tensors)
    if (tensor.tensor_class == models::TensorClass::Parameter)
      frozen.push_back(contains(parameter_name(prefix, tensor.name)));
  return frozen;
}

bool FrozenParameters::trains(const models::LayerGraph& layer, std::string_view prefix) const {
  return std::ranges::any_of(layer.tensors, [&](const models::Tensor& tensor) {
    return tensor.tensor_class == models::TensorClass::Parameter && tensor.trained &&
           !contains(parameter_name(prefix, tensor.name));
  });
}

std::vector<std::string> parameter_names(const models::ModelGraph& graph) {
  std::vector<std::string> names;
  for_each_layer(graph, [&](int, const models::LayerGraph& layer, const std::string& prefix) {
    for (const models::Tensor& tensor : layer.tensors)
      if (tensor.tensor_class == models::TensorClass::Parameter) {
        std::string name = parameter_name(prefix, tensor.name);
        if (name.starts_with(prefix)) names.push_back(std::move(name));  // else a copy
      }
  });
  return names;
}

namespace {

/// The names most like a pattern that matches none, at most three, without their layers' numbers.
std::vector<std::string> nearest_parameters(std::string_view pattern,
                                            const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 3;
  // A name, its modules, and the same in all layers: whichever of them the pattern is most like.
  std::vector<std::string> choices;
  const auto add = [&](std::string choice) {
    if (std::ranges::find(choices, choice) == choices.end()) choices.push_back(std::move(choice));
  };
  for (const std::string& name : names) {
    std::string every = name;
    if (name.starts_with("layers.")) every = "layers.*" + name.substr(name.find('.', 7));
    for (std::size_t end = every.find('.'); end != std::string::npos;
         end = every.find('.', end + 1))
      if (every.substr(0, end) != "layers") add(every.substr(0, end));
    add(every);
  }
  std::vector<std::string> nearest;
  while (nearest.size() < kMost && !choices.empty()) {
    nearest.push_back(nearest_choice(pattern, choices));
    std::erase(choices, nearest.back());
  }
  return nearest;
}

}  // namespace

std::int64_t frozen_elements(const std::vector<std::string>& patterns,
                             const models::ModelGraph& graph) {
  const FrozenParameters frozen(patterns, graph);
  std::int64_t elements = 0;
  for_each_layer(graph, [&](int, const models::LayerGraph& layer, const std::string& prefix) {
    for (const models::Tensor& tensor : layer.tensors) {
      if (tensor.tensor_class != models::TensorClass::Parameter) continue;
      const std::string name = parameter_name(prefix, tensor.name);
      if (!name.starts_with(prefix) || !frozen.contains(name)) continue;
      std::int64_t size = 1;
      for (const models::Dim& dim : tensor.shape) size *= models::evaluate(dim, {});
      elements += size;
    }
  });
  return elements;
}

std::vector<std::string> frozen_errors(const std::vector<std::string>& patterns,
                                       const models::ModelSpec& model) {
  std::vector<std::string> errors;
  const models::ModelGraph graph = models::build_graph(model);
  const std::vector<std::string> names = parameter_names(graph);
  for (const std::string& pattern : patterns) {
    const std::string plain = pattern.starts_with('!') ? pattern.substr(1) : pattern;
    const bool found = std::ranges::any_of(
        names, [&](const std::string& name) { return matches_parameter(plain, name); });
    if (!found)
      errors.push_back(fmt::format("frozen '{}' is no parameter of {}; nearest: {}", pattern,
                                   model.name, fmt::join(nearest_parameters(plain, names), ", ")));
  }
  if (!patterns.empty() && patterns.front().starts_with('!'))
    errors.push_back(fmt::format(
        "frozen [{}] begins with '{}', which takes nothing back: all is trained until a pattern "
        "without '!' freezes it; nearest: '*,{}'",
        fmt::join(patterns, ", "), patterns.front(), fmt::join(patterns, ",")));
  if (errors.empty() && !FrozenParameters(patterns, graph).lowest_trained())
    errors.push_back(fmt::format(
        "frozen [{}] leaves nothing of {} to train; add what to train after all, such as '!head'",
        fmt::join(patterns, ", "), model.name));
  return errors;
}

}  // namespace meshplan::program
