// Plans in the words of other training stacks: written as a folder of files to launch, and read
// back from somebody's launch script or configuration.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planner/rules/rules.hpp"
#include "program/certificate/certificate.hpp"
#include "program/plan/plan.hpp"
#include "sim/clusters/cluster.hpp"

namespace meshplan::planner {

/// A file of an exported folder.
struct ExportedFile {
  std::string name;  // below the folder
  std::string text;
  bool executable = false;
  bool operator==(const ExportedFile&) const = default;
};

struct ExportRequest {
  program::Plan plan;
  int devices_per_node = 8;
  std::string device;                // "H100-SXM5-80GB", as the cluster has it
  std::vector<std::string> reasons;  // why this plan: for its README
  std::string launch;                // of a job file: the format whose launch script it starts
  std::optional<program::Certificate> certificate;  // of the plan; goes along
  std::optional<sim::Cluster> cluster;              // where it will run, if that is known
};

/// A foreign configuration as the files that its reader may look at, by name; `main` is the one
/// that was named.
struct ImportRequest {
  std::map<std::string, std::string> files;
  std::string main;
  std::optional<models::ModelSpec> model;  // given beside the files: they need not describe it
  std::optional<int> ranks;                // likewise the number of GPUs
  std::map<std::string, std::string> environment;  // variables that a script leaves to its caller
  std::optional<std::string> arguments = {};       // of a script, as on a command line: "dsw 7B 1"
  /// The text of a file that `main` may name by a path beside it, and that is not among `files`.
  std::function<std::optional<std::string>(const std::string& path)> open = nullptr;
};

struct ImportedPlan {
  program::Plan plan;                    // with its stack, without cluster and prediction
  std::vector<std::string> assumptions;  // what the files leave open, and what was taken for it
  std::vector<std::string> ignored;  // settings that do not change what is predicted, as written
  /// Settings of the stack that a plan has no word for and its rules ask about, by the rules'
  /// names: booleans are 0 and 1.
  Facts facts;
};

/// One target.
struct Format {
  std::string_view name;  // "megatron"
  std::string_view
      software;  // profile of sim that prices what it runs; empty: a job file around another target
  std::string_view what;  // "Megatron-LM: launch script, model and parallel flags"
  /// Null: is not written. A file "README.md" is the part about starting it. @throws ConfigError
  /// for what the target cannot express, naming the plan's field and value
  std::vector<ExportedFile> (*write)(const ExportRequest& request) = nullptr;
  /// Null: is not read. @throws ConfigError with file, place, value and the nearest valid choice
  ImportedPlan (*read)(const ImportRequest& request) = nullptr;
  /// Does the file look like one of this format? Null: never.
  bool (*recognizes)(std::string_view name, std::string_view text) = nullptr;
};

/// All, in the order in which help lists them.
const std::vector<Format>& formats();
/// @throws ConfigError with the nearest one
const Format& format_of(std::string_view name);

struct ExportedFolder {
  std::vector<ExportedFile> files;
  /// What the written files ask of their stack, read back and priced on the request's cluster: step
  /// time, memory and whether that suffices, a sentence. Empty: a job around another target, no
  /// cluster, or a plan that cannot be priced so.
  std::string predicted;
};

/// The whole folder: what the format writes, the plan, and a README.md that says why this plan.
/// @throws ConfigError for a format that is not written, and for what it cannot express
ExportedFolder exported_folder(const Format& format, const ExportRequest& request);

/// What the files that export would write tell their stack besides the plan, as the rules of the
/// stack name it. Empty where it would write none.
Facts facts_of_export(const Format& format, const ExportRequest& request);

/// The format of a file by its name and content; null where none recognizes it.
const Format* recognized_format(std::string_view name, std::string_view text);

}  // namespace meshplan::planner
