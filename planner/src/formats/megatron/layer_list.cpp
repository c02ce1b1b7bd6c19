#include "formats/megatron/layer_list.hpp"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/error.hpp"
#include "core/limits.hpp"

namespace meshplan::planner::megatron {
namespace {

constexpr int kMostParenthesesOfList = 32;
constexpr std::size_t kMostPeriod = 8;  // of a pattern that is written as such

/// Sums and multiples of lists.
class LayerListParser {
 public:
  explicit LayerListParser(std::string_view text) : text_(text) {}

  std::vector<int> run() {
    std::vector<int> values = sum(0);
    skip_blanks();
    if (at_ < text_.size()) fail();
    return values;
  }

 private:
  [[noreturn]] static void fail() {
    throw ConfigError("expected a list of layers such as '([0]*3+[1]*58)'");
  }
  void skip_blanks() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool take(char c) {
    skip_blanks();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool next_is_number() {
    skip_blanks();
    return at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9';
  }
  int number() {
    skip_blanks();
    int value = 0;
    const auto [end, error] =
        std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error != std::errc() || value < 0 || value > limits::kLayers) fail();
    at_ = static_cast<std::size_t>(end - text_.data());
    return value;
  }

  std::vector<int> sum(int level) {
    std::vector<int> values = product(level);
    while (take('+')) {
      const std::vector<int> more = product(level);
      values.insert(values.end(), more.begin(), more.end());
      check_size(values.size());
    }
    return values;
  }

  std::vector<int> product(int level) {
    if (next_is_number()) {
      const int times = number();
      if (!take('*')) fail();
      return repeated(factor(level), times);
    }
    std::vector<int> values = factor(level);
    while (take('*')) values = repeated(values, number());
    return values;
  }

  std::vector<int> factor(int level) {
    if (level > kMostParenthesesOfList) fail();
    if (take('(')) {
      std::vector<int> values = sum(level + 1);
      if (!take(')')) fail();
      return values;
    }
    if (!take('[')) fail();
    std::vector<int> values;
    if (take(']')) return values;
    do {
      values.push_back(number());
      check_size(values.size());
    } while (take(','));
    if (!take(']')) fail();
    return values;
  }

  static std::vector<int> repeated(const std::vector<int>& values, int times) {
    check_size(values.size() * static_cast<std::size_t>(times));
    std::vector<int> all;
    for (int i = 0; i < times; ++i) all.insert(all.end(), values.begin(), values.end());
    return all;
  }
  static void check_size(std::size_t size) {
    if (size > static_cast<std::size_t>(limits::kLayers))
      throw ConfigError(fmt::format("it lists more than {} layers", limits::kLayers));
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace

std::vector<int> repeated_part(const std::vector<int>& values) {
  std::size_t period = 1;
  const auto repeats = [&] {
    for (std::size_t i = period; i < values.size(); ++i)
      if (values[i] != values[i - period]) return false;
    return true;
  };
  while (period < values.size() && !repeats()) ++period;
  return {values.begin(),
          values.begin() + static_cast<std::ptrdiff_t>(std::min(period, values.size()))};
}

std::vector<int> read_layer_list(const Reading& reading, const Argument& given, int num_layers,
                                 const std::function<int(int, std::int64_t)>& of_number) {
  std::vector<int> values(static_cast<std::size_t>(num_layers));
  if (reading.text(given).find('[') == std::string::npos) {
    const std::int64_t number = reading.integer(given, 1, limits::kLayers);
    for (int layer = 0; layer < num_layers; ++layer)
      values[static_cast<std::size_t>(layer)] = of_number(layer, number);
    return values;
  }
  try {
    values = parse_layer_list(reading.text(given));
  } catch (const ConfigError& error) {
    Reading::fail(given, error.what());
  }
  if (static_cast<int>(values.size()) != num_layers)
    Reading::fail(
        given, fmt::format("lists {} layers, but --num-layers is {}", values.size(), num_layers));
  return values;
}

int zero_at_last(int layer, std::int64_t every) {
  return (std::int64_t{layer} + 1) % every == 0 ? 0 : 1;
}

std::string layer_list_text(const std::vector<int>& values) {
  for (std::size_t period = 2; period <= kMostPeriod && period < values.size(); ++period) {
    bool repeats = values.size() % period == 0;
    for (std::size_t i = period; repeats && i < values.size(); ++i)
      repeats = values[i] == values[i - period];
    const bool varies = values.front() != values[period - 1];
    if (repeats && varies)
      return fmt::format(
          "([{}]*{})",
          fmt::join(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(period), ","),
          values.size() / period);
  }
  std::vector<std::string> runs;
  for (std::size_t begin = 0; begin < values.size();) {
    std::size_t end = begin;
    while (end < values.size() && values[end] == values[begin]) ++end;
    runs.push_back(fmt::format("[{}]*{}", values[begin], end - begin));
    begin = end;
  }
  return fmt::format("({})", fmt::join(runs, "+"));
}

std::vector<int> parse_layer_list(std::string_view text) {
  return LayerListParser(text).run();
}

}  // namespace meshplan::planner::megatron
