// Models as Hugging Face publishes them: config.json, safetensors (one file or shards with an
// index), tokenizer files.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "models/hugging_face.hpp"
#include "runtime/weights/hugging_face_names.hpp"
#include "runtime/weights/parameter_source.hpp"

namespace meshplan::runtime {

struct SafeTensor;
class SafetensorsFile;

/// A folder as `from_pretrained` reads it, open: weights are mapped, never loaded as a whole.
class HuggingFaceModel final : public ParameterSource {
 public:
  /// @param assume  model_type to read its config.json as when its own is not known; "" = none
  /// @throws ConfigError naming the file and the tensor that is missing, has another shape or that
  /// the model has no place for
  explicit HuggingFaceModel(const std::string& folder, const std::string& assume = "");
  ~HuggingFaceModel() override;

  const std::string& folder() const { return folder_; }
  const models::ModelSpec& spec() const { return config_.spec; }
  const models::ImportedModel& config() const { return config_; }
  const std::string& model_type() const { return config_.model_type; }
  std::int64_t num_tensors() const { return std::ssize(tensors_); }
  std::int64_t num_files() const { return std::ssize(files_); }
  /// As in the files: "BF16", or several joined by ", ".
  std::string dtype_names() const;
  /// Tensors that the model does not need.
  const std::vector<std::string>& ignored() const { return ignored_; }
  /// What the folder lacks and may lack: parameters, and "prediction module 1" as a whole.
  const std::vector<std::string>& beginning_anew() const { return beginning_anew_; }
  bool begins_anew(const std::string& parameter) const override;
  /// Contents of config.json and of the tokenizer's files, by name. A config.json that was read as
  /// another model_type stays behind: what is exported has one of its own.
  std::map<std::string, std::string> companions() const;

  void read(const std::string& state, const std::string& parameter,
            const TensorTarget& target) override;
  std::string not_finite(const std::string& state, const std::string& parameter,
                         DType dtype) override;

 private:
  void open_files();
  void map_parts(bool rope_interleaved);
  void check_all_used();

  std::string folder_;
  bool is_assumed_ = false;
  models::ImportedModel config_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, const SafeTensor*> tensors_;           // without the optional prefix
  std::map<std::string, std::vector<HuggingFacePart>> parts_;  // by parameter
  std::vector<std::string> ignored_;
  std::vector<std::string> beginning_anew_;
};

/// The folder holds a Hugging Face model rather than a checkpoint of ours.
bool is_hugging_face_folder(const std::string& folder);

struct HuggingFaceExport {
  std::string folder;
  std::string model_type;  // "" = that of the carried config.json, else the first that fits
  DType dtype = DType::F32;
  std::int64_t max_shard_bytes = 5'000'000'000;  // save_pretrained's default
};

struct ExportedModel {
  std::string model_type;
  std::int64_t tensors = 0;
  std::int64_t bytes = 0;
  std::vector<std::string> files;     // all, also config.json and the tokenizer's
  std::vector<std::string> left_out;  // choices of training that config.json has no key for
};

/// Writes the weights of a model, its config.json and what travels along. The folder appears when
/// it is complete. Adapters are added to the weights beside them.
/// @param companions  as Checkpoint::companions
/// @throws ConfigError if the folder holds something, or the model type cannot express the model;
/// IoError
ExportedModel export_hugging_face(ParameterSource& source, const models::ModelSpec& spec,
                                  const std::map<std::string, std::string>& companions,
                                  const HuggingFaceExport& options);

}  // namespace meshplan::runtime
