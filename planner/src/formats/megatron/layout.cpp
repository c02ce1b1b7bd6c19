#include "formats/megatron/layout.hpp"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <functional>

#include "core/error.hpp"
#include "core/limits.hpp"

namespace meshplan::planner::megatron {
namespace {

constexpr std::size_t kMostLayoutText = std::size_t{1} << 18;
constexpr int kMostLayoutPasses = 64;

/// "t*5", "tt", "t", "".
std::string layers_text(int layers) {
  if (layers > 3) return fmt::format("t*{}", layers);
  return std::string(static_cast<std::size_t>(layers), 't');
}

std::size_t repetition(std::string_view text, std::size_t& at) {
  std::size_t times = 0;
  const auto [end, error] = std::from_chars(text.data() + at, text.data() + text.size(), times);
  if (error != std::errc()) throw ConfigError("expected a number behind '*'");
  at = static_cast<std::size_t>(end - text.data());
  return times;
}

/// One pass of Megatron's substitution: "(...)*n" where `groups`, else "x*n".
std::string unrolled(std::string_view text, bool groups) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = at + 1;
    std::string_view repeated = text.substr(at, 1);
    if (groups && text[at] == '(') {
      const auto close = text.find(')', at);
      if (close == std::string_view::npos) throw ConfigError("'(' without ')'");
      repeated = text.substr(at + 1, close - at - 1);
      end = close + 1;
    }
    const bool is_repeated = end < text.size() && text[end] == '*' && (!groups || text[at] == '(');
    std::size_t times = 1;
    if (is_repeated) times = repetition(text, ++end);
    if (groups && text[at] == '(' && !is_repeated)
      throw ConfigError("'(...)' needs '*' and a number");
    if (times > kMostLayoutText || result.size() + repeated.size() * times > kMostLayoutText)
      throw ConfigError(fmt::format("it grows beyond {} characters", kMostLayoutText));
    for (std::size_t i = 0; i < times; ++i) result += repeated;
    at = end;
  }
  return result;
}

}  // namespace

Division division_of(const program::Plan& plan) {
  const std::vector<int> layers = resolved_layers_per_stage(plan);
  const auto same = [](auto begin, auto end) {
    return std::adjacent_find(begin, end, std::not_equal_to<>()) == end;
  };
  if (same(layers.begin(), layers.end())) return Division::Even;
  const bool has_middle = layers.size() > 2;
  const bool even_middle = same(layers.begin() + 1, layers.end() - 1);
  const int each = has_middle ? layers[1] : layers.front() + 1;
  if (even_middle && layers.front() + 1 == each && layers.back() + 1 == each)
    return Division::Accounted;
  if (even_middle && plan.parallel.vpp == 1 && layers.front() > 0 && layers.back() > 0)
    return Division::Ends;
  return Division::Layout;
}

std::string layout_text(const std::vector<int>& layers_per_stage) {
  if (layers_per_stage.size() == 1) return "E" + layers_text(layers_per_stage.front()) + "L";
  std::string text = "E" + layers_text(layers_per_stage.front()) + "|";
  const auto last = layers_per_stage.end() - 1;
  for (auto begin = layers_per_stage.begin() + 1; begin != last;) {
    const auto end = std::find_if(begin, last, [&](int layers) { return layers != *begin; });
    const std::string stage = layers_text(*begin) + "|";
    text += end - begin == 1 ? stage : fmt::format("({})*{}", stage, end - begin);
    begin = end;
  }
  return text + layers_text(*last) + "L";
}

ParsedLayout parse_layout(std::string_view given) {
  std::string text(given);
  std::erase(text, ',');
  for (int pass = 0; text.find('(') != std::string::npos; ++pass) {
    if (pass > kMostLayoutPasses) throw ConfigError("its parentheses nest too deep");
    text = unrolled(text, true);
  }
  if (text.find(')') != std::string::npos) throw ConfigError("')' without '('");
  text = unrolled(text, false);
  ParsedLayout parsed{.layers_per_stage = {0}};
  for (const char c : text) {
    if (c == '|')
      parsed.layers_per_stage.push_back(0);
    else if (c == 't')
      ++parsed.layers_per_stage.back();
    else if (c == 'm')
      ++parsed.mtp_layers;
    else if (c != 'E' && c != 'L')
      throw ConfigError(fmt::format("'{}' is none of E, t, m, L and |", c));
  }
  if (!text.starts_with('E') || !text.ends_with('L'))
    throw ConfigError("it begins with E, the embedding, and ends with L, the loss");
  return parsed;
}

}  // namespace meshplan::planner::megatron
