// The extension module meshplan._meshplan: the command's requests, asked from Python. Keywords
// become the command's options (meshplan/_functions.py), so that both are parsed, resolved and
// answered by the same code.
#include <chrono>
#include <functional>
#include <memory>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "core/json_fields.hpp"
#include "core/printable.hpp"
#include "models/model_spec.hpp"
#include "options/inputs.hpp"
#include "process/threads.hpp"
#include "reports/search_json.hpp"
#include "requests/check_request.hpp"
#include "requests/plan_request.hpp"
#include "requests/simulate_request.hpp"
#include "requests/validate_request.hpp"
#include "sim/stacks/cluster_preset.hpp"
#include "sim/stacks/execution_profile.hpp"

namespace py = pybind11;

namespace {

using namespace meshplan;
using namespace meshplan::cli;

/// Python has a signal for us: its error is set in the calling thread.
struct Interrupted {};

/// Looks for signals now and then, in the only thread in which Python handles them.
class SignalWatch {
 public:
  void look() {
    const auto now = std::chrono::steady_clock::now();
    if (now - last_ < std::chrono::milliseconds(50)) return;
    last_ = now;
    const py::gil_scoped_acquire locked;
    if (PyErr_CheckSignals() != 0) throw Interrupted();
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

/// Threads that end their work when Python is interrupted; worker 0 is the calling thread.
planner::ParallelFor interruptible(const planner::ParallelFor& parallel_for) {
  const auto watch = std::make_shared<SignalWatch>();
  return {.num_workers = parallel_for.num_workers,
          .run = [parallel_for, watch](std::size_t count, const planner::ParallelFor::Body& body) {
            parallel_for.run(count, [&](std::size_t index, int worker) {
              if (worker == 0) watch->look();
              body(index, worker);
            });
          }};
}

Question question(const std::string& name) {
  const Threads threads = [](int wanted) { return interruptible(on_threads(wanted)); };
  if (name == "plan") return plan_question(threads);
  if (name == "check") return check_question();
  if (name == "simulate") return simulate_question();
  if (name == "validate") return validate_question(threads);
  throw InvariantError("no such request: " + name);
}

/// @param words  options as the command line spells them. @returns what --json prints
std::string ask_named(const std::string& name, const std::vector<std::string>& words) {
  const Question asked = question(name);
  try {
    const py::gil_scoped_release unlocked;
    return ask(asked, words);
  } catch (const Interrupted&) {
    throw py::error_already_set();
  }
}

const char* word_for(ValueKind kind) {
  switch (kind) {
    case ValueKind::Nothing:
      return "flag";
    case ValueKind::Text:
      return "text";
    case ValueKind::Integer:
      return "integer";
    case ValueKind::Number:
      return "number";
    case ValueKind::Integers:
      return "integers";
    case ValueKind::Texts:
      return "texts";
  }
  throw InvariantError("unknown kind of value");
}

/// What signatures, docstrings and stubs are made of.
py::dict describe(const std::string& name) {
  const Question asked = question(name);
  py::list options;
  for (const OptionInfo& option : options_of(asked)) {
    if (option.negates) {  // "--no-sp": another value of the keyword `sp`
      options[py::len(options) - 1]["kind"] = "on_off";
      continue;
    }
    py::dict entry;
    entry["flag"] = option.flag;
    entry["kind"] = word_for(option.value);
    entry["help"] = option.help;
    entry["group"] = option.group;
    entry["default"] = option.default_value;
    entry["choices"] = option.choices;
    entry["positional"] = option.is_positional;
    entry["takes_file"] = option.takes_file;
    entry["takes_json"] = option.takes_json;
    options.append(entry);
  }
  py::dict description;
  description["summary"] = asked.summary;
  description["options"] = options;
  return description;
}

std::string schema(const std::string& of) {
  if (of == "plan") return reports::plan_file_schema();
  if (of == "result") return reports::search_schema();
  if (of == "model") return models::model_json_schema();
  if (of == "cluster") return sim::cluster_schema();
  throw ConfigError(unknown_name_message("schema", of, {"plan", "result", "model", "cluster"}));
}

/// Errors are classes of meshplan/_errors.py; what says more than their names stands there.
void translate(std::exception_ptr thrown) {
  const auto raise = [](const char* type, const std::exception& error) {
    const py::object errors = py::module_::import("meshplan._errors");
    PyErr_SetString(errors.attr(type).ptr(), printable(error.what()).c_str());
  };
  try {
    std::rethrow_exception(std::move(thrown));
  } catch (const ConfigError& error) {
    raise("ConfigError", error);
  } catch (const InfeasibleError& error) {
    raise("InfeasibleError", error);
  } catch (const IoError& error) {
    raise("IoError", error);
  } catch (const InvariantError& error) {
    raise("InvariantError", error);
  }
}

}  // namespace

PYBIND11_MODULE(_meshplan, module) {
  py::register_exception_translator(translate);
  module.attr("__version__") = MESHPLAN_VERSION;
  module.def("ask", ask_named);
  module.def("describe", describe);
  module.def("schema", schema);
  module.def("model",
             [](const std::string& name) { return models::to_json(load_model(name).spec); });
  module.def("cluster", [](const std::string& name) { return sim::to_json(load_cluster(name)); });
  module.def("model_names", models::preset_names);
  module.def("cluster_names", sim::cluster_names);
  module.def("software_names", sim::execution_profile_names);
}
