#include "rules/vocabulary.hpp"

#include <fmt/format.h>
#include <utility>

#include "core/error.hpp"

namespace meshplan::planner {

Vocabulary::Vocabulary(const RuleSet& rules, std::function<bool(const std::string&)> is_given,
                       Unsaid unsaid) {
  if (unsaid == Unsaid::AsStackHasIt)
    for (const Setting& setting : rules.settings)
      if (!setting.value.empty() && !is_given(setting.name))
        meanings_[setting.name] = setting.value;
  for (const Term& term : rules.terms) meanings_[term.name] = term.value;
}

Expression Vocabulary::parse(std::string_view text) const {
  return parse_expression(text, [this](const std::string& name) { return find(name); });
}

const Expression* Vocabulary::find(const std::string& name) const {
  const auto meaning = meanings_.find(name);
  if (meaning == meanings_.end()) return nullptr;
  const auto [place, is_new] = parsed_.try_emplace(name);
  if (is_new)
    place->second = std::make_unique<Expression>(parse(meaning->second));
  else if (!place->second)
    throw ConfigError(fmt::format("'{}' is made of itself: '{}'", name, meaning->second));
  return place->second.get();
}

}  // namespace meshplan::planner
