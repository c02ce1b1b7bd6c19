#include "program/plan/mesh.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <set>

#include "core/error.hpp"

namespace meshplan::program {
namespace {

using Ranks = std::vector<int>;
using GroupList = std::vector<Ranks>;

constexpr Group kAllGroups[] = {Group::Tp,   Group::Cp,   Group::Dp,      Group::Pp,
                                Group::TpPp, Group::DpCp, Group::World,   Group::Embedding,
                                Group::Ep,   Group::Etp,  Group::ExpertDp};

std::vector<std::string> all_orders() {
  std::vector<std::string> axes = {"cp", "dp", "ep", "pp", "tp"};
  std::vector<std::string> orders;
  do {
    orders.push_back(axes[0] + "-" + axes[1] + "-" + axes[2] + "-" + axes[3] + "-" + axes[4]);
  } while (std::ranges::next_permutation(axes).found);
  return orders;
}

/// What Mesh promises of any grid: ranks and coordinates are one to one, groups partition the
/// world.
void check_grid(const Mesh& mesh) {
  const ParallelConfig& config = mesh.config();
  std::set<std::array<int, 4>> dense;
  std::set<std::array<int, 4>> expert;
  for (int rank = 0; rank < mesh.world_size(); ++rank) {
    const Coordinates c = mesh.coordinates(rank);
    REQUIRE(mesh.rank_of(c) == rank);
    dense.insert({c.tp, c.cp, c.dp, c.pp});
    expert.insert({c.etp, c.ep, c.edp, c.pp});
  }
  CHECK(static_cast<int>(dense.size()) == mesh.world_size());
  CHECK(static_cast<int>(expert.size()) == mesh.world_size());
  for (const Group group : kAllGroups) {
    CAPTURE(name_of(group));
    Ranks seen;
    for (const Ranks& members : mesh.groups(group)) {
      CHECK(std::ranges::is_sorted(members));
      for (const int member : members) CHECK(mesh.group(group, member) == members);
      if (group != Group::Embedding)
        CHECK(static_cast<int>(members.size()) == group_size(group, config));
      seen.insert(seen.end(), members.begin(), members.end());
    }
    std::ranges::sort(seen);
    Ranks world(static_cast<std::size_t>(mesh.world_size()));
    for (std::size_t i = 0; i < world.size(); ++i) world[i] = static_cast<int>(i);
    CHECK(seen == world);
  }
}

}  // namespace

TEST_CASE("Ranks and coordinates are one to one and groups partition the world in any order",
          "[program][mesh]") {
  const ParallelConfig config{.tp = 2, .cp = 3, .pp = 2, .dp = 2};
  const std::vector<std::string> orders = all_orders();
  REQUIRE(orders.size() == 120);
  for (const std::string& order : orders) {
    INFO(order);
    check_grid(Mesh(config, order));
  }
}

TEST_CASE("The expert grid is one to one with the ranks as well", "[program][mesh]") {
  check_grid(Mesh({.tp = 2, .cp = 2, .pp = 2, .dp = 2, .ep = 4, .etp = 2}));
  check_grid(Mesh({.tp = 4, .pp = 2, .dp = 2, .ep = 8}));
  check_grid(Mesh({.tp = 1, .pp = 3, .dp = 6, .ep = 3}));
}

TEST_CASE("16 ranks with tp 2 and pp 4 form the groups that Megatron-LM documents",
          "[program][mesh]") {
  // Megatron-LM, megatron/core/parallel_state.py, docstring of initialize_model_parallel.
  const Mesh mesh({.tp = 2, .pp = 4, .dp = 2});
  CHECK(mesh.groups(Group::Tp) ==
        GroupList{{0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}, {10, 11}, {12, 13}, {14, 15}});
  CHECK(mesh.groups(Group::Dp) ==
        GroupList{{0, 2}, {1, 3}, {4, 6}, {5, 7}, {8, 10}, {9, 11}, {12, 14}, {13, 15}});
  CHECK(mesh.groups(Group::Pp) ==
        GroupList{{0, 4, 8, 12}, {1, 5, 9, 13}, {2, 6, 10, 14}, {3, 7, 11, 15}});
}

TEST_CASE("Ranks that hold the same key/value heads are neighbours in the tp group",
          "[program][mesh]") {
  const Mesh mesh({.tp = 4, .dp = 2}, "dp-tp-cp-ep-pp", 2);  // tp = rank / 2
  CHECK(mesh.groups(Group::KvCopies) == GroupList{{0, 2}, {1, 3}, {4, 6}, {5, 7}});
  CHECK(group_size(Group::KvCopies, mesh.config(), mesh.kv_copies()) == 2);
  CHECK(Mesh({.tp = 2}).groups(Group::KvCopies) == GroupList{{0}, {1}});
}

TEST_CASE("A model replica is what shares a data-parallel coordinate", "[program][mesh]") {
  const Mesh mesh({.tp = 2, .pp = 4, .dp = 2});
  CHECK(mesh.groups(Group::TpPp) ==
        GroupList{{0, 1, 4, 5, 8, 9, 12, 13}, {2, 3, 6, 7, 10, 11, 14, 15}});
}

TEST_CASE("Embedding groups hold the first and the last stage, other ranks are alone",
          "[program][mesh]") {
  const Mesh mesh({.tp = 2, .pp = 4, .dp = 2});
  for (const int first : {0, 1, 2, 3})
    CHECK(mesh.group(Group::Embedding, first) == Ranks{first, first + 12});
  for (const int inner : {4, 7, 8, 11}) CHECK(mesh.group(Group::Embedding, inner) == Ranks{inner});
  CHECK(Mesh({.tp = 2, .dp = 2}).group(Group::Embedding, 3) == Ranks{3});  // pp = 1
}

TEST_CASE("Dense gradients are reduced over dp and cp together", "[program][mesh]") {
  const Mesh mesh({.tp = 2, .cp = 2, .dp = 2});  // rank = tp + 2 cp + 4 dp
  CHECK(mesh.groups(Group::DpCp) == GroupList{{0, 2, 4, 6}, {1, 3, 5, 7}});
  CHECK(mesh.groups(Group::Cp) == GroupList{{0, 2}, {1, 3}, {4, 6}, {5, 7}});
}

TEST_CASE("An ep group is divided into nodes and into ranks of the same place in them",
          "[program][mesh]") {
  const Mesh mesh({.dp = 8, .ep = 8}, Mesh::kDefaultOrder, 1, 0, 4);
  CHECK(mesh.groups(Group::EpWithin) == GroupList{{0, 1, 2, 3}, {4, 5, 6, 7}});
  CHECK(mesh.groups(Group::EpAcross) == GroupList{{0, 4}, {1, 5}, {2, 6}, {3, 7}});
  CHECK(mesh.group(Group::EpAcross, 6) == Ranks{2, 6});
  CHECK(mesh.group_size(Group::EpWithin) == 4);
  CHECK(mesh.group_size(Group::EpAcross) == 2);
  const Mesh sliced({.tp = 2, .dp = 4, .ep = 4, .etp = 2}, Mesh::kDefaultOrder, 1, 0, 2);
  CHECK(sliced.groups(Group::EpWithin) == GroupList{{0, 2}, {1, 3}, {4, 6}, {5, 7}});
  CHECK(sliced.groups(Group::EpAcross) == GroupList{{0, 4}, {1, 5}, {2, 6}, {3, 7}});
  const Mesh flat({.dp = 4, .ep = 4});
  CHECK(flat.groups(Group::EpWithin) == flat.groups(Group::Ep));
  CHECK(flat.group_size(Group::EpAcross) == 1);
}

TEST_CASE("Experts are carved out of the ranks that hold the same layers", "[program][mesh]") {
  const Mesh mesh({.tp = 2, .pp = 2, .dp = 2, .ep = 4});  // 4 ranks a stage, etp 1, edp 1
  CHECK(mesh.config().edp() == 1);
  CHECK(mesh.groups(Group::Ep) == GroupList{{0, 1, 2, 3}, {4, 5, 6, 7}});
  const Mesh wide({.dp = 4, .ep = 2});
  CHECK(wide.groups(Group::Ep) == GroupList{{0, 1}, {2, 3}});
  CHECK(wide.groups(Group::ExpertDp) == GroupList{{0, 2}, {1, 3}});
  const Mesh sliced({.tp = 2, .dp = 2, .ep = 2, .etp = 2});
  CHECK(sliced.groups(Group::Etp) == GroupList{{0, 1}, {2, 3}});
  CHECK(sliced.groups(Group::Ep) == GroupList{{0, 2}, {1, 3}});
}

TEST_CASE("The order decides which axis is innermost", "[program][mesh]") {
  const Mesh mesh({.tp = 2, .pp = 2, .dp = 2}, "pp-dp-cp-ep-tp");  // rank = pp + 2 dp + 4 tp
  CHECK(mesh.groups(Group::Pp) == GroupList{{0, 1}, {2, 3}, {4, 5}, {6, 7}});
  CHECK(mesh.groups(Group::Tp) == GroupList{{0, 4}, {1, 5}, {2, 6}, {3, 7}});
}

TEST_CASE("A wrong order is refused with a valid one", "[program][mesh]") {
  for (const char* order : {"", "tp", "tp-cp-ep-dp", "tp-cp-ep-dp-dp", "tp-cp-ep-dp-pp-",
                            "tp-cp-ep-dp-px", "tp-cp-ep-dp-pp-tp", "tp cp ep dp pp"}) {
    CAPTURE(order);
    CHECK_THROWS_WITH(Mesh({}, order), Catch::Contains("rank order '" + std::string(order) + "'") &&
                                           Catch::Contains("'tp-cp-ep-dp-pp'"));
  }
}

TEST_CASE("Degrees below one are refused by name", "[program][mesh]") {
  CHECK_THROWS_WITH(Mesh({.pp = 0}), Catch::Contains("pp = 0"));
  CHECK_THROWS_WITH(Mesh({.etp = -2}), Catch::Contains("etp = -2"));
}

TEST_CASE("Experts that do not fit the ranks of a stage are refused with what would",
          "[program][mesh]") {
  CHECK_THROWS_WITH(Mesh({.tp = 2, .dp = 4, .ep = 3}),
                    Catch::Contains("etp(1) * ep(3) = 3 does not divide") &&
                        Catch::Contains("= 8") && Catch::Contains("nearest ep: 2"));
  // No ep helps when etp itself does not divide.
  CHECK_THROWS_WITH(Mesh({.dp = 8, .etp = 3}), Catch::Contains("nearest etp: 2"));
}

TEST_CASE("Experts stay in the stage of their layers whatever the order", "[program][mesh]") {
  for (const std::string& order : all_orders()) {
    INFO(order);
    const Mesh mesh({.tp = 2, .pp = 2, .dp = 2, .ep = 4}, order);
    check_grid(mesh);
    for (const Ranks& members : mesh.groups(Group::Ep))
      for (const int member : members)
        CHECK(mesh.coordinates(member).pp == mesh.coordinates(members.front()).pp);
  }
}

TEST_CASE("A configuration is named by its degrees above one", "[program][mesh]") {
  CHECK(to_string(ParallelConfig{}) == "one rank");
  CHECK(to_string(ParallelConfig{.tp = 2, .pp = 4, .dp = 2, .sp = true}) == "tp2 sp pp4 dp2");
}

}  // namespace meshplan::program
