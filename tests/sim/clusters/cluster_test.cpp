#include "sim/clusters/cluster.hpp"

#include <algorithm>
#include <catch2/catch.hpp>

#include "core/error.hpp"
#include "sim/stacks/cluster_preset.hpp"

namespace meshplan::sim {
namespace {

/// A minimal valid file, with `from` replaced by `to`.
std::string file_with(const std::string& from = "", const std::string& to = "") {
  std::string text = R"({
    "schema_version": 1, "name": "two", "num_nodes": 1, "devices_per_node": 2,
    "device": {"name": "d", "kind": "gpu", "peak_tflop_per_s": {"fp32": 10},
               "memory_gib": 16, "memory_gb_per_s": 500},
    "fabric": [{"name": "link", "latency_us": 1, "link_gb_per_s": 10}]
  })";
  if (!from.empty()) text.replace(text.find(from), from.size(), to);
  return text;
}

std::string error_of(const std::string& text) {
  try {
    parse_cluster(text, "c.json");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("Every preset is valid and survives a round trip", "[sim][cluster]") {
  const auto names = cluster_names();
  CHECK(std::ranges::is_sorted(names));
  for (const char* expected :
       {"dgx-a100", "dgx-h100", "dgx-h200", "dgx-b200", "gb200-nvl72", "one-h100",
        "4x-rtx4090-pcie", "cpu-host", "cpu-cluster-10gbe", "cpu-cluster-100gbe"})
    CHECK(std::ranges::find(names, expected) != names.end());
  for (const auto& name : names) {
    const Cluster cluster = load_cluster_preset(name);
    CHECK(cluster.name == name);
    CHECK(parse_cluster(to_json(cluster), "round trip") == cluster);
  }
}

TEST_CASE("An unknown preset names the nearest one", "[sim][cluster]") {
  CHECK_THROWS_WITH(load_cluster_preset("dgx-h1000"), Catch::Contains("did you mean 'dgx-h100'"));
}

TEST_CASE("A cluster file's errors name file, path, value and rule", "[sim][cluster]") {
  REQUIRE(error_of(file_with()).empty());
  CHECK_THAT(error_of(file_with("\"num_nodes\"", "\"num_node\"")),
             Catch::Contains("c.json") && Catch::Contains("num_nodes"));
  CHECK_THAT(error_of(file_with("\"gpu\"", "\"gpus\"")),
             Catch::Contains("device.kind") && Catch::Contains("gpu"));
  CHECK_THAT(error_of(file_with("{\"fp32\": 10}", "{}")), Catch::Contains("at least one dtype"));
  CHECK_THAT(error_of(file_with("\"fp32\"", "\"fp33\"")), Catch::Contains("'fp32'"));
  CHECK_THAT(error_of(file_with("\"memory_gib\": 16", "\"memory_gib\": -1")),
             Catch::Contains("device.memory_gib") && Catch::Contains("-1"));
  CHECK_THAT(
      error_of(file_with("[{\"name\": \"link\", \"latency_us\": 1, \"link_gb_per_s\": 10}]", "[]")),
      Catch::Contains("fabric") && Catch::Contains("2 ranks"));
  CHECK_THAT(error_of(file_with("\"latency_us\": 1", "\"latency_us\": 1, \"ranks_per_group\": 1")),
             Catch::Contains("fabric[0].ranks_per_group") && Catch::Contains("2 ranks, got 1"));
}

TEST_CASE("A measurement under a name that nothing looks up is refused", "[sim][cluster]") {
  Cluster cluster = load_data_sheet("cpu-host");
  cluster.collectives = {{.op = "all_reduse", .group_size = 2, .bytes = 8, .seconds = 1e-5}};
  CHECK_THROWS_WITH(
      parse_cluster(to_json(cluster), "mine.json"),
      Catch::Contains("mine.json: collectives[0].op: unknown operation 'all_reduse'; did "
                      "you mean 'all_reduce'?"));
  cluster.collectives.front().op = "all_reduce";
  cluster.collectives.push_back(cluster.collectives.front());
  CHECK_THROWS_WITH(
      parse_cluster(to_json(cluster), "mine.json"),
      Catch::Contains("collectives[1]: all_reduce of 8 bytes over 2 ranks is given twice"));
  cluster.collectives.clear();
  cluster.operators = {{.signature = "linaer.forward fp32 t=1 out=1 in=1", .seconds = 1e-5}};
  CHECK_THROWS_WITH(
      parse_cluster(to_json(cluster), "mine.json"),
      Catch::Contains("operators[0].signature: unknown operator 'linaer'; did you mean "
                      "'linear'?"));
  cluster.operators.front().signature = "linear.froward fp32 t=1 out=1 in=1";
  CHECK_THROWS_WITH(parse_cluster(to_json(cluster), "mine.json"), Catch::Contains("'forward'"));
}

TEST_CASE("A cluster larger than any is refused", "[sim][cluster]") {
  Cluster cluster = load_data_sheet("dgx-h100");
  cluster.num_nodes = 1 << 20;
  CHECK_THROWS_WITH(parse_cluster(to_json(cluster), "mine.json"),
                    Catch::Contains("num_nodes(1048576) * devices_per_node(8) = 8388608 ranks"));
  CHECK_THROWS_WITH(with_ranks(cluster, (1 << 20) + 8), Catch::Contains("at most 1048576"));
}

TEST_CASE("Resizing keeps whole nodes and says what would fit", "[sim][cluster]") {
  const Cluster h100 = load_cluster_preset("dgx-h100");
  CHECK(with_ranks(h100, 128).num_nodes == 16);
  CHECK(with_ranks(h100, 4).devices_per_node == 4);
  CHECK(with_ranks(load_cluster_preset("gb200-nvl72"), 72).num_nodes == 18);
  CHECK_THROWS_WITH(with_ranks(h100, 13), Catch::Contains("nearest: 16"));
  CHECK_THROWS_WITH(with_ranks(h100, 11), Catch::Contains("nearest: 8"));
  CHECK_THROWS_AS(with_ranks(h100, 0), ConfigError);
  CHECK_THROWS_AS(with_ranks(load_cluster_preset("one-h100"), 2), ConfigError);
  const Cluster crowded = with_ranks(load_cluster_preset("cpu-host"), 40);
  CHECK(crowded.num_nodes == 1);
  CHECK(crowded.oversubscribed());
}

// 16 ranks on two nodes of eight: ranks 0..3 stay on one, {0, 8} and all sixteen cross.
TEST_CASE("Placement tells which levels a group crosses", "[sim][cluster]") {
  const Cluster cluster = with_ranks(load_cluster_preset("dgx-h100"), 16);
  const GroupPlacement inside = place(cluster, {0, 1, 2, 3});
  CHECK(inside.level == 0);
  CHECK(inside.on_first_host == 4);
  const GroupPlacement across = place(cluster, {0, 8});
  CHECK(across.level == 1);
  CHECK(across.domains == std::vector<int>{2, 1});
  CHECK(across.members_per_domain == std::vector<int>{1, 2});
  CHECK_FALSE(place(cluster, {5}).level);
  CHECK_THROWS_AS(place(cluster, {16}), InvariantError);
}

TEST_CASE("The hash follows the content", "[sim][cluster]") {
  Cluster cluster = load_cluster_preset("cpu-host");
  const std::string before = hash_of(cluster);
  CHECK(before == hash_of(load_cluster_preset("cpu-host")));
  cluster.device.launch_us += 1;
  CHECK(before != hash_of(cluster));
}

TEST_CASE("The file system's bandwidth is in the file where it is known", "[sim][cluster]") {
  Cluster cluster = load_cluster_preset("cpu-host");
  const std::string unknown = hash_of(cluster);
  CHECK_THAT(to_json(cluster), !Catch::Contains("storage_gb_per_s"));
  CHECK_THAT(cluster_schema(), Catch::Contains("storage_gb_per_s"));
  cluster.storage_gb_per_s = 0.4;
  CHECK(parse_cluster(to_json(cluster), "now") == cluster);
  CHECK(hash_of(cluster) != unknown);
  cluster.storage_gb_per_s = -1;
  CHECK_THROWS_WITH(parse_cluster(to_json(cluster), "below"),
                    Catch::Contains("storage_gb_per_s") && Catch::Contains("at least 0"));
}

TEST_CASE("A cluster file from before keeps no reference speed", "[sim][cluster]") {
  Cluster cluster = load_cluster_preset("cpu-host");
  CHECK(cluster.reference == ReferenceSpeed{});
  cluster.reference = {.seconds = 2e-5, .seconds_busy = 3e-5};
  std::string text = to_json(cluster);
  CHECK(parse_cluster(text, "now") == cluster);
  const auto begin = text.find("\"reference\"");
  REQUIRE(begin != std::string::npos);
  text.erase(text.rfind(',', begin), text.find('}', begin) + 1 - text.rfind(',', begin));
  CHECK(parse_cluster(text, "before").reference == ReferenceSpeed{});
}

TEST_CASE("The schema lists the required keys", "[sim][cluster]") {
  CHECK_THAT(cluster_schema(),
             Catch::Contains("\"devices_per_node\"") && Catch::Contains("draft/2020-12"));
}

}  // namespace meshplan::sim
