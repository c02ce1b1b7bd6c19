#include "rules/pipeline_layout.hpp"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>

#include "core/error.hpp"
#include "core/limits.hpp"

namespace meshplan::planner {
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

std::int64_t count(std::string_view text, char wanted) {
  return std::ranges::count(text, wanted);
}

/// Prediction modules lie behind all layers, all in one virtual stage, which is its rank's last.
bool modules_in_place(const std::vector<std::string>& stages, const std::string& unrolled,
                      std::int64_t pp) {
  const std::int64_t modules = count(unrolled, 'm');
  if (modules == 0) return true;
  if (unrolled.find('t', unrolled.find('m')) != std::string::npos) return false;
  const auto first_of_last_chunks = static_cast<std::int64_t>(stages.size()) - pp;
  for (std::int64_t stage = 0; stage < static_cast<std::int64_t>(stages.size()); ++stage) {
    const std::int64_t here = count(stages[static_cast<std::size_t>(stage)], 'm');
    if (here > 0 && (here != modules || stage < first_of_last_chunks)) return false;
  }
  return true;
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

Facts layout_facts(std::string_view layout, std::int64_t pp) {
  const std::string unrolled = Unrolled(layout).run();
  const std::vector<std::string> stages = layout_stages(layout);
  const auto size = static_cast<std::int64_t>(stages.size());
  std::string layers_only = unrolled;
  std::erase(layers_only, '|');
  const bool ends = !layers_only.empty() && layers_only.front() == 'E' &&
                    layers_only.back() == 'L' && count(unrolled, 'E') == 1 &&
                    count(unrolled, 'L') == 1;
  Facts facts{{"layout", 1},
              {"layout_stages", size},
              {"layout_layers", count(unrolled, 't')},
              {"layout_mtp", count(unrolled, 'm')},
              {"layout_ends", ends ? 1 : 0}};
  if (pp >= 1 && size % pp == 0)
    facts["layout_mtp_in_place"] = modules_in_place(stages, unrolled, pp) ? 1 : 0;
  return facts;
}

}  // namespace meshplan::planner
