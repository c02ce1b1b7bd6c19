// What a function of a Python file returns, followed statement by statement through the files that
// it imports, without a Python and without effects. Whatever only a run could tell is unknown, and
// so is all that depends on it.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json_fields.hpp"
#include "python/syntax.hpp"
#include "python/value.hpp"

namespace meshplan::planner::python {

/// Bounds, so that no file takes long or much memory.
constexpr int kDeepestCalls = 16;
constexpr int kDeepestCopy = 48;  // what nests deeper is shared
constexpr int kDeepestEvaluation = 600;
constexpr std::size_t kMostSteps = std::size_t{1} << 21;
constexpr std::size_t kMostObjects = std::size_t{1} << 17;
constexpr std::size_t kMostItems = std::size_t{1} << 14;  // of a list or dict
constexpr std::size_t kMostModules = 96;
constexpr std::size_t kMostValues = std::size_t{1} << 17;  // of the JSON that is made of it

/// Fields that a call of something unknown is known to give its result, by the call: its name, its
/// arguments and the value whose method it is.
using GivenFields = std::function<std::vector<std::pair<std::string, Value>>(const Object& call)>;

/// The text of a file, absent where there is none.
using ReadFile = std::function<std::optional<std::string>(const std::string& path)>;

struct Scope {
  std::map<std::string, Value, std::less<>> names;
  Scope* outer = nullptr;
  Module* module = nullptr;
};

struct Module {
  std::string file;
  std::string text;
  Block body;
  Scope* globals = nullptr;
};

class Interpreter {
 public:
  /// @param transforms  methods that are not followed and give back what they are given, with their
  /// object in the list kTransforms of it
  explicit Interpreter(ReadFile read_file, std::vector<std::string> transforms = {})
      : read_file_(std::move(read_file)), transforms_(std::move(transforms)) {}

  /// Parses a file and follows its statements outside of functions.
  /// @throws ConfigError "FILE:LINE: ..." for what is no Python, and beyond the bounds
  Module& load(const std::string& file, std::string text);

  /// What a function of a file returns.
  Value returned_by(Module& module, const std::string& name,
                    std::vector<std::pair<std::string, Value>> arguments = {});

  void give_fields(GivenFields given_fields) { given_fields_ = std::move(given_fields); }
  /// What imported functions give back, by their whole names: "torch.cuda.is_available".
  void give_results(std::map<std::string, Value> results) { results_ = std::move(results); }
  /// Functions that are not followed, though they are among the files: their calls are shown.
  void leave_calls(std::vector<std::string> names) { opaque_ = std::move(names); }

  /// The function that a name of the module stands for, also if it is imported; null: none does.
  const Statement* function_of(Module& module, const std::string& name);

  /// Names of the classes that it is an instance of, its own first.
  std::vector<std::string> classes_of(const Value& value);

  /// @param initial  also fields that nobody set but the class
  Json to_json(const Value& value, bool initial);

  /// "FILE:12: 'while ...' is not understood", of the files whose notes are asked for.
  std::vector<std::string> take_notes() { return std::move(notes_); }
  void note_only(const Module* module) { noted_ = module; }

 private:
  enum class Flow { Next, Break, Continue, Return };
  struct Frame {
    Scope* scope = nullptr;
    Value returned;
    bool uncertain = false;  // a branch that is not known may have returned
    std::string why;         // its text and place
    std::string where;
  };
  struct Arguments {
    std::vector<Value> positional;
    std::vector<std::pair<std::string, Value>> named;
    std::string unpacked;  // the text of what is not known
  };
  class Depth;
  struct Raised {};  // by a statement of a try

  // interpreter.cpp: statements
  Flow run(const Block& block, Frame& frame);
  Flow run(const Statement& statement, Frame& frame);
  Flow branch(const Statement& statement, Frame& frame);
  Flow loop(const Statement& statement, Frame& frame);
  Flow attempt(const Statement& statement, Frame& frame);
  void assign(const Statement& statement, Frame& frame);
  void assign(const Node& target, const Value& value, Frame& frame);
  void set_attribute(const Value& of, const std::string& field, Value value);
  void set_item(const Value& of, const Value& key, Value value);
  void forget(const Block& block, Frame& frame);
  void forget(const Statement& statement, Frame& frame);
  void touch(const Node& call, Frame& frame);
  void touch(const Value& value, const Value& call, int depth);
  void import(const Statement& statement, Frame& frame);
  void note(const Statement& statement, const Frame& frame);

