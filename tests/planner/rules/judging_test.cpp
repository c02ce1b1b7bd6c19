// Rules of a set written here, and facts at the edge of what a rule accepts.
#include <catch2/catch.hpp>
#include <string>

#include "planner/rules/rules.hpp"
#include "rules/pipeline_layout.hpp"

namespace meshplan::planner {
namespace {

std::string rule(const std::string& id, const std::string& more) {
  return R"({"id": ")" + id + R"(", "name": "n", "reason": "because", "source": "a.py:1", )" +
         more + "}";
}

}  // namespace

TEST_CASE("What only costs is no reason for a choice farther away", "[planner][rules]") {
  const auto nearest = [](const std::string& effect) {
    const RuleSet rules = parse_rules(
        R"({"target": "x", "stack": "X", "commit": "c", "software": "megatron-core", "rules": [)" +
            rule("heads", R"("requires": "heads % tp == 0", "nearest": "tp")") + "," +
            rule("three", R"("requires": "tp >= 3", "effect": ")" + effect + '"') + "]}",
        "x.json");
    return judge(rules, {{"heads", 32}, {"tp", 3}}).front().nearest;
  };
  // 2 and 4 are equally near and divide 32; 2, which is tried first, is less than 3.
  CHECK(nearest("costs") == NearestChoice{.fact = "tp", .value = 2, .breaks = {}});
  CHECK(nearest("refused") == NearestChoice{.fact = "tp", .value = 4, .breaks = {}});
}

TEST_CASE("A layout has one embedding at its front and one loss at its back", "[planner][rules]") {
  CHECK(layout_facts("Et|tL", 2).at("layout_ends") == 1);
  CHECK(layout_facts("EtL|tL", 2).at("layout_ends") == 0);
  CHECK(layout_facts("Et|EtL", 2).at("layout_ends") == 0);
}

TEST_CASE("Prediction modules may lie in the last chunk of any rank", "[planner][rules]") {
  // Of 4 virtual stages over 2 ranks, 2 and 3 are the last of rank 0 and 1.
  CHECK(layout_facts("Et|t|tm|L", 2).at("layout_mtp_in_place") == 1);
  CHECK(layout_facts("Et|t|t|mL", 2).at("layout_mtp_in_place") == 1);
  CHECK(layout_facts("Et|tm||L", 2).at("layout_mtp_in_place") == 0);
}

}  // namespace meshplan::planner
