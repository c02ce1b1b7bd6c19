// Finding checkpoints, and whether one fits a plan.
#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <functional>

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

/// Keys of a model that change neither what it computes nor the shape of a parameter.
bool is_descriptive(const std::string& key, const models::ModelSpec& spec) {
  if (key == "max_positions")
    return spec.positions != models::Positions::Learned &&
           (!spec.rope_scaling || spec.rope_scaling->original_max_positions ||
            spec.rope_scaling->kind != models::RopeScalingKind::Dynamic);
  return key == "name" || key == "init_std";
}

/// Does this find no damage?
template <class Check>
bool passes(const Check& check) {
  try {
    check();
    return true;
  } catch (const ConfigError&) {
    return false;
  } catch (const IoError&) {
    return false;
  }
}

}  // namespace

std::vector<std::int64_t> checkpoint_steps(const std::string& folder) {
  std::vector<std::int64_t> steps;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const auto step = checkpoint_step(entry.path().filename().string());
    if (step && is_there(entry.path() / kIndexFile)) steps.push_back(*step);
  }
  std::ranges::sort(steps);
  return steps;
}

namespace {

/// The newest of a folder that `accepts` takes, by its path.
template <class Accepts>
std::optional<std::int64_t> newest_step(const std::string& folder, const Accepts& accepts) {
  std::vector<std::int64_t> steps = checkpoint_steps(folder);
  std::ranges::reverse(steps);
  for (const std::int64_t step : steps)
    if (accepts(checkpoint_path(folder, step))) return step;
  return std::nullopt;
}

}  // namespace

std::string checkpoint_path(const std::string& folder, std::int64_t step) {
  return fmt::format("{}/{}{}", folder, kPrefix, step);
}

std::optional<std::int64_t> checkpoint_step(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  std::int64_t step = 0;
  const char* end = name.data() + name.size();
  const auto parsed = std::from_chars(name.data() + kPrefix.size(), end, step);
  if (parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
  return step;
}

std::optional<std::string> newest_checkpoint(const std::string& folder) {
  std::error_code error;
  std::optional<std::int64_t> newest;
  for (const auto& entry : fs::directory_iterator(folder, error))
    newest = std::max(newest, checkpoint_step(entry.path().filename().string()));
  if (error == std::errc::no_such_file_or_directory) return std::nullopt;
  if (error) throw IoError(fmt::format("{}: cannot be read: {}", folder, error.message()));
  if (!newest) return std::nullopt;
  std::string path = checkpoint_path(folder, *newest);
  // A save is renamed to step-N with its index in it, so nothing unfinished has this name.
  if (!is_there(fs::path(path) / kIndexFile))
    throw ConfigError(
        fmt::format("{0}: has no {1}: it is damaged; move it aside (mv {2} {2}.damaged){3}", path,
                    kIndexFile, shell_quoted(path), newest_intact_beside(path)));
  return path;
}

std::string resolve_checkpoint(const std::string& given) {
  if (is_there(fs::path(given) / kIndexFile)) return given;
  if (!is_folder(given)) throw ConfigError(fmt::format("{}: no such checkpoint folder", given));
  const std::optional<std::string> newest = newest_checkpoint(given);
  if (!newest)
    throw ConfigError(fmt::format("{}: holds no complete checkpoint (a folder step-N with an {})",
                                  given, kIndexFile));
  return *newest;
}

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
  return newest_step(folder, [&](const std::string& candidate) {
    return fs::path(candidate).lexically_normal() != left_out &&
           passes([&] { Checkpoint(candidate).verify(); });
  });
}

std::vector<std::string> set_damaged_aside(const std::string& folder) {
  std::vector<std::int64_t> steps;  // also of folders without an index
  std::error_code failed;
  for (const auto& entry : fs::directory_iterator(folder, failed))
    if (const auto step = checkpoint_step(entry.path().filename().string())) steps.push_back(*step);
  std::ranges::sort(steps, std::greater<>());
  std::vector<std::string> damaged;
  for (const std::int64_t step : steps) {
    const std::string path = checkpoint_path(folder, step);
    if (passes([&] { Checkpoint(path).verify(); })) break;
    std::string aside = path + ".damaged";
    for (int copy = 2; is_there(aside); ++copy) aside = fmt::format("{}.damaged-{}", path, copy);
    fs::rename(path, aside, failed);
    if (failed == std::errc::no_such_file_or_directory) continue;  // another rank was quicker
    if (failed)
      throw IoError(fmt::format("{}: is damaged, and cannot be renamed to {}: {}", path, aside,
                                failed.message()));
    damaged.push_back(path);
  }
  return damaged;
}

std::optional<std::int64_t> newest_readable_step(const std::string& folder) {
  return newest_step(folder, [](const std::string& candidate) {
    return passes([&] { const Checkpoint opened(candidate); });
  });
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

RunState run_state_of(const std::string& checkpoint) {
  return open_checkpoint(checkpoint).index().run;
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
