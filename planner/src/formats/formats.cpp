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
#include "program/plan_file/plan_file.hpp"

namespace meshplan::planner {
namespace {

constexpr const char* kReadme = "README.md";

}  // namespace

const std::vector<Format>& formats() {
  static const std::vector<Format> all = {
      {.name = "megatron",
       .software = "megatron-core",
       .what = "Megatron-LM: launch script, model and parallel flags",
       .write = write_megatron,
       .read = read_megatron,
       .recognizes = recognizes_megatron},
      {.name = "megatron-bridge",
       .software = "megatron-core",
       .what = "Megatron-Bridge: a recipe in Python",
       .write = write_megatron_bridge},
      {.name = "torchtitan",
       .software = "torchtitan",
       .what = "torchtitan: configuration in Python, schedule, launch script",
       .write = write_torchtitan,
       .read = read_torchtitan,
       .recognizes = recognizes_torchtitan},
      {.name = "deepspeed",
       .software = "megatron-deepspeed-2022",
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
       .software = "megatron-deepspeed-2022",
       .what = "accelerate with DeepSpeed: YAML, ds_config.json, launch script",
       .write = write_accelerate_deepspeed,
       .read = read_accelerate,
       .recognizes = recognizes_accelerate_deepspeed},
      {.name = "slurm",
       .what = "Slurm: a job around another target's launch script",
       .write = write_slurm},
      {.name = "kubernetes",
       .what = "Kubernetes: an indexed Job around another target's launch script",
       .write = write_kubernetes},
  };
  return all;
}

const Format& format_of(std::string_view name) {
  std::vector<std::string> names;
  for (const Format& format : formats()) {
    if (format.name == name) return format;
    names.emplace_back(format.name);
  }
  throw ConfigError(
      fmt::format("unknown format '{}'; nearest: {}", name, nearest_choice(name, names)));
}

std::vector<ExportedFile> exported_folder(const Format& format, const ExportRequest& request) {
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
  files.push_back({.name = kReadme, .text = readme_of(format, request, starting)});
  files.push_back({.name = "plan.json", .text = program::to_json(request.plan)});
  if (request.certificate)
    files.push_back(
        {.name = "certificate.json", .text = program::to_json(*request.certificate)});
  return files;
}

const Format* recognized_format(std::string_view name, std::string_view text) {
  for (const Format& format : formats())
    if (format.recognizes != nullptr && format.recognizes(name, text)) return &format;
  return nullptr;
}

}  // namespace meshplan::planner
