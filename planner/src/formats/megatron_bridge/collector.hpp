// Makes flags of a recipe's fields: flags.cpp those that are one flag each, and the model;
// running.cpp those that say how it is run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/megatron/bridge_fields.hpp"
#include "formats/megatron_bridge/flags.hpp"

namespace meshplan::planner::bridge {

class Collector {
 public:
  Collector(const Recipe& recipe, const std::optional<models::ModelSpec>& model)
      : recipe_(recipe), model_(model) {}

  RecipeFlags run();

 private:
  void assume(std::string line);

  const Json& at(std::string_view object, const std::string& field) const;
  bool is_true(std::string_view object, const std::string& field) const;
  bool was_set(std::string_view object, const std::string& field) const;
  std::int64_t degree(const std::string& field) const;

  [[noreturn]] void fail(std::string_view object, const std::string& field, const Json& value,
                         std::string_view expected) const;

  void add(const std::string& flag, const std::vector<std::string>& operands,
           const std::string& field);
  void remove(std::string_view flag);
  bool has(std::string_view flag) const;
  void switch_to(bool on, const std::string& flag, const std::string& field);

  /// The model that the recipe names, as flags where they have words for it.
  void describe();

  void start_from(const models::ModelSpec& spec, const std::string& name);

  /// A field that a bridge or --model stands for already, unless the recipe sets it.
  bool is_settled(std::string_view object, const std::string& field, std::string_view flag) const;

  void take(const char* object);

  const Json& at_root(const char* name) const;

  void take_field(const char* object, const std::string& field, const Json& value,
                  const megatron::FieldFlag& as);

  void activation();

  void heads();

  /// A provider of a family may build layers that its fields do not tell.
  void own_layers(const std::string& provider);

  /// Megatron-Bridge leaves experts whole where they are divided over ranks (its
  /// TransformerConfig), Megatron-LM cuts them like everything else.
  void experts();

  void precision();

  bool distributes() const;

  void distribution();

  /// training/comm_overlap.py: what it holds stands above the model, and above ddp where that says
  /// by itself that the optimizer is distributed.
  void overlap();

  /// A warm-up that outlasts the decay, as of performance recipes of few steps.
  void learning_rate();

  void batch();

  /// Those of the model and of the data, which must be one.
  void sequence();

  void set_vocabulary(std::int64_t size, const std::string& field);

  /// training/setup.py, _validate_and_set_vocab_size: the model's, or that of the tokenizer, which
  /// has one token more than NullTokenizer is given.
  void vocabulary();

  /// Activations on the host, for which a plan has another word.
  void kept_elsewhere();

  /// A model that flags cannot say is taken whole: what the recipe sets must be what it is.
  void require_unchanged();

  void list_others();

  const Recipe& recipe_;
  const std::optional<models::ModelSpec>& model_;
  RecipeFlags result_;
};

}  // namespace meshplan::planner::bridge
