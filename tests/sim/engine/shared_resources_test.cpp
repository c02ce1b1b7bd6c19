// Max-min fair rates of small systems, solved by hand.
#include "engine/shared_resources.hpp"

#include <catch2/catch.hpp>

namespace meshplan::sim {
namespace {

/// Starts activities with these usages at time 0, one second of work each.
SharedResources running(const std::vector<double>& capacities,
                        const std::vector<std::vector<Usage>>& activities) {
  SharedResources resources;
  for (const double capacity : capacities) resources.add_resource(capacity);
  resources.resize_activities(activities.size());
  for (std::size_t i = 0; i < activities.size(); ++i)
    resources.start(static_cast<int>(i), resources.add_usages(activities[i]), 1.0, 0.0);
  resources.settle(0);
  resources.clear_changed();
  return resources;
}

}  // namespace

TEST_CASE("A resource with room slows nobody", "[sim][shared_resources]") {
  const auto resources = running({2}, {{{0, 1}}, {{0, 1}}});
  CHECK(resources.rate(0) == 1);
  CHECK(resources.rate(1) == 1);
  CHECK(resources.finish_time(1) == Approx(1));
}

// Four of one core each on two cores: a half each.
TEST_CASE("Equal users get equal rates", "[sim][shared_resources]") {
  const auto resources = running({2}, {{{0, 1}}, {{0, 1}}, {{0, 1}}, {{0, 1}}});
  for (int i = 0; i < 4; ++i) CHECK(resources.rate(i) == Approx(0.5));
}

// A uses link 0, B links 0 and 1, C link 1; capacities 1 and 4, all ask for 2. Rising together,
// link 0 fills at 0.25 (2 + 2 at 0.25 = 1) and holds A and B there. C rises until link 1 is full:
// 2 * 0.25 + 2 x = 4 would be x = 1.75, so it is limited by its own speed: 1.
TEST_CASE("Users of a full resource stay, the others rise on", "[sim][shared_resources]") {
  const auto resources = running({1, 4}, {{{0, 2}}, {{0, 2}, {1, 2}}, {{1, 2}}});
  CHECK(resources.rate(0) == Approx(0.25));
  CHECK(resources.rate(1) == Approx(0.25));
  CHECK(resources.rate(2) == Approx(1));
}

// As above with capacity 2 of link 1, now also full: C gets what B leaves, (2 - 2 * 0.25) / 2 =
// 0.75.
TEST_CASE("A second full resource gives its rest to those still rising",
          "[sim][shared_resources]") {
  const auto resources = running({1, 2}, {{{0, 2}}, {{0, 2}, {1, 2}}, {{1, 2}}});
  CHECK(resources.rate(0) == Approx(0.25));
  CHECK(resources.rate(1) == Approx(0.25));
  CHECK(resources.rate(2) == Approx(0.75));
}

// Two on one core: half speed. After 1 s one is stopped with 0.5 s left; the other, with 0.5 s
// left, then runs alone and ends at 1.5 s.
TEST_CASE("Rates recover when a user leaves", "[sim][shared_resources]") {
  auto resources = running({1}, {{{0, 1}}, {{0, 1}}});
  CHECK(resources.finish_time(0) == Approx(2));
  CHECK(resources.stop(0, 1.0) == Approx(0.5));
  resources.settle(1.0);
  CHECK_FALSE(resources.is_active(0));
  CHECK(resources.rate(1) == Approx(1));
  CHECK(resources.finish_time(1) == Approx(1.5));
}

TEST_CASE("Only activities whose end moved are reported", "[sim][shared_resources]") {
  auto resources = running({1, 1}, {{{0, 1}}, {{0, 1}}, {{1, 1}}});
  resources.stop(0, 0.5);
  resources.settle(0.5);
  CHECK(resources.changed() == std::vector<int>{1});
}

// Three on two cores run at two thirds. One stops and a like one starts at the same instant: nobody
// else notices.
TEST_CASE("A like activity takes over without disturbing the others", "[sim][shared_resources]") {
  auto resources = running({2}, {{{0, 1}}, {{0, 1}}, {{0, 1}}});
  resources.stop(0, 0.5);
  resources.start(0, resources.add_usages(std::vector<Usage>{{0, 1}}), 1.0, 0.5);
  resources.settle(0.5);
  CHECK(resources.changed() == std::vector<int>{0});
  CHECK(resources.rate(1) == Approx(2.0 / 3));
}

}  // namespace meshplan::sim
