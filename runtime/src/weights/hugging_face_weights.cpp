#include "runtime/weights/hugging_face_weights.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <set>
#include <sys/stat.h>
#include <unistd.h>

#include "core/json_fields.hpp"
#include "core/line.hpp"
#include "core/paths.hpp"
#include "models/adapters.hpp"
#include "models/spec_difference.hpp"
#include "runtime/weights/checkpoint.hpp"
#include "weights/checkpoint_layout.hpp"
#include "weights/loadable_values.hpp"
#include "weights/merged_adapters.hpp"
#include "weights/safetensors.hpp"

namespace meshplan::runtime {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfig = "config.json";
constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kShardIndex = "model.safetensors.index.json";

constexpr std::array<std::string_view, 10> kCompanions = {
    kConfig,           "generation_config.json",  "tokenizer.json",    "tokenizer_config.json",
    "tokenizer.model", "special_tokens_map.json", "added_tokens.json", "vocab.json",
    "merges.txt",      "chat_template.jinja"};

/// Names of the weight files, in order. @throws ConfigError if there are none
std::vector<std::string> weight_files(const std::string& folder) {
  const std::string index_path = folder + "/" + kShardIndex;
  if (!is_there(index_path)) {
    if (is_there(folder + "/" + kSingleFile)) return {kSingleFile};
    const bool pickled = is_there(folder + "/pytorch_model.bin") ||
                         is_there(folder + "/pytorch_model.bin.index.json");
    throw ConfigError(fmt::format("{}: holds neither {} nor {}{}", folder, kSingleFile, kShardIndex,
                                  pickled ? "; pickled weights (pytorch_model.bin) run code when "
                                            "they are read: convert them to safetensors"
                                          : ""));
  }
  const Json root = parse_json(read_text(index_path), index_path);
  if (!root.is_object() || !root.contains("weight_map") || !root["weight_map"].is_object())
    throw ConfigError(fmt::format("{}: weight_map: expected an object", index_path));
  std::set<std::string> names;
  for (const auto& [tensor, file] : root["weight_map"].items()) {
    const std::string name = file.is_string() ? file.get<std::string>() : "";
    if (name.empty() || fs::path(name) != fs::path(name).filename())
      throw ConfigError(
          fmt::format("{}: weight_map.{}: expected the name of a file beside it, got {}",
                      index_path, short_line(tensor), quoted(file)));
    names.insert(name);
  }
  return {names.begin(), names.end()};
}

Json read_config(const std::string& folder) {
  const std::string path = folder + "/" + kConfig;
  return parse_json(read_text(path), path);
}

/// Not of every model that can be planned are the names of its tensors known here.
void require_named(const models::ImportedModel& config, const std::string& path) {
  const std::vector<std::string> known = hugging_face_families();
  if (std::ranges::find(known, config.model_type) == known.end())
    throw ConfigError(
        fmt::format("{}: weights of model_type '{}' are not read yet; they are read of {}", path,
                    config.model_type, fmt::join(known, ", ")));
}

/// @param path  of the config.json that `config` is, or is part of
void require_unquantized(const Json& config, const std::string& path) {
  const auto found = config.find("quantization_config");
  if (found == config.end() || !found->is_object() || found->empty()) return;
  const auto method = found->find("quant_method");
  throw ConfigError(
      fmt::format("{}: quantization_config: weights quantized by {} cannot be read; convert "
                  "them to bfloat16 and leave quantization_config out",
                  path, method == found->end() ? "?" : method->dump()));
}

}  // namespace

HuggingFaceModel::HuggingFaceModel(const std::string& folder, const std::string& assume)
    : folder_(folder) {
  const std::string path = folder + "/" + kConfig;
  const Json config = read_config(folder);
  config_ = models::import_hugging_face(config.dump(), path, assume);
  const auto own_type = config.find("model_type");
  is_assumed_ = !assume.empty() && (own_type == config.end() || *own_type != assume);
  const auto inside = config.find("text_config");  // a tower may stand under another name
  const Json& text = config_.is_text_tower && inside != config.end() ? *inside : config;
  require_unquantized(config, path);
  require_unquantized(text, path);
  require_named(config_, path);
  open_files();
  map_parts(text.value("rope_interleave", true));
  check_all_used();
}

HuggingFaceModel::~HuggingFaceModel() = default;

