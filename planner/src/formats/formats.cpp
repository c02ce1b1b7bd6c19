#include "planner/formats/formats.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/error.hpp"
#include "formats/accelerate/accelerate.hpp"
#include "formats/deepspeed/deepspeed.hpp"
#include "formats/jobs/jobs.hpp"
#include "formats/megatron/megatron.hpp"
#include "formats/nanotron/nanotron.hpp"
#include "formats/readme.hpp"
#include "formats/torchtitan/torchtitan.hpp"
#include "formats/trainer/trainer.hpp"
#include "planner/explain/priced_plan.hpp"
#include "planner/search/reasons.hpp"
#include "program/plan_file/plan_file.hpp"
#include "sim/stacks/release.hpp"
#include "sim/stacks/stack_memory.hpp"

namespace meshplan::planner {
namespace {

constexpr const char* kReadme = "README.md";

}  // namespace

const std::vector<Format>& formats() {
  static const std::vector<Format> kAll = {
      {.name = "megatron",
       .software = "megatron-core",
       .what = "Megatron-LM: launch script, model and parallel flags",
       .write = write_megatron,
       .read = read_megatron,
       .recognizes = recognizes_megatron},
      {.name = "megatron-bridge",
       .software = "megatron-core",
       .what = "Megatron-Bridge: a recipe in Python",
       .write = write_megatron_bridge,
       .read = read_megatron_bridge,
       .recognizes = recognizes_megatron_bridge},
      {.name = "torchtitan",
       .software = "torchtitan",
       .what = "torchtitan: configuration in Python, schedule, launch script",
       .write = write_torchtitan,
       .read = read_torchtitan,
       .recognizes = recognizes_torchtitan},
      {.name = "deepspeed",
       .software = "deepspeed",
       .what = "DeepSpeed: ds_config.json, launch script",
       .write = write_deepspeed,
       .read = read_deepspeed,
       .recognizes = recognizes_deepspeed},
      {.name = "nanotron",
       .software = "nanotron",
       .what = "nanotron: configuration in YAML, launch script",
       .write = write_nanotron,
       .read = read_nanotron,
       .recognizes = recognizes_nanotron},
      {.name = "accelerate-fsdp",
       .software = "torchtitan-eager",
       .what = "accelerate with PyTorch's FSDP2 or DDP: YAML, launch script",
       .write = write_accelerate_fsdp,
       .read = read_accelerate,
       .recognizes = recognizes_accelerate_fsdp},
      {.name = "accelerate-megatron",
       .software = "megatron-core",
       .what = "accelerate with its Megatron-LM plugin: YAML, launch script",
       .write = write_accelerate_megatron,
       .read = read_accelerate,
       .recognizes = recognizes_accelerate_megatron},
      {.name = "accelerate-deepspeed",
       .software = "deepspeed",
       .what = "accelerate with DeepSpeed: YAML, ds_config.json, launch script",
       .write = write_accelerate_deepspeed,
       .read = read_accelerate,
       .recognizes = recognizes_accelerate_deepspeed},
      {.name = "llama-factory",
       .software = "torchtitan-eager",
       .what = "LLaMA-Factory: YAML of a training, over DeepSpeed, FSDP or DDP",
       .read = read_llama_factory,
       .recognizes = recognizes_llama_factory},
      {.name = "axolotl",
       .software = "torchtitan-eager",
       .what = "axolotl: YAML of a training, over DeepSpeed, FSDP or DDP",
       .read = read_axolotl,
       .recognizes = recognizes_axolotl},
      {.name = "trainer-script",
       .software = "torchtitan-eager",
       .what =
           "Hugging Face's Trainer: launch script of LLaMA-Factory, axolotl, TRL, DeepSpeed-Chat",
       .read = read_trainer_script,
       .recognizes = recognizes_trainer_script},
      {.name = "slurm",
       .what = "Slurm: a job around another target's launch script",
       .write = write_slurm},
      {.name = "kubernetes",
       .what = "Kubernetes: an indexed Job around another target's launch script",
       .write = write_kubernetes},
  };
  return kAll;
}

const Format& format_of(std::string_view name) {
  std::vector<std::string> names;
  for (const Format& format : formats()) {
    if (format.name == name) return format;
    names.emplace_back(format.name);
  }
  const std::string software = sim::with_stack_name(name);
  for (const Format& format : formats())
    if (format.software == software) return format;
  throw ConfigError(
      fmt::format("unknown format '{}'; nearest: {}", name, nearest_choice(name, names)));
}

namespace {

/// The plan that the written files ask for; nothing if they leave a part of it to who starts them.
std::optional<ImportedPlan> read_back(const Format& format, const ExportRequest& request,
                                      const std::vector<ExportedFile>& files) {
  if (format.read == nullptr) return std::nullopt;
  ImportRequest back{.files = {},
                     .main = {},
                     .model = request.plan.model,
                     .ranks = request.plan.parallel.world_size(),
                     .environment = {}};
  for (const ExportedFile& file : files) {
    back.files[file.name] = file.text;
    if (back.main.empty() && format.recognizes(file.name, file.text)) back.main = file.name;
  }
  if (back.main.empty()) return std::nullopt;
  try {
    return format.read(back);
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

std::string prediction_of_files(const Format& format, const ExportRequest& request,
                                const std::vector<ExportedFile>& files) {
  if (!request.cluster) return "";
  const std::optional<ImportedPlan> back = read_back(format, request, files);
  if (!back || !broken_rules(back->plan).empty()) return "";
  const program::Stack& stack = back->plan.stack;
  const sim::StepPrediction step = price(back->plan, *request.cluster).step;
  return fmt::format("As {} runs these files a step takes {}; the fullest GPU needs {} of {}: {}.",
                     stack.software, format_seconds(step.step_time_s),
                     format_bytes(step.peak_memory_bytes), format_bytes(step.capacity_bytes),
                     sim::name_of(sim::verdict_of(step.need(), sim::memory_margin(stack, 0))));
}

}  // namespace

ExportedFolder exported_folder(const Format& format, const ExportRequest& request) {
  if (format.write == nullptr) {
    std::vector<std::string> written;
    for (const Format& each : formats())
      if (each.write != nullptr) written.emplace_back(each.name);
    throw ConfigError(fmt::format("format '{}' is read only; written are {}", format.name,
                                  fmt::join(written, ", ")));
  }
  std::vector<ExportedFile> files = format.write(request);
  std::string starting;
  for (const ExportedFile& file : files)
    if (file.name == kReadme) starting = file.text;
  std::erase_if(files, [](const ExportedFile& file) { return file.name == kReadme; });
  std::string predicted = prediction_of_files(format, request, files);
  files.push_back({.name = kReadme, .text = readme_of(format, request, starting, predicted)});
  files.push_back({.name = "plan.json", .text = program::to_json(request.plan)});
  if (request.certificate)
    files.push_back({.name = "certificate.json", .text = program::to_json(*request.certificate)});
  return {.files = std::move(files), .predicted = std::move(predicted)};
}

Facts facts_of_export(const Format& format, const ExportRequest& request) {
  if (format.write == nullptr) return {};
  std::vector<ExportedFile> files;
  try {
    files = format.write(request);
  } catch (const ConfigError&) {
    return {};
  }
  std::optional<ImportedPlan> back = read_back(format, request, files);
  if (!back) return {};
  Facts told = std::move(back->facts);
  const Facts before = facts_of(request.plan);
  for (const auto& [name, value] : facts_of(back->plan)) {
    const auto known = before.find(name);
    if (known == before.end() || known->second != value) told.emplace(name, value);
  }
  return told;
}

const Format* recognized_format(std::string_view name, std::string_view text) {
  for (const Format& format : formats())
    if (format.recognizes != nullptr && format.recognizes(name, text)) return &format;
  return nullptr;
}

}  // namespace meshplan::planner
