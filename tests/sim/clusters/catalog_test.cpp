// The machines that are compiled in: their figures by arithmetic of data sheets, their names,
// prices and what is found by words.
#include "sim/clusters/catalog.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <regex>
#include <set>

#include "core/error.hpp"
#include "sim/estimator/estimator.hpp"
#include "sim/plans.hpp"
#include "sim/prices/operator_constants.hpp"

namespace meshplan::sim {
namespace {

bool holds(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

std::string refusal(const std::vector<std::string>& words) {
  try {
    presets_with(words);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

/// Gb/s that leave a node: what its devices' links between nodes carry, over 0.96 of the line rate.
double network_gbit_per_s(const Cluster& cluster) {
  const FabricLevel& level = cluster.fabric.back();
  return level.link_gb_per_s * cluster.devices_per_node / level.ranks_per_link * 8 / 0.96;
}

/// llama3-8b, one micro-batch for each of two stages or groups.
program::Plan dense_plan(int ranks) {
  program::Plan plan;
  plan.model = models::load_preset("llama3-8b");
  plan.workload = {.seq_len = 4096, .global_batch_size = 64, .precision = DType::BF16};
  const int tp = ranks % 4 == 0 ? 4 : 1;
  plan.parallel = {.tp = tp, .dp = ranks / tp, .sp = tp > 1};
  plan.zero_stage = ranks > tp ? 1 : 0;
  plan.micro_batch_size = 1;
  return plan;
}

}  // namespace

TEST_CASE("Every preset says who sells it, and a price where and when it holds", "[sim][catalog]") {
  for (const std::string& name : cluster_names()) {
    INFO(name);
    const Cluster cluster = load_data_sheet(name);
    REQUIRE(cluster.about);
    CHECK_FALSE(cluster.about->vendor.empty());
    CHECK((!cluster.about->sources.empty() || !cluster.about->assumed.empty() ||
           cluster.device.source));
    CHECK(cluster.about->usd_per_device_hour.has_value() == !cluster.about->price_of.empty());
    if (cluster.device.kind == DeviceKind::Gpu && cluster.about->vendor != "generic")
      CHECK(cluster.device.source);
  }
}

// "... 55.04 an hour" of a node of eight: 6.88 a device.
TEST_CASE("A device's price is its share of the node's in the source", "[sim][catalog]") {
  const std::regex of_node(R"(([0-9.]+) an hour$)");
  int checked = 0;
  for (const std::string& name : cluster_names()) {
    const Cluster cluster = load_data_sheet(name);
    for (const std::string& source : cluster.about->sources) {
      std::smatch match;
      if (!std::regex_search(source, match, of_node)) continue;
      INFO(name << ": " << source);
      REQUIRE(cluster.about->usd_per_device_hour);
      CHECK(*cluster.about->usd_per_device_hour * cluster.devices_per_node ==
            Approx(std::stod(match[1])).epsilon(1e-4));
      ++checked;
    }
  }
  CHECK(checked > 20);
}

TEST_CASE("An instance's name stands for one preset, in upper or lower case", "[sim][catalog]") {
  std::set<std::string> seen;
  for (const std::string& name : cluster_names()) {
    CHECK(preset_called(name) == name);
    const Cluster cluster = load_data_sheet(name);
    for (const std::string& instance : cluster.about->instances) {
      INFO(name << ", " << instance);
      CHECK(seen.insert(instance).second);
      CHECK(preset_called(instance) == name);
    }
  }
  const std::pair<const char*, const char*> known[] = {{"p5", "h100-p5"},
                                                       {"P5.48xlarge", "h100-p5"},
                                                       {"bm.gpu.h100.8", "oci-h100"},
                                                       {"a3-megagpu-8g", "a3-mega"},
                                                       {"standard_nd96isr_h100_v5", "nd-h100-v5"},
                                                       {"p6-b200.48xlarge", "p6-b200"}};
  for (const auto& [instance, preset] : known) {
    INFO(instance);
    CHECK(preset_called(instance) == preset);
    CHECK(load_data_sheet(instance).name == preset);
  }
  CHECK_FALSE(preset_called("h100"));
  CHECK_FALSE(preset_called(""));
}

TEST_CASE("Clusters are found by words in name, device, vendor and instances", "[sim][catalog]") {
  const auto h100 = presets_with({"H100"});
  for (const char* name : {"dgx-h100", "h100-p5", "a3-mega", "nd-h100-v5", "oci-h100"})
    CHECK(holds(h100, name));
  CHECK_FALSE(holds(h100, "p5en"));
  CHECK(presets_with({"aws", "h200"}) == std::vector<std::string>{"p5e", "p5en"});
  CHECK(presets_with({"48xlarge", "b300"}) == std::vector<std::string>{"p6-b300"});
  const auto all = presets_with({});
  CHECK(all.size() == cluster_names().size());
  // Builders of devices, then clouds, then what nobody sells.
  CHECK(load_data_sheet(all.front()).about->vendor == "NVIDIA");
  CHECK(load_data_sheet(all.back()).about->vendor == "generic");
  CHECK_THAT(refusal({"dgx-h1000"}), Catch::Contains("did you mean 'dgx-h100'"));
  CHECK_THAT(refusal({"aws", "mi300x"}), Catch::Contains("no cluster has all of the words"));
}

// A preset that is like another one keeps its device: figures stand in one file.
TEST_CASE("Devices of one name are one device in all presets", "[sim][catalog]") {
  std::map<std::string, std::pair<std::string, Device>> devices;
  for (const std::string& name : cluster_names()) {
    const Device device = load_data_sheet(name).device;
    const auto [found, first] = devices.try_emplace(device.name, name, device);
    INFO(name << " and " << found->second.first);
    CHECK((first || found->second.second == device));
  }
}

// Peaks are units x FLOP a clock of a unit x clock (white papers): bf16, dense.
TEST_CASE("Peaks follow from units and clocks", "[sim][catalog]") {
  struct Sheet {
    const char* preset;
    double flop_per_clock, clock_ghz;
  };
  for (const Sheet& sheet : {Sheet{"dgx-a100", 2048, 1.41},
                             {"dgx-h100", 4096, 1.83},
                             {"8x-h800", 4096, 1.83},
                             {"gh200", 4096, 1.83},
                             {"8x-l4-pcie", 1024, 2.04},
                             {"8x-l40s-pcie", 1024, 2.49},
                             {"8x-rtx-pro-6000-pcie", 1024, 2.43},
                             {"8x-mi300x", 2048, 2.1},
                             {"8x-mi325x", 2048, 2.1},
                             {"8x-mi355x", 4096, 2.4}}) {
    INFO(sheet.preset);
    const Device device = load_data_sheet(sheet.preset).device;
    const double peak = device.num_units * sheet.flop_per_clock * sheet.clock_ghz / 1e3;
    CHECK(device.peak_tflop_per_s.at("bf16") == Approx(peak).epsilon(0.005));
    if (device.architecture != Architecture::Ampere)
      CHECK(device.peak_tflop_per_s.at("fp8") ==
            Approx(2 * device.peak_tflop_per_s.at("bf16")).epsilon(0.02));
  }
}

TEST_CASE("Networks carry what the clouds' documents say of a node", "[sim][catalog]") {
  const std::pair<const char*, double> nodes[] = {
      {"p4d", 400},         {"p4de", 400},         {"h100-p5", 3200},     {"p5e", 3200},
      {"p5en", 3200},       {"p6-b200", 3200},     {"p6-b300", 6400},     {"g6", 100},
      {"g6e", 400},         {"g7e", 1600},         {"a2-high", 100},      {"a2-mega", 100},
      {"a2-ultra", 100},    {"a3-high", 800},      {"a3-mega", 1600},     {"a3-ultra", 3200},
      {"a4", 3200},         {"a4x", 1600},         {"a4x-max", 3200},     {"gcp-g2", 100},
      {"gcp-g4", 400},      {"nd-h100-v5", 3200},  {"nd-gb200-v6", 1600}, {"nd-gb300-v6", 3200},
      {"nd-a100-v4", 1600}, {"nd-mi300x-v5", 3200}};
  for (const auto& [name, gbit_per_s] : nodes) {
    INFO(name);
    CHECK(network_gbit_per_s(load_data_sheet(name)) == Approx(gbit_per_s));
  }
  // 7 links of 64 GB/s, of which 48 are reached.
  CHECK(load_data_sheet("8x-mi300x").fabric.front().link_gb_per_s == Approx(7 * 48));
}

TEST_CASE("A dense model is priced on every machine", "[sim][catalog]") {
  for (const std::string& name : cluster_names()) {
    INFO(name);
    const Cluster preset = load_cluster_preset(name);
    if (preset.device.kind == DeviceKind::Cpu || preset.fabric.empty()) continue;
    const bool one_node = preset.fabric.back().ranks_per_group != 0;
    const int ranks = one_node ? preset.devices_per_node : std::max(16, preset.devices_per_node);
    const Cluster cluster = with_ranks(preset, ranks);
    const program::Plan plan = dense_plan(ranks);
    const StepPrediction step = Estimator(cluster).estimate(plan);
    CHECK(step.step_time_s > 0);
    CHECK(step.mfu > 0.005);
    CHECK(step.mfu < 0.9);
  }
}

// NVLS is NVSwitch's and NCCL's, its constants are of NVIDIA's kernels: nothing of it is on AMD.
TEST_CASE("What was fitted on NVIDIA's GPUs stays off AMD's", "[sim][catalog]") {
  for (const char* name : {"8x-mi300x", "8x-mi325x", "8x-mi355x", "oci-mi300x", "nd-mi300x-v5"}) {
    INFO(name);
    const Cluster sheet = load_data_sheet(name);
    const Cluster fitted = load_cluster_preset(name);
    CHECK_FALSE(is_measured(sheet.device.architecture));
    CHECK(fitted.communication.offers.empty());
    CHECK(fitted.communication.nvls == 0);
    CHECK(fitted.communication.own_part == 0);
    CHECK(fitted.communication.protocols == sheet.communication.protocols);
    CHECK(fitted.fabric == sheet.fabric);
    CHECK(fitted.device.efficiency.gemm == sheet.device.efficiency.gemm);
    CHECK(fitted.device.efficiency.attention_forward == sheet.device.efficiency.attention_forward);
    CHECK(fitted.device.efficiency.memory == sheet.device.efficiency.memory);
    CHECK(fitted.device.launch_us == sheet.device.launch_us);
  }
}

TEST_CASE("What describes a cluster is no part of its hash and may be left out", "[sim][catalog]") {
  const Cluster p5 = load_data_sheet("h100-p5");
  const Cluster plain = without_description(p5);
  CHECK_FALSE(plain.about);
  CHECK(hash_of(plain) == hash_of(p5));
  CHECK(parse_cluster(to_json(p5), "p5") == p5);
  CHECK_THAT(to_json(plain), !Catch::Contains("about") && !Catch::Contains("clock_ghz") &&
                                 !Catch::Contains("full_mesh") && !Catch::Contains("source"));
  CHECK(parse_cluster(to_json(plain), "p5") == plain);
  CHECK(data_sheet_of(without_description(load_cluster_preset("h100-p5"))) == p5);
}

}  // namespace meshplan::sim
