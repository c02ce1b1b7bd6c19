// Finding checkpoints, and whether one fits a plan.
#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/json_fields.hpp"
#include "core/paths.hpp"
#include "core/quoting.hpp"
#include "models/spec_difference.hpp"
#include "program/lower/lower.hpp"
#include "program/plan_file/plan_file.hpp"
#include "runtime/weights/checkpoint.hpp"
#include "weights/checkpoint_layout.hpp"

namespace meshplan::runtime {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step-";

std::optional<std::int64_t> step_of(const std::string& name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  std::int64_t step = 0;
  const char* end = name.data() + name.size();
  const auto parsed = std::from_chars(name.data() + kPrefix.size(), end, step);
  if (parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
  return step;
}

/// Keys of a model that change neither what it computes nor the shape of a parameter.
bool is_descriptive(const std::string& key, const models::ModelSpec& spec) {
  if (key == "max_positions")
    return spec.positions != models::Positions::Learned &&
           (!spec.rope_scaling || spec.rope_scaling->original_max_positions ||
            spec.rope_scaling->kind != models::RopeScalingKind::Dynamic);
  return key == "name" || key == "init_std";
}

std::string optimizer_name(const program::Plan& plan) {
  return Json::parse(program::to_json(plan)).at("workload").at("optimizer").at("kind");
}

}  // namespace

std::vector<std::int64_t> checkpoint_steps(const std::string& folder) {
  std::vector<std::int64_t> steps;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const auto step = step_of(entry.path().filename().string());
    if (step && is_there(entry.path() / kIndexFile)) steps.push_back(*step);
  }
  std::ranges::sort(steps);
  return steps;
}

std::string checkpoint_path(const std::string& folder, std::int64_t step) {
  return fmt::format("{}/{}{}", folder, kPrefix, step);
}

std::string resolve_checkpoint(const std::string& given) {
  if (is_there(fs::path(given) / kIndexFile)) return given;
  if (!is_folder(given)) throw ConfigError(fmt::format("{}: no such checkpoint folder", given));
  const std::vector<std::int64_t> steps = checkpoint_steps(given);
  if (steps.empty())
    throw ConfigError(fmt::format("{}: holds no complete checkpoint (a folder step-N with an {})",
                                  given, kIndexFile));
  return checkpoint_path(given, steps.back());
}

namespace {

bool is_intact(const std::string& checkpoint) {
  try {
    Checkpoint(checkpoint).verify();
    return true;
  } catch (const ConfigError&) {
    return false;
  } catch (const IoError&) {
    return false;
  }
}

}  // namespace

std::string resume_command(const std::string& folder, std::int64_t step,
                           const std::string& checkpoint) {
  std::string moves;
  for (const std::int64_t newer : checkpoint_steps(folder))
    if (newer > step)
      moves += fmt::format("mv {0} {0}.damaged && ", shell_quoted(checkpoint_path(folder, newer)));
  const std::string resume = "--resume " + shell_quoted(checkpoint);
  return moves.empty() ? resume : fmt::format("{}meshplan run ... {}", moves, resume);
}

std::optional<std::int64_t> newest_intact_step(const std::string& folder,
                                               const std::string& except) {
  const fs::path left_out = fs::path(except).lexically_normal();
  std::vector<std::int64_t> steps = checkpoint_steps(folder);
  std::ranges::reverse(steps);
  for (const std::int64_t step : steps) {
    const std::string candidate = checkpoint_path(folder, step);
    if (fs::path(candidate).lexically_normal() != left_out && is_intact(candidate)) return step;
  }
  return std::nullopt;
}

std::string newest_intact_beside(const std::string& damaged) {
  const fs::path path = fs::path(damaged).lexically_normal();
  const std::string folder =
      path.has_parent_path() ? path.parent_path().string() : std::string(".");
  const std::optional<std::int64_t> step = newest_intact_step(folder, damaged);
  if (!step) return "; no other checkpoint beside it is intact";
  const std::string intact = checkpoint_path(folder, *step);
  return fmt::format("; the newest intact one is {}: {}", intact,
                     resume_command(folder, *step, intact));
}

Checkpoint open_checkpoint(const std::string& folder) {
  try {
    return Checkpoint(folder);
  } catch (const ConfigError& error) {
    throw ConfigError(error.what() + newest_intact_beside(folder));
  }
}

std::uint64_t seed_of(const std::string& checkpoint) {
  return open_checkpoint(checkpoint).index().run.seed;
}