  // expressions.cpp
  Value value_of(const Node& node, Frame& frame);
  Value evaluated(const Node& node, Frame& frame);
  Value name_of(const Node& node, Frame& frame);
  Value attribute_of(const Node& node, Frame& frame);
  Value subscript_of(const Node& node, Frame& frame);
  Value slice_of(const Node& node, const Value& of, const Node& slice, Frame& frame);
  Value binary_of(const Node& node, Frame& frame);
  Value comparison_of(const Node& node, Frame& frame);
  Value list_of(const Node& node, Frame& frame);
  Value dict_of(const Node& node, Frame& frame);
  Value comprehension_of(const Node& node, Frame& frame);
  Value junction_of(const Node& node, Frame& frame);
  void each_of(const Node& node, std::size_t clause, Frame& frame, Object& into, bool& known);
  std::optional<bool> truth(const Value& value) const;
  std::optional<bool> equal(const Value& left, const Value& right, int depth) const;
  std::optional<bool> contains(const Value& container, const Value& value) const;

  // calls.cpp
  Value call_of(const Node& node, Frame& frame);
  bool arguments_of(const Node& node, Frame& frame, Arguments& arguments);
  Value called(const Value& callee, Arguments arguments, const Node& node, Frame& frame);
  Value called_function(Object& function, Arguments arguments, const Node& node, Frame& frame);
  bool bind(Object& function, Arguments& arguments, Scope& scope, const Node& node, Frame& frame);
  bool transform(const Node& function, const Value& self, Arguments& arguments);
  Value symbolic(std::string name, Arguments arguments);
  Value instance_of(Object& of_class, Arguments arguments);
  Value built_in(const std::string& name, Arguments& arguments, const Node& node, Frame& frame,
                 bool& found);
  Value copying(const std::string& name, Arguments& arguments, const Node& node, bool& found);
  Value method(const Object& method, Arguments& arguments, const Node& node, Frame& frame);
  Value copied(const Value& value, int depth);
  std::optional<std::vector<Value>> items_of(const Value& value);
  Value cast(const std::string& name, const Value& value, const Node& node, Frame& frame);
  Value extreme(bool least, const std::vector<Value>& values) const;
  std::optional<bool> has_attribute(const Value& of, const std::string& field);
  Value text_method(const Object& method, const Arguments& arguments, const Node& node,
                    Frame& frame);

  // classes.cpp
  Value attribute(const Value& of, const std::string& field, int depth = 0);
  std::optional<Value> initial_field(Object& of_class, const std::string& field, int depth);
  void initialize(Object& instance);
  std::vector<Object*> bases_of(Object& of_class, int depth, bool& known);
  std::optional<bool> is_instance(const Value& value, const Value& of_class);
  Value resolved(const Value& value, int depth = 0);
  Module* find_module(const std::string& importer, const std::string& module);
  Module* try_module(const std::string& path);
  std::vector<std::pair<std::string, Value>> all_fields(Object& instance);

  // memory.cpp
  Object& made(ObjectKind kind, std::string name = "");
  Scope& made_scope(Scope* outer, Module* module);
  Value made_list(std::vector<Value> items);
  void step(std::size_t count = 1);
  [[noreturn]] void too_much(std::string_view rule) const;
  std::string place(const Node& node, const Frame& frame) const;
  Value unknown_at(const Node& node, const Frame& frame) const;
  Json json_of(const Value& value, bool initial, int depth, std::size_t& count);

  ReadFile read_file_;
  std::vector<std::string> transforms_;
  std::map<std::string, std::unique_ptr<Module>> modules_;  // null: there is none
  std::deque<Object> objects_;
  std::deque<Scope> scopes_;
  std::vector<std::string> notes_;
  const Module* noted_ = nullptr;
  std::string main_file_;
  GivenFields given_fields_;
  std::map<std::string, Value> results_;
  std::vector<std::string> opaque_;
  std::size_t steps_ = 0;
  int tries_ = 0;
  int evaluation_ = 0;
  int calls_ = 0;
  std::size_t num_modules_ = 0;
  std::size_t bytes_ = 0;
};

/// Counts how deep something is while it lives.
class Interpreter::Depth {
 public:
  explicit Depth(int& depth) : depth_(depth) { ++depth_; }
  ~Depth() { --depth_; }
  Depth(const Depth&) = delete;
  Depth& operator=(const Depth&) = delete;
  Depth(Depth&&) = delete;
  Depth& operator=(Depth&&) = delete;

 private:
  int& depth_;
};

}  // namespace meshplan::planner::python
