// What the names in a rule set's conditions stand for.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "planner/rules/rules.hpp"
#include "rules/expression.hpp"

namespace meshplan::planner {

/// Parses terms, and settings that nobody gave, when a condition first mentions them.
class Vocabulary {
 public:
  /// @param is_given  is there a fact of this name? Then a setting's own value is not used
  Vocabulary(const RuleSet& rules, std::function<bool(const std::string&)> is_given, Unsaid unsaid);

  /// @throws ConfigError with the column and what was expected, and for a term that is made of
  /// itself
  Expression parse(std::string_view text) const;

 private:
  const Expression* find(const std::string& name) const;

  std::map<std::string, std::string> meanings_;  // what is said of terms and settings
  mutable std::map<std::string, std::unique_ptr<Expression>> parsed_;  // null: being parsed
};

}  // namespace meshplan::planner
