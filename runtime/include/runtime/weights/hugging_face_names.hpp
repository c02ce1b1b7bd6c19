// How Hugging Face names and lays out the weights of the families that it publishes: one table for
// import and export.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/model_spec.hpp"
#include "runtime/weights/tensor_box.hpp"

namespace meshplan::runtime {

/// A box of a parameter of ours, and where it lies in a tensor of theirs.
struct HuggingFacePart {
  std::string parameter;
  TensorBox box;
  std::string tensor;
  std::vector<std::int64_t> tensor_shape;
  std::int64_t offset = 0;            // of the box's first element in the tensor
  std::vector<std::int64_t> strides;  // in the tensor, by dimension of the parameter
  float shift = 0;                    // theirs is ours less this: 1 for the norms of Gemma
};

/// A parameter of the unsharded model.
struct GlobalParameter {
  std::string name;  // as in Program::parameters
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> sections;  // of the dimension that tensor parallelism shards
};

/// All parameters of a model, copies of its embedding once.
std::vector<GlobalParameter> global_parameters(const models::ModelSpec& spec);

/// Families with a table: "gpt2", "llama", ...; sorted.
std::vector<std::string> hugging_face_families();

/// What stands before every name in files that hold the whole language model and may be missing:
/// "transformer." of gpt2, "bert." of bert, else "".
std::string_view optional_prefix(const std::string& family);

/// Does a tensor (of any family) stand beside what the prefix names: a language head, a classifier?
bool is_outside_prefix(std::string_view name);

/// What transformers calls a tensor today: older files of bert have "gamma" and "beta" of norms.
std::string current_name(const std::string& family, std::string name);

/// The name that a tensor of a multimodal model has in its language model; nothing for those of its
/// other towers.
std::optional<std::string> text_tower_name(const std::string& name);

/// Is it a parameter of a multi-token prediction module?
bool is_of_prediction(std::string_view parameter);
/// "head.mtp.0.", with which the parameters of the first module, or of a parameter's, begin; of
/// another parameter "".
std::string module_of_prediction(int number);
std::string module_of_prediction(std::string_view parameter);
/// Has the family names for them?
bool names_predictions(const std::string& family);

/// Parts that cover every parameter once, grouped by tensor; but for prediction modules of families
/// that have no names for them.
/// @param rope_interleaved  the family stores rotated rows as pairs (2i, 2i + 1) where it can
/// @throws ConfigError if the family has no name for a parameter of this model, or no table
std::vector<HuggingFacePart> hugging_face_parts(const models::ModelSpec& spec,
                                                const std::string& family, bool rope_interleaved);

/// May a folder of the family lack the parameter, which then begins anew? The pooler and classifier
/// of a model that was pretrained without them, and prediction modules.
bool may_begin_anew(const std::string& family, const std::string& parameter);

/// Tensors that files of the family hold and the model does not need: buffers, the copy of a tied
/// embedding, what prediction modules share with the model or have no name for here, heads of
/// pretraining. `name` is without the optional prefix.
bool is_ignored(const models::ModelSpec& spec, const std::string& family, const std::string& name);

}  // namespace meshplan::runtime
