#include "runtime/elastic/nodes.hpp"

#include <catch2/catch.hpp>

namespace meshplan::runtime {
namespace {

HostSlots host(const std::string& name, int slots) {
  return {.name = name, .slots = slots, .is_limit = true};
}

const JobNode& node(const Nodes& nodes, const std::string& name) {
  for (const JobNode& one : nodes.all())
    if (one.name == name) return one;
  FAIL("there is no node " << name);
  return nodes.all().front();
}

constexpr auto kAnswers = [](const std::string&) { return true; };
constexpr auto kSilent = [](const std::string&) { return false; };

TEST_CASE("A job is placed on hosts in order, and others wait") {
  Nodes nodes({host("a", 2), host("b", 2), host("c", 2)}, {});
  const std::vector<HostSlots> placed = nodes.place(2, 2, false);
  CHECK(to_string(placed) == "a:2,b:2");
  nodes.use(placed);
  CHECK(node(nodes, "a").state == NodeState::Healthy);
  CHECK(node(nodes, "c").state == NodeState::Spare);
  CHECK(hosts_of_ranks(placed, 4) == std::vector<std::string>{"a", "a", "b", "b"});
}

TEST_CASE("A spare takes the place of a host that lost a rank") {
  Nodes nodes({host("a", 2), host("b", 2), host("c", 2)}, {});
  nodes.use(nodes.place(2, 2, false));
  nodes.lose_rank("a", 100, "died");
  CHECK(node(nodes, "a").state == NodeState::Suspect);
  CHECK(nodes.usable_slots() == 5);
  CHECK(to_string(nodes.place(2, 2, false)) == "b:2,c:2");
  CHECK(nodes.place(3, 2, false).empty());
  // A job of one node may be spread; what is healthy comes first, a suspect last.
  CHECK(to_string(nodes.place(1, 5, true)) == "b:2,c:2,a:1");
  CHECK(nodes.place(1, 6, true).empty());
}

TEST_CASE("A suspect is tried again after a time that doubles") {
  Nodes nodes({host("a", 2), host("b", 2)}, {.retry_after_s = 60, .most_failures = 3});
  nodes.lose_node("a", 100, "no sign of life");
  CHECK(nodes.usable_slots() == 2);
  CHECK(nodes.next_retry_s() == 160);
  CHECK(nodes.retry(159, kAnswers).empty());
  CHECK(nodes.retry(160, kSilent).empty());  // and once more after as long
  CHECK(nodes.next_retry_s() == 220);
  CHECK(nodes.retry(220, kAnswers) == std::vector<std::string>{"a"});
  CHECK(nodes.usable_slots() == 4);
  nodes.lose_node("a", 300, "no sign of life");
  CHECK(nodes.next_retry_s() == 420);
}

TEST_CASE("A host that fails too often is left out, unless it is the last one") {
  Nodes nodes({host("a", 1), host("b", 1)}, {.retry_after_s = 1, .most_failures = 3});
  for (const double time : {0.0, 10.0, 20.0}) {
    nodes.lose_rank("a", time, "died");
    nodes.retry(time + 9, kAnswers);
  }
  CHECK(node(nodes, "a").state == NodeState::Out);
  CHECK(nodes.usable_slots() == 1);
  CHECK_FALSE(nodes.next_retry_s());
  for (const double time : {100.0, 110.0, 120.0, 130.0}) {
    nodes.lose_rank("b", time, "died");
    CHECK(node(nodes, "b").state == NodeState::Suspect);
    nodes.retry(time + 9, kAnswers);
  }
  CHECK(nodes.usable_slots() == 1);
}

TEST_CASE("A slow slot is that of another rank where its host comes elsewhere") {
  Nodes nodes({host("a", 2), host("b", 3)}, {.retry_after_s = 60});
  nodes.note_slow("b", 1, 1.8, 100);
  CHECK(nodes.slow_ranks({host("a", 2), host("b", 3)}) == std::map<int, double>{{3, 1.8}});
  CHECK(nodes.slow_ranks({host("b", 2), host("a", 2)}) == std::map<int, double>{{1, 1.8}});
  CHECK(nodes.slow_ranks({host("a", 2), host("b", 1)}).empty());  // its slot is not used
  CHECK(nodes.slow_ranks({host("c", 2)}).empty());
  CHECK(nodes.usable_slots() == 5);
}

TEST_CASE("A slow slot is taken for quick after a time that doubles") {
  Nodes nodes({host("a", 2), host("b", 2)}, {.retry_after_s = 60});
  CHECK_FALSE(nodes.next_forget_s());
  nodes.note_slow("a", 0, 1.8, 100);
  CHECK(nodes.next_forget_s() == 160);
  nodes.note_slow("a", 0, 2.0, 120);  // it still is
  CHECK(nodes.next_forget_s() == 180);
  CHECK(nodes.slow_ranks({host("a", 2)}) == std::map<int, double>{{0, 2.0}});
  CHECK(nodes.forget_slow(179).empty());
  CHECK(nodes.forget_slow(180) == std::vector<std::string>{"a"});
  CHECK(nodes.slow_ranks({host("a", 2)}).empty());
  CHECK_FALSE(nodes.next_forget_s());
  nodes.note_slow("a", 1, 1.8, 200);
  CHECK(nodes.next_forget_s() == 320);
  nodes.note_slow("b", 0, 1.8, 210);
  CHECK(nodes.next_forget_s() == 270);
}

TEST_CASE("A failure, and leaving the hosts, end what is known of slow slots") {
  Nodes nodes({host("a", 2), host("b", 2)}, {});
  nodes.note_slow("a", 0, 1.8, 100);
  nodes.note_slow("b", 0, 1.8, 100);
  nodes.lose_rank("a", 110, "died");
  nodes.set_hosts({host("a", 2)});
  CHECK(nodes.slow_ranks({host("a", 2), host("b", 2)}).empty());
}

TEST_CASE("Failures that are long past do not count") {
  Nodes nodes({host("a", 1), host("b", 1)}, {.retry_after_s = 1, .most_failures = 2});
  nodes.lose_rank("a", 0, "died");
  nodes.retry(10, kAnswers);
  nodes.lose_rank("a", 3700, "died");
  CHECK(node(nodes, "a").state == NodeState::Suspect);
}

TEST_CASE("Hosts join and leave") {
  Nodes nodes({host("a", 2)}, {});
  CHECK(nodes.set_hosts({host("a", 2), host("b", 4)}) == std::vector<std::string>{"b"});
  CHECK(nodes.usable_slots() == 6);
  nodes.set_hosts({host("b", 4)});
  CHECK(node(nodes, "a").state == NodeState::Out);
  CHECK(nodes.usable_slots() == 4);
  CHECK(nodes.set_hosts({host("a", 2), host("b", 4)}) == std::vector<std::string>{"a"});
  CHECK(nodes.usable_slots() == 6);
  // One that has failed, left and come back begins anew.
  nodes.lose_node("a", 100, "no sign of life");
  nodes.set_hosts({host("b", 4)});
  nodes.set_hosts({host("a", 2), host("b", 4)});
  CHECK(nodes.usable_slots() == 6);
}

}  // namespace
}  // namespace meshplan::runtime