void check_same_architecture(const models::ModelSpec& given, const std::string& where,
                             const models::ModelSpec& expected, TrainingChoices choices) {
  std::vector<std::string> found;
  for (const auto& [field, left, right] : models::differences(given, expected)) {
    if (is_descriptive(field, expected)) continue;
    if (choices == TrainingChoices::MayDiffer && models::is_training_choice(field)) continue;
    found.push_back(fmt::format("{} is {}, but {} in the plan", field, left, right));
  }
  if (!found.empty())
    throw ConfigError(fmt::format("{}: another model than the plan's {}: {}", where, expected.name,
                                  fmt::join(found, "; ")));
}

namespace {

/// What decides which documents a sequence holds, and where. (The sample of lengths only predicts.)
void check_packing(const program::Documents& saved, const program::Documents& now,
                   const std::string& folder) {
  const auto text = [](const std::optional<int>& token) {
    return token ? std::to_string(*token) : std::string("none");
  };
  const auto on = [](bool packed) { return std::string(packed ? "on" : "off"); };
  const std::pair<const char*, std::pair<std::string, std::string>> options[] = {
      {"packed (--packed)", {on(saved.packed), on(now.packed)}},
      {"end_of_document (--end-of-document)",
       {text(saved.end_of_document), text(now.end_of_document)}},
      {"pad_multiple (--pad-documents)",
       {std::to_string(saved.pad_multiple), std::to_string(now.pad_multiple)}}};
  for (const auto& [name, values] : options)
    if (values.first != values.second)
      throw ConfigError(fmt::format(
          "{}: documents: {} is {}, but {} in the plan: its sequences would hold other tokens, and "
          "the place in the data would be another; use {}, or start a new run from the weights "
          "with --init-from {}",
          folder, name, values.first, values.second, values.first, folder));
}

}  // namespace

void check_fits(const CheckpointIndex& index, const std::string& folder, const program::Plan& plan,
                ResumeKind kind) {
  const program::Plan saved =
      program::parse_plan(index.plan_json, folder + "/" + kIndexFile + ": plan");
  check_same_architecture(
      saved.model, folder, plan.model,
      kind == ResumeKind::Continue ? TrainingChoices::MustAgree : TrainingChoices::MayDiffer);
  std::map<std::pair<std::string, std::string>, const CheckpointTensor*> tensors;
  for (const CheckpointTensor& tensor : index.manifest.tensors)
    tensors[{tensor.state, tensor.parameter}] = &tensor;
  const program::OptimizerConfig& optimizer = plan.workload.optimizer;
  if (kind == ResumeKind::Continue) {
    if (saved.workload.optimizer.kind != optimizer.kind)
      throw ConfigError(fmt::format(
          "{}: its optimizer is {}, but {} in the plan, and their states do not convert; use {}, "
          "or "
          "start a new run from the weights with --init-from {}",
          folder, optimizer_name(saved), optimizer_name(plan), optimizer_name(saved), folder));
    const std::pair<const char*, std::pair<std::int64_t, std::int64_t>> sizes[] = {
        {"seq_len", {saved.workload.seq_len, plan.workload.seq_len}},
        {"global_batch_size", {saved.workload.global_batch_size, plan.workload.global_batch_size}}};
    for (const auto& [name, values] : sizes)
      if (values.first != values.second)
        throw ConfigError(fmt::format(
            "{}: {} is {}, but {} in the plan: the place in the data would be another; use {}, or "
            "start a new run from the weights with --init-from {}",
            folder, name, values.first, values.second, values.first, folder));
    check_packing(saved.workload.documents, plan.workload.documents, folder);
  }
  for (const program::Program& program : program::lower_all(plan))
    for (const StateRegion& state : state_regions(program)) {
      if (kind == ResumeKind::WeightsOnly && state.name != kWeights) continue;
      for (const program::Parameter& parameter : program.parameters) {
        if (parameter.frozen && state.name != kWeights) continue;
        const auto found = tensors.find({state.name, parameter.name});
        if (found == tensors.end() && tensors.contains({kWeights, parameter.name}))
          throw ConfigError(fmt::format(
              "{}: holds no {} of {}: it was frozen there (frozen [{}]), but is "
              "trained in the plan; freeze it here, too, or start a new run from the "
              "weights with --init-from {}",
              folder, state.name, parameter.name, fmt::join(saved.frozen, ", "), folder));
        if (found == tensors.end())
          throw ConfigError(fmt::format("{}: holds no {} of {}, which the plan's {} needs", folder,
                                        state.name, parameter.name, plan.model.name));
        if (found->second->shape != parameter.global_shape)
          throw ConfigError(fmt::format("{}: {} of {} has shape {}, but {} in the plan", folder,
                                        state.name, parameter.name, found->second->shape,
                                        parameter.global_shape));
      }
    }
}

}  // namespace meshplan::runtime