void HuggingFaceModel::open_files() {
  const std::string_view prefix = optional_prefix(model_type());
  for (const std::string& name : weight_files(folder_)) {
    files_.push_back(std::make_unique<SafetensorsFile>(folder_ + "/" + name));
    for (const auto& [tensor, data] : files_.back()->tensors()) {
      const std::optional<std::string> own =
          config_.is_text_tower ? text_tower_name(tensor) : tensor;
      if (!own) {
        ignored_.push_back(tensor);
        continue;
      }
      const bool prefixed = !prefix.empty() && own->starts_with(prefix);
      const std::string plain =
          current_name(model_type(), prefixed ? own->substr(prefix.size()) : *own);
      if (!tensors_.emplace(plain, &data).second)
        throw ConfigError(fmt::format("{}/{}: {} is in another file, too", folder_, name, tensor));
    }
  }
}

void HuggingFaceModel::map_parts(bool rope_interleaved) {
  std::vector<std::string> names;
  for (const auto& [name, data] : tensors_) names.push_back(name);
  std::vector<HuggingFacePart> parts =
      hugging_face_parts(config_.spec, model_type(), rope_interleaved);
  std::set<std::string> modules;  // that the folder has a tensor of
  for (const HuggingFacePart& part : parts)
    if (tensors_.contains(part.tensor)) modules.insert(module_of_prediction(part.parameter));
  for (HuggingFacePart& part : parts) {
    const auto found = tensors_.find(part.tensor);
    const std::string module = module_of_prediction(part.parameter);
    const bool is_damaged = !module.empty() && modules.contains(module);
    if (found == tensors_.end() && may_begin_anew(model_type(), part.parameter) && !is_damaged) {
      if (module.empty()) beginning_anew_.push_back(part.parameter);
      continue;
    }
    if (found == tensors_.end())
      throw ConfigError(fmt::format("{}: tensor {} is missing ({} needs it); nearest: {}", folder_,
                                    part.tensor, part.parameter,
                                    nearest_choice(part.tensor, names)));
    if (found->second->shape != part.tensor_shape)
      throw ConfigError(fmt::format("{}: tensor {} has shape {}, but {} by its {}", folder_,
                                    part.tensor, found->second->shape, part.tensor_shape, kConfig));
    try {
      static_cast<void>(found->second->dtype());
    } catch (const ConfigError& error) {
      throw ConfigError(fmt::format("{}: tensor {}: {}", folder_, part.tensor, error.what()));
    }
    parts_[part.parameter].push_back(std::move(part));
  }
  // Modules by their number: each has hundreds of tensors.
  for (int number = 1; number <= config_.spec.mtp_layers; ++number)
    if (!modules.contains(module_of_prediction(number)))
      beginning_anew_.push_back(fmt::format("prediction module {}", number));
}

bool HuggingFaceModel::begins_anew(const std::string& parameter) const {
  const bool may = may_begin_anew(model_type(), parameter);
  return models::is_of_adapter(parameter) || (may && !parts_.contains(parameter));
}

void HuggingFaceModel::check_all_used() {
  std::set<std::string> used;
  for (const auto& [parameter, parts] : parts_)
    for (const HuggingFacePart& part : parts) used.insert(part.tensor);
  for (const auto& [name, data] : tensors_) {
    if (used.contains(name)) continue;
    if (!is_ignored(config_.spec, model_type(), name))
      throw ConfigError(fmt::format("{}: tensor {} of shape {}: a {} of its {} has no place for it",
                                    folder_, name, data->shape, model_type(), kConfig));
    ignored_.push_back(name);
  }
}

std::string HuggingFaceModel::dtype_names() const {
  std::set<std::string> names;
  for (const auto& [name, data] : tensors_) names.insert(data->dtype_name);
  return fmt::format("{}", fmt::join(names, ", "));
}

std::map<std::string, std::string> HuggingFaceModel::companions() const {
  std::map<std::string, std::string> texts;
  for (const std::string_view name : kCompanions) {
    if (is_assumed_ && name == kConfig) continue;
    const std::string path = folder_ + "/" + std::string(name);
    if (is_file(path)) texts[std::string(name)] = read_text(path);
  }
  return texts;
}

namespace {

/// Theirs to ours, after the copy.
void shift_vector(const HuggingFacePart& part, const TensorTarget& target) {
  require_invariant(target.box.size.size() == 1, part.tensor + " is shifted and no vector");
  const auto both = intersection(part.box, target.box);
  if (!both) return;
  const std::int64_t first = both->begin[0] - target.box.begin[0];
  for (std::int64_t i = first; i < first + both->size[0]; ++i)
    target.data[i * target.strides[0]] += part.shift;
}

}  // namespace

void HuggingFaceModel::read(const std::string& state, const std::string& parameter,
                            const TensorTarget& target) {
  const auto found = parts_.find(parameter);
  if (state != kWeights || found == parts_.end())
    throw ConfigError(fmt::format("{}: holds no {} of {}", folder_, state, parameter));
  std::int64_t copied = 0;
  for (const HuggingFacePart& part : found->second) {
    const SafeTensor& tensor = *tensors_.at(part.tensor);
    copied += copy_overlap({.data = tensor.data.data() + part.offset * size_of(tensor.dtype()),
                            .dtype = tensor.dtype(),
                            .box = part.box,
                            .strides = part.strides},
                           target);
    if (part.shift != 0) shift_vector(part, target);
  }
  require_invariant(copied == target.box.elements(), "the parts of a parameter cover it");
}

