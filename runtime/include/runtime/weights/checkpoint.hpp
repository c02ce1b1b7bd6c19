// Checkpoints on disk: one folder per step with a safetensors file from every rank and an index
// that says which part of which parameter lies where, with hashes. See docs/checkpoints.md.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "program/plan/plan.hpp"
#include "runtime/weights/parameter_source.hpp"

namespace meshplan::runtime {

struct SafeTensor;
class SafetensorsFile;

/// XXH3 of 64 bits, sixteen hexadecimal digits: tells accidents, not attacks.
std::string data_hash(std::span<const std::byte> data);

/// A saved box of a parameter: a dense fp32 tensor of `file`.
struct CheckpointPiece {
  std::string file;
  std::string tensor;
  std::vector<std::int64_t> begin;
  std::vector<std::int64_t> size;
  std::string hash;  // of the tensor's bytes
};

/// A parameter in one state, over all ranks.
struct CheckpointTensor {
  std::string state;  // "weights", "moment1", "moment2"
  std::string parameter;
  std::vector<std::int64_t> shape;  // global, unpadded
  std::vector<CheckpointPiece> pieces;
};

struct CheckpointFile {
  std::string name;
  std::int64_t bytes = 0;
  /// Of what no tensor's hash covers: the header of a safetensors file, all of any other. Absent
  /// in checkpoints written before 2026-11-27.
  std::optional<std::string> hash;
};

/// What a rank wrote.
struct CheckpointManifest {
  std::vector<CheckpointFile> files;
  std::vector<CheckpointTensor> tensors;
};

/// Which data a run reads, so that a resumed one goes on with the same.
struct DataIdentity {
  std::string file;                  // as it was named
  std::int64_t tokens = 0;           // of the whole file
  std::int64_t training_tokens = 0;  // without what is held out
  std::string fingerprint;           // of its size, first and last 64 KiB
};

/// Micikevicius et al. 2018, section 3.2; names and values of PyTorch's GradScaler.
struct LossScaling {
  double initial = 65536;
  double growth = 2;           // factor after `growth_interval` steps without an overflow
  double backoff = 0.5;        // factor after a step whose gradients were not finite
  int growth_interval = 2000;  // steps
};

/// Where the scaling of a run stands; a checkpoint keeps it.
struct LossScaleState {
  double scale = 1;
  std::int64_t good_steps = 0;     // since the scale changed last
  std::int64_t skipped_steps = 0;  // of the run: they updated nothing
};

/// What a run was started with that its plan does not say and that its arithmetic depends on.
struct RunSettings {
  int num_steps = 20;  // of the whole run: a learning rate may decay to the last one
  LossScaling loss_scaling;
};

/// Where a run stands, beside its parameters.
struct RunState {
  /// Random, drawn when the run starts, kept when it is resumed: tells what is left of one run from
  /// that of another. Absent in checkpoints written before 2026-11-30.
  std::optional<std::string> id = std::nullopt;
  std::int64_t step = 0;           // optimizer steps that are done
  std::int64_t next_sequence = 0;  // of the whole run's order: step * global batch
  std::uint64_t seed = 0;
  DataIdentity data;
  std::vector<double> losses;                // of the last steps, oldest first
  std::optional<LossScaleState> loss_scale;  // fp16
  std::optional<RunSettings> settings;       // absent in checkpoints written before 2026-11-29
};

struct CheckpointIndex {
  int schema_version = 1;
  RunState run;
  std::string plan_hash;
  std::string plan_json;  // an embedded object in the file
  CheckpointManifest manifest;
  std::vector<CheckpointFile> companions;  // Hugging Face files that travel along
};

constexpr const char* kIndexFile = "index.json";
constexpr const char* kCompanionFolder = "hugging_face";

std::string to_json(const CheckpointIndex& index);
std::string to_json(const CheckpointManifest& manifest);
CheckpointManifest parse_manifest(std::string_view text, const std::string& file);
/// @throws ConfigError for bad JSON, or if the text does not have the hash that it states
CheckpointIndex parse_index(std::string_view text, const std::string& file);

/// One complete checkpoint, open for reading; hashes are checked as pieces are read.
class Checkpoint final : public ParameterSource {
 public:
  /// Reads the index, opens every file and checks that sizes, headers and boxes fit.
  /// @throws ConfigError naming what is missing, truncated or does not fit
  explicit Checkpoint(const std::string& folder);
  ~Checkpoint() override;

