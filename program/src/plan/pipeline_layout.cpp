#include "program/plan/pipeline_layout.hpp"

#include <charconv>
#include <fmt/format.h>

#include "core/error.hpp"
#include "core/limits.hpp"

namespace meshplan::program {
namespace {

constexpr std::string_view kCharacters = "Etm|L";
/// Layers, and as many stages with ends again.
constexpr std::size_t kLongestLayout = 4 * static_cast<std::size_t>(limits::kLayers);

/// Writes repetitions out.
class Unrolled {
 public:
  explicit Unrolled(std::string_view layout) : layout_(layout) {}

  std::string run() {
    while (place_ < layout_.size()) element();
    return std::move(text_);
  }

 private:
  [[noreturn]] void fail(std::string_view expected) const {
    throw ConfigError(fmt::format(
        "pipeline layout '{}': column {}: expected {}, got {}", layout_, place_ + 1, expected,
        place_ < layout_.size() ? fmt::format("'{}'", layout_[place_]) : std::string("the end")));
  }

  void element() {
    if (layout_[place_] == ',') {
      ++place_;
      return;
    }
    const std::size_t begin = text_.size();
    if (layout_[place_] != '(') {
      character();
      repeat(begin);
      return;
    }
    ++place_;
    while (place_ < layout_.size() && layout_[place_] != ')') {
      const std::size_t inner = text_.size();
      character();
      repeat(inner);
    }
    if (place_ == layout_.size()) fail("')'");
    ++place_;
    if (place_ == layout_.size() || layout_[place_] != '*') fail("'*' and a number");
    repeat(begin);
  }

  void character() {
    if (layout_[place_] == ',') {
      ++place_;
      return;
    }
    if (kCharacters.find(layout_[place_]) == std::string_view::npos)
      fail("one of E, t, m, L, '|', ',' or '('");
    if (text_.size() == kLongestLayout) fail(kTooLong);
    text_ += layout_[place_++];
  }

  /// "*n" behind what was written since `begin`.
  void repeat(std::size_t begin) {
    if (place_ == layout_.size() || layout_[place_] != '*') return;
    ++place_;
    std::size_t times = 0;
    const char* from = layout_.data() + place_;
    const auto [end, error] = std::from_chars(from, layout_.data() + layout_.size(), times);
    if (error != std::errc()) fail("a number");
    const std::string repeated = text_.substr(begin);
    if (!repeated.empty() && times > (kLongestLayout - begin) / repeated.size()) fail(kTooLong);
    text_.resize(begin);
    for (std::size_t i = 0; i < times; ++i) text_ += repeated;
    place_ += static_cast<std::size_t>(end - from);
  }

  static constexpr const char* kTooLong = "a layout of at most 65536 layers and stages";
  static_assert(kLongestLayout == 65536);

  std::string_view layout_;
  std::size_t place_ = 0;
  std::string text_;
};

/// The stage from "Ett", "tm", "L".
LayoutStage stage_of(std::string_view text, std::string_view layout) {
  LayoutStage stage;
  for (const char part : text) {
    if (stage.loss)
      throw ConfigError(
          fmt::format("pipeline layout '{}': '{}' behind the loss, which is last", layout, part));
    if (part == 'E') {
      if (stage.layers > 0 || stage.predictions > 0 || stage.embedding)
        throw ConfigError(
            fmt::format("pipeline layout '{}': the embedding stands first, and once", layout));
      stage.embedding = true;
    } else if (part == 't') {
      if (stage.predictions > 0)
        throw ConfigError(fmt::format(
            "pipeline layout '{}': a layer behind a prediction module, which needs all layers",
            layout));
      ++stage.layers;
    } else if (part == 'm') {
      ++stage.predictions;
    } else {
      stage.loss = true;
    }
  }
  return stage;
}

}  // namespace

std::vector<std::string> layout_stages(std::string_view layout) {
  std::vector<std::string> stages(1);
  for (const char c : Unrolled(layout).run())
    if (c == '|')
      stages.emplace_back();
    else
      stages.back() += c;
  return stages;
}

std::vector<LayoutStage> parse_pipeline_layout(std::string_view layout) {
  std::vector<LayoutStage> stages;
  bool predicts = false;
  for (const std::string& text : layout_stages(layout)) {
    const LayoutStage& stage = stages.emplace_back(stage_of(text, layout));
    if (stage.embedding != (stages.size() == 1))
      throw ConfigError(fmt::format(
          "pipeline layout '{}': begins with E, the embedding, which no other stage holds",
          layout));
    if (predicts && stage.layers > 0)
      throw ConfigError(fmt::format(
          "pipeline layout '{}': a layer behind a prediction module, which needs all layers",
          layout));
    predicts |= stage.predictions > 0;
  }
  for (const LayoutStage& stage : stages)
    if (stage.loss != (&stage == &stages.back()))
      throw ConfigError(fmt::format(
          "pipeline layout '{}': ends with L, the loss, which no other stage holds", layout));
  return stages;
}

}  // namespace meshplan::program
