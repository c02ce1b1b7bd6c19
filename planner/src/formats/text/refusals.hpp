// What a plan asks for that a target has no words for.
#pragma once

#include <fmt/format.h>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "planner/rules/rules.hpp"
#include "program/plan/plan.hpp"

namespace meshplan::planner {

class Refusals {
 public:
  explicit Refusals(std::string target) : target_(std::move(target)) {}

  /// @param field  of the plan: "parallel.etp"
  /// @param instead  what the target has, with the nearest value that it can be asked for
  template <class Value>
  void add(bool asked, std::string_view field, const Value& value, std::string_view instead) {
    if (asked) lines_.push_back(fmt::format("{} = {}: {}", field, value, instead));
  }

  /// @throws ConfigError with all of them, if there are any
  void throw_if_any() const;

 private:
  std::string target_;
  std::vector<std::string> lines_;
};

/// Techniques that only meshplan's own runtime has: compression, frozen parameters, ...
void refuse_own_techniques(Refusals& refusals, const program::Plan& plan);

/// Weights on the host, apart from the optimizer's state, which DeepSpeed alone asks for.
void refuse_offloaded_parameters(Refusals& refusals, const program::Plan& plan);

/// Asks the target's own rules (planner/rules). @param settings  what the exported files say beside
/// the plan, by the rules' names. @throws ConfigError with what they refuse
void require_rules_kept(std::string_view target, const program::Plan& plan,
                        const Facts& settings = {});

/// Axes of degree 1 may stand anywhere. @param order  in which the target numbers its ranks
void refuse_other_order(Refusals& refusals, const program::Plan& plan, std::string_view order);

}  // namespace meshplan::planner