std::string HuggingFaceModel::not_finite(const std::string& /*state*/, const std::string& parameter,
                                         DType dtype) {
  for (const HuggingFacePart& part : parts_.at(parameter))
    for (const auto& file : files_)
      for (const auto& [name, data] : file->tensors())
        if (&data == tensors_.at(part.tensor))
          if (const auto found = describe_not_finite(file->path(), name, data, dtype))
            return *found;
  return "";
}

bool is_hugging_face_folder(const std::string& folder) {
  return is_there(folder + "/" + kConfig) && !is_there(folder + "/" + kIndexFile);
}

// ---------------------------------------------------------------- export

namespace {

/// A tensor of theirs and what fills it.
struct OutputTensor {
  SafeTensorSpec spec;
  std::vector<HuggingFacePart> parts;
};

/// Tensors in groups of at most `max_bytes` (but at least one each).
std::vector<std::vector<OutputTensor>> make_shards(std::vector<OutputTensor> tensors,
                                                   std::int64_t max_bytes) {
  std::vector<std::vector<OutputTensor>> shards(1);
  std::int64_t filled = 0;
  for (OutputTensor& tensor : tensors) {
    const std::int64_t bytes = tensor.spec.bytes();
    if (!shards.back().empty() && filled + bytes > max_bytes) {
      shards.emplace_back();
      filled = 0;
    }
    filled += bytes;
    shards.back().push_back(std::move(tensor));
  }
  return shards;
}

std::vector<OutputTensor> output_tensors(const models::ModelSpec& spec, const std::string& type,
                                         DType dtype, bool rope_interleaved) {
  std::vector<OutputTensor> tensors;
  std::map<std::string, std::size_t> places;
  for (HuggingFacePart& part : hugging_face_parts(spec, type, rope_interleaved)) {
    const auto [place, is_new] = places.try_emplace(part.tensor, tensors.size());
    if (is_new) {
      const bool beside = is_outside_prefix(part.tensor);
      tensors.push_back(
          {.spec = {.name = (beside ? "" : std::string(optional_prefix(type))) + part.tensor,
                    .dtype = dtype,
                    .shape = part.tensor_shape}});
    }
    tensors[place->second].parts.push_back(std::move(part));
  }
  return tensors;
}

void write_shard(const std::string& path, const std::vector<OutputTensor>& tensors,
                 ParameterSource& source) {
  std::vector<SafeTensorSpec> specs;
  specs.reserve(tensors.size());
  for (const OutputTensor& tensor : tensors) specs.push_back(tensor.spec);
  SafetensorsWriter writer(path, specs, {{"format", "pt"}});  // transformers asks for it
  std::vector<float> values;
  std::vector<std::byte> converted;
  for (const OutputTensor& tensor : tensors) {
    values.resize(static_cast<std::size_t>(tensor.spec.bytes() / size_of(tensor.spec.dtype)));
    for (const HuggingFacePart& part : tensor.parts) {
      source.read(kWeights, part.parameter,
                  {.data = values.data() + part.offset, .box = part.box, .strides = part.strides});
      if (part.shift != 0)  // of a vector, which fills the tensor
        for (float& value : values) value -= part.shift;
    }
    converted.resize(static_cast<std::size_t>(tensor.spec.bytes()));
    convert_from_float(values, tensor.spec.dtype, converted.data());
    writer.append(converted);
  }
  writer.finish();
}

/// The model whose weights are written: without prediction modules where the family has no names
/// for theirs.
models::ModelSpec written_as(models::ModelSpec spec, const std::string& family) {
  if (!names_predictions(family)) spec.mtp_layers = 0;
  return spec;
}

/// What the checkpoint carries if it describes this model, else written anew.
Json output_config(const models::ModelSpec& spec,
                   const std::map<std::string, std::string>& companions, std::string& model_type) {
  const auto carried = companions.find(kConfig);
  if (carried != companions.end()) {
    Json config = parse_json(carried->second, kConfig);
    const models::ImportedModel imported = models::import_hugging_face(carried->second, kConfig);
    require_named(imported, kConfig);
    if (model_type.empty() || model_type == imported.model_type) {
      check_same_architecture(imported.spec, "the config.json in the checkpoint", spec,
                              TrainingChoices::MayDiffer);
      model_type = imported.model_type;
      if (imported.is_text_tower)  // the other towers' weights are not among those written
        return Json::parse(models::export_hugging_face(written_as(spec, model_type), model_type));
      const int modules = written_as(spec, model_type).mtp_layers;
      if (modules > 0 || config.contains("num_nextn_predict_layers"))
        config["num_nextn_predict_layers"] = modules;
      return config;
    }
  }
  if (model_type.empty()) model_type = models::matching_model_type(spec);
  return Json::parse(models::export_hugging_face(written_as(spec, model_type), model_type));
}

/// Choices of training that the config says otherwise.
std::vector<std::string> left_out(const models::ModelSpec& spec, const Json& config) {
  const models::ModelSpec back = models::import_hugging_face(config.dump(), kConfig).spec;
  std::vector<std::string> lines;
  for (const auto& [field, ours, theirs] : models::differences(spec, back))
    if (models::is_training_choice(field))
      lines.push_back(
          fmt::format("{} = {} (a reader of {} sees {})", field, ours, kConfig, theirs));
  return lines;
}

std::string_view torch_name(DType dtype) {
  return dtype == DType::BF16 ? "bfloat16" : dtype == DType::F16 ? "float16" : "float32";
}

/// A folder that is written beside the one that it becomes, and goes if it never does.
class UnfinishedModel {
 public:
  explicit UnfinishedModel(const std::string& folder) {
    if (is_there(folder) && !(is_folder(folder) && fs::is_empty(folder)))
      throw ConfigError(fmt::format("{}: exists and is not an empty folder; name another", folder));
    std::error_code error;
    finished_ = fs::weakly_canonical(fs::absolute(folder), error).string();
    while (finished_.size() > 1 && finished_.back() == '/') finished_.pop_back();
    const std::string path = fmt::format("{}.{}.tmp", finished_, ::getpid());
    if (!error) fs::create_directories(fs::path(path).parent_path(), error);
    if (error || ::mkdir(path.c_str(), 0755) != 0)
      throw IoError(fmt::format("{}: cannot be created: {}", path,
                                error ? error.message() : std::strerror(errno)));
    path_ = path;
  }
  UnfinishedModel(const UnfinishedModel&) = delete;
  UnfinishedModel& operator=(const UnfinishedModel&) = delete;
  ~UnfinishedModel() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }

  const std::string& path() const { return path_; }
  void finish() {
    sync_folder(path_);
    std::error_code ignored;
    fs::remove(finished_, ignored);  // an empty one
    replace_folder(path_, finished_);
    path_.clear();
  }

 private:
  std::string finished_;
  std::string path_;
};

}  // namespace

ExportedModel export_hugging_face(ParameterSource& source, const models::ModelSpec& spec,
                                  const std::map<std::string, std::string>& companions,
                                  const HuggingFaceExport& options) {
  if (spec.adapters) {
    MergedAdapters merged(source, *spec.adapters);
    models::ModelSpec base = spec;
    base.adapters.reset();
    ExportedModel result = export_hugging_face(merged, base, companions, options);
    result.left_out.push_back(
        fmt::format("adapters of rank {}, which are added to the weights", spec.adapters->rank));
    return result;
  }
  ExportedModel result{.model_type = options.model_type};
  Json config = output_config(spec, companions, result.model_type);
  result.left_out = left_out(spec, config);
  config.erase("dtype");  // its name since transformers 5; older readers know only the other
  config["torch_dtype"] = torch_name(options.dtype);
  const auto shards = make_shards(
      output_tensors(spec, result.model_type, options.dtype, config.value("rope_interleave", true)),
      options.max_shard_bytes);
  UnfinishedModel unfinished(options.folder);
  Json weight_map = Json::object();
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const std::string name = shards.size() == 1 ? kSingleFile
                                                : fmt::format("model-{:05d}-of-{:05d}.safetensors",
                                                              i + 1, shards.size());
    write_shard(fmt::format("{}/{}", unfinished.path(), name), shards[i], source);
    result.files.push_back(name);
    for (const OutputTensor& tensor : shards[i]) {
      weight_map[tensor.spec.name] = name;
      result.bytes += tensor.spec.bytes();
      ++result.tensors;
    }
  }
  const auto write = [&](const std::string& name, const std::string& text) {
    write_durably(unfinished.path() + "/" + name, text);
    result.files.push_back(name);
  };
  if (shards.size() > 1)
    write(kShardIndex,
          Json{{"metadata", {{"total_size", result.bytes}}}, {"weight_map", weight_map}}.dump(2) +
              "\n");
  write(kConfig, config.dump(2) + "\n");
  for (const auto& [name, text] : companions)
    if (name != kConfig) write(name, text);
  unfinished.finish();
  return result;
}

}  // namespace meshplan::runtime