  const std::string& folder() const { return folder_; }
  const CheckpointIndex& index() const { return index_; }
  /// The plan that saved it.
  program::Plan plan() const;
  /// Contents of the Hugging Face files, by name.
  std::map<std::string, std::string> companions() const;

  bool has(const std::string& state, const std::string& parameter) const override {
    return tensors_.contains({state, parameter});
  }
  /// @throws ConfigError for a parameter that it lacks or a piece that does not have its hash
  void read(const std::string& state, const std::string& parameter,
            const TensorTarget& target) override;
  std::string not_finite(const std::string& state, const std::string& parameter,
                         DType dtype) override;

  /// Reads everything. @throws ConfigError for the first thing that is damaged
  void verify();

 private:
  void open_files();
  std::string companion(const CheckpointFile& file) const;
  void check_tensors() const;
  const SafeTensor& data_of(const CheckpointPiece& piece);

  std::string folder_;
  CheckpointIndex index_;
  std::map<std::string, std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::pair<std::string, std::string>, const CheckpointTensor*> tensors_;
  std::set<std::pair<std::string, std::string>> verified_;  // (file, tensor)
};

/// Steps of the complete checkpoints in a folder, ascending. Unfinished ones are left out.
std::vector<std::int64_t> checkpoint_steps(const std::string& folder);
std::string checkpoint_path(const std::string& folder, std::int64_t step);
/// The step of a checkpoint whose own name, without its folder's, is `name`; absent for other
/// names.
std::optional<std::int64_t> checkpoint_step(std::string_view name);

/// The newest checkpoint in `folder`; nothing if there is no such folder or none was completed in
/// it (leftovers of unfinished saves, step-N.tmp, do not count).
/// @throws ConfigError if the newest folder step-N has no index: it was complete once; IoError if
/// the folder cannot be read
std::optional<std::string> newest_checkpoint(const std::string& folder);

/// The checkpoint that `given` names: one itself, or the newest in a folder of them.
/// @throws ConfigError if there is none, with what is there
std::string resolve_checkpoint(const std::string& given);

/// Opens a checkpoint that is to be resumed. @throws ConfigError that also says which other one is
/// intact if this one is not
Checkpoint open_checkpoint(const std::string& folder);

/// Where the run stands that `checkpoint` belongs to. @throws ConfigError as open_checkpoint
RunState run_state_of(const std::string& checkpoint);

/// Reads the checkpoints of a folder completely, the newest first, but for `except`.
std::optional<std::int64_t> newest_intact_step(const std::string& folder,
                                               const std::string& except);

/// Renames every checkpoint that is newer than the newest intact one to step-N.damaged, or
/// step-N.damaged-2 and so on, so that the intact one is the newest. Reads the data of those.
/// @returns their paths before, newest first. @throws IoError if one cannot be renamed
std::vector<std::string> set_damaged_aside(const std::string& folder);

/// The newest checkpoint of a folder whose sizes and headers are right: reads no data.
std::optional<std::int64_t> newest_readable_step(const std::string& folder);

/// What to type to continue from `checkpoint`, of that step: "--resume DIR/step-20". A run goes on
/// from the newest of its folder, so newer ones in `folder` are first moved aside.
std::string resume_command(const std::string& folder, std::int64_t step,
                           const std::string& checkpoint);

/// "; the newest intact one is DIR/step-20: --resume DIR/step-20", or that none is left: reads the
/// other checkpoints beside `damaged` completely.
std::string newest_intact_beside(const std::string& damaged);

enum class ResumeKind {
  Continue,     // optimizer state, step and data position too
  WeightsOnly,  // a new run from these weights
};

/// The parameters that a run under `plan` needs are in this checkpoint, of the same model; call it
/// before any rank starts. What a run that goes on may not change else: check_settings.
/// @throws ConfigError naming both values, the rule and a way out
void check_fits(const CheckpointIndex& index, const std::string& folder, const program::Plan& plan,
                ResumeKind kind);

/// Losses and capacities of the router, dropout and multi-token prediction modules.
enum class TrainingChoices {
  MustAgree,  // a run goes on
  MayDiffer,  // weights alone are taken over
};

/// @throws ConfigError naming the fields in which two architectures differ and both values, as far
/// as they change what the model computes
void check_same_architecture(const models::ModelSpec& given, const std::string& where,
                             const models::ModelSpec& expected,
                             TrainingChoices choices = TrainingChoices::MustAgree);

}  // namespace meshplan::runtime
