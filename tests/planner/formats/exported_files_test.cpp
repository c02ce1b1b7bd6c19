// Exported folders as files in golden/. check_exports.py looks at the same files with Python, bash
// and the targets' own lists of settings. MESHPLAN_WRITE_GOLDEN=1 writes them anew.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "planner/formats/formats_support.hpp"
#include "support/project_folder.hpp"

namespace meshplan::planner::format_tests {
namespace {

namespace fs = std::filesystem;
using program::ContextMethod;
using program::Plan;
using program::RecomputeKind;
using program::ScheduleKind;

Plan llama_70b() {
  Plan plan = plan_of("llama3-70b", 8);
  plan.parallel = {.tp = 8, .pp = 4, .vpp = 2, .dp = 8, .sp = true};
  plan.schedule = ScheduleKind::Interleaved;
  plan.workload.seq_len = 8192;
  plan.workload.global_batch_size = 512;
  plan.zero_stage = 3;
  plan.zero_shard_group = 4;
  plan.recompute.kind = RecomputeKind::Selective;
  plan.workload.optimizer.warmup_steps = 200;
  return plan;
}

Plan qwen_experts() {
  Plan plan = plan_of("qwen3-30b-a3b", 8);
  plan.parallel = {.pp = 2, .dp = 8, .ep = 8};
  plan.schedule = ScheduleKind::ZbH1;
  plan.layers_per_stage = {26, 22};
  plan.workload.global_batch_size = 32;
  plan.zero_stage = 3;
  plan.recompute.kind = RecomputeKind::Full;
  return plan;
}

Plan zero_3() {
  Plan plan = plan_of("llama3-8b", 16);
  plan.zero_stage = 3;
  plan.offload_optimizer = true;
  plan.recompute.kind = RecomputeKind::Full;
  plan.workload.optimizer.warmup_steps = 100;
  return plan;
}

Plan ulysses() {
  Plan plan = plan_of("llama3-8b", 4);
  plan.parallel.cp = 4;
  plan.context_parallel = ContextMethod::Ulysses;
  plan.workload.seq_len = 32768;
  plan.zero_stage = 1;
  return plan;
}

Plan small_pipeline() {
  Plan plan = plan_of("llama3-8b", 4);
  plan.parallel = {.tp = 4, .pp = 2, .dp = 4, .sp = true};
  plan.zero_stage = 1;
  return plan;
}

Plan ring() {
  Plan plan = small_pipeline();
  plan.parallel.cp = 2;
  plan.context_parallel = ContextMethod::Ring;
  plan.recompute.kind = RecomputeKind::Full;
  return plan;
}

Plan mesh() {
  Plan plan = plan_of("llama3-8b", 4);
  plan.parallel = {.tp = 2, .cp = 2, .dp = 4};
  plan.zero_stage = 3;
  plan.zero_shard_group = 4;
  return plan;
}

struct Golden {
  const char* folder;
  const char* format;
  Plan plan;
};

std::vector<Golden> goldens() {
  return {{"torchtitan-llama3-70b", "torchtitan", llama_70b()},
          {"torchtitan-qwen3-30b", "torchtitan", qwen_experts()},
          {"deepspeed-zero3", "deepspeed", zero_3()},
          {"deepspeed-ulysses", "deepspeed", ulysses()},
          {"nanotron", "nanotron", small_pipeline()},
          {"accelerate-fsdp", "accelerate-fsdp", mesh()},
          {"accelerate-megatron", "accelerate-megatron", ring()},
          {"accelerate-deepspeed", "accelerate-deepspeed", zero_3()}};
}

std::string content(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace

TEST_CASE("Exported folders are those of golden/", "[formats][golden]") {
  const fs::path root = test::project_folder() / "tests/planner/formats/golden";
  const bool writes = std::getenv("MESHPLAN_WRITE_GOLDEN") != nullptr;
  for (const Golden& golden : goldens()) {
    const fs::path folder = root / golden.folder;
    const std::vector<ExportedFile> files =
        format_of(golden.format).write({.plan = golden.plan, .device = "H100-SXM5-80GB"});
    std::set<std::string> names;
    for (const ExportedFile& file : files) {
      names.insert(file.name);
      if (writes) {
        fs::create_directories(folder);
        std::ofstream(folder / file.name, std::ios::binary) << file.text;
      }
      INFO(golden.folder << "/" << file.name);
      CHECK(content(folder / file.name) == file.text);
      CHECK(file.executable == (file.name.ends_with(".sh")));
    }
    for (const auto& entry : fs::directory_iterator(folder))
      CHECK(names.contains(entry.path().filename().string()));
  }
}

}  // namespace meshplan::planner::format_tests
