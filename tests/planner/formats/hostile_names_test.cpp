// A plan comes from a stranger. Every string of its file that may hold anything is given hostile
// values: each is refused where it is read, or written so that the exported files do and say the
// same as with a harmless name in its place.
#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <functional>
#include <map>
#include <set>

#include "core/error.hpp"
#include "core/json_fields.hpp"
#include "core/printable.hpp"
#include "formats/readme.hpp"
#include "formats/text/documents.hpp"
#include "planner/formats/exported_text.hpp"
#include "planner/formats/formats_support.hpp"
#include "planner/formats/plans.hpp"
#include "planner/formats/python_syntax.hpp"
#include "planner/formats/script_recorder.hpp"
#include "program/plan_file/plan_file.hpp"
#include "sim/stacks/cluster_preset.hpp"
#include "support/cases.hpp"
#include "support/hostile_strings.hpp"

namespace meshplan::planner::format_tests {
namespace {

using program::Plan;

constexpr const char* kHarmless = "harmless-twin";
constexpr const char* kStrangeFile = "strange.json";
constexpr const char* kPlace = "@@the value@@";

struct HostileTarget {
  const char* format;
  const char* launch;
  Plan plan;
};

Plan hostile_pipeline() {
  Plan plan = plan_of("llama3-8b", 4);
  plan.parallel = {.tp = 4, .pp = 2, .dp = 4, .sp = true};
  plan.zero_stage = 1;
  return plan;
}

Plan hostile_sharded() {
  Plan plan = plan_of("llama3-8b", 32);
  plan.zero_stage = 3;
  return plan;
}

Plan hostile_recomputed() {
  Plan plan = hostile_pipeline();
  plan.recompute.kind = program::RecomputeKind::Full;
  return plan;
}

/// With everything in its file that a search writes there.
Plan searched(Plan plan) {
  const int ranks = plan.parallel.world_size();
  plan.cluster_json = sim::to_json(sim::with_ranks(sim::load_cluster_preset("dgx-h100"), ranks));
  plan.cluster_name = "dgx-h100";
  plan.prediction = program::Prediction{.step_time_s = 1,
                                        .peak_memory_bytes = 1 << 30,
                                        .mfu = 0.5,
                                        .reasons = {"least exposed communication", "fits"}};
  return plan;
}

std::vector<HostileTarget> hostile_targets() {
  std::vector<HostileTarget> all = {{"megatron", "", hostile_pipeline()},
                                    {"megatron-bridge", "", hostile_pipeline()},
                                    {"torchtitan", "", hostile_sharded()},
                                    {"deepspeed", "", hostile_sharded()},
                                    {"nanotron", "", hostile_pipeline()},
                                    {"accelerate-fsdp", "", hostile_sharded()},
                                    {"accelerate-megatron", "", hostile_recomputed()},
                                    {"accelerate-deepspeed", "", hostile_sharded()},
                                    {"slurm", "megatron", hostile_pipeline()},
                                    {"kubernetes", "megatron-bridge", hostile_pipeline()}};
  for (HostileTarget& target : all) target.plan = searched(target.plan);
  return all;
}

/// A JSON text in which `value` stands for the marked string, byte by byte: JSON itself may not
/// hold what is no UTF-8.
std::string with_value(const std::string& marked, const std::string& value) {
  std::string escaped;
  for (const char c : value) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\')
      escaped += {'\\', c};
    else if (byte < 0x20)
      escaped += fmt::format("\\u{:04x}", byte);
    else
      escaped += c;
  }
  return replaced(marked, kPlace, escaped);
}

/// The plan's file once for each string in it, which is marked. Hashes of the model and cluster
/// inside, which would refuse every change of these, are left out.
std::map<std::string, std::string> marked_files(const Plan& plan) {
  Json root = Json::parse(program::to_json(plan));
  root.erase("model_hash");
  root.erase("cluster_hash");
  std::map<std::string, std::string> files;
  const std::function<void(Json&, const std::string&)> visit = [&](Json& value,
                                                                   const std::string& path) {
    if (value.is_string()) {
      const Json before = value;
      value = kPlace;
      files[path] = root.dump(1);
      value = before;
    }
    if (value.is_object())
      for (auto& [key, child] : value.items())
        visit(child, path.empty() ? key : fmt::format("{}.{}", path, key));
    if (value.is_array())
      for (std::size_t i = 0; i < value.size(); ++i)
        visit(value[i], fmt::format("{}[{}]", path, i));
  };
  visit(root, "");
  return files;
}

/// As the command exports it.
std::vector<ExportedFile> exported(const HostileTarget& target, const std::string& text) {
  ExportRequest request{.plan = program::parse_plan(text, kStrangeFile), .launch = target.launch};
  const sim::Cluster cluster =
      sim::parse_cluster(request.plan.cluster_json, std::string(kStrangeFile) + ": cluster");
  request.devices_per_node = cluster.devices_per_node;
  request.device = cluster.device.name;
  request.reasons = request.plan.prediction->reasons;
  return exported_folder(format_of(target.format), request).files;
}

/// "" or why `message` does not refuse a string as it should.
std::string refusal_fault(const std::string& message, const std::string& path) {
  const std::string key = path.substr(path.rfind('.') + 1);
  if (message.find(kStrangeFile) == std::string::npos) return "a refusal without its file";
  if (printable_line(message) != message) return "a refusal that is not one printable line";
  const bool placed = message.find(key) != std::string::npos ||
                      message.find("not valid JSON") != std::string::npos;  // with line and column
  return placed ? "" : "a refusal without its place";
}

bool is_label(const std::string& text) {  // of DNS
  return text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-.") == std::string::npos;
}

/// Is `text` the twin's with the value in its place, whole, or without either?
bool follows(const std::string& text, const std::string& twin, const std::string& value) {
  std::string expected = twin;
  for (std::size_t at = 0; (at = expected.find(kHarmless, at)) != std::string::npos;
       at += value.size())
    expected.replace(at, std::string(kHarmless).size(), value);
  return text == expected;
}

/// "" or where two trees differ by more than the value in the twin's place. Names of Kubernetes are
/// labels made of it.
std::string tree_fault(const Json& tree, const Json& twin, const std::string& value) {
  if (tree.type() != twin.type() || tree.size() != twin.size()) return twin.dump();
  if (twin.is_string()) {
    const auto& text = tree.get_ref<const std::string&>();
    const auto& expected = twin.get_ref<const std::string&>();
    const bool label = expected.find(kHarmless) != std::string::npos && is_label(expected);
    return follows(text, expected, value) || (label && is_label(text)) ? "" : text;
  }
  if (!twin.is_structured()) return tree == twin ? "" : tree.dump();
  for (auto [left, right] = std::pair(tree.begin(), twin.begin()); right != twin.end();
       ++left, ++right) {
    if (twin.is_object() && left.key() != right.key()) return left.key();
    if (twin.is_object() && right.key().ends_with("_hash")) continue;  // of what holds the value
    if (std::string fault = tree_fault(*left, *right, value); !fault.empty()) return fault;
  }
  return "";
}

/// Cells, headings and lines of Markdown, which the value must not add to.
std::string outline(const std::string& text) {
  std::string marks;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool begins = i == 0 || text[i - 1] == '\n';
    const bool taken = i > 0 && text[i - 1] == '\\';
    if (text[i] == '\n' || (begins && text[i] == '#') || (text[i] == '|' && !taken) ||
        text[i] == '<' || (text[i] == '`' && !taken))
      marks += text[i];
  }
  return marks;
}

class Comparison {
 public:
  void compare(const std::string& label, const std::string& value,
               const std::vector<ExportedFile>& files, const std::vector<ExportedFile>& twins) {
    ++compared;
    std::string fault = first_fault(label, value, files, twins);
    if (!fault.empty()) fail(label, value, fault);
  }
  void fail(const std::string& label, const std::string& value, const std::string& fault) {
    faults.push_back(fmt::format("{} = '{}': {}", label, printable_line(value).substr(0, 60),
                                 printable_line(fault).substr(0, 200)));
  }
  /// What waits for Python.
  void compare_modules() {
    std::vector<std::string> texts;
    for (const Module& module : modules_) texts.insert(texts.end(), {module.text, module.twin});
    const PythonModules parsed = parse_with_python(texts);
    if (!parsed.why_not.empty()) {
      WARN("Python's modules are not parsed: " << parsed.why_not);
      return;
    }
    for (const Module& module : modules_) {
      const PythonModule& found = parsed.by_text.at(module.text);
      const PythonModule& twin = parsed.by_text.at(module.twin);
      if (!follows(found.tree, twin.tree, module.value))
        fail(module.label, module.value, "another module: " + found.tree);
      else if (!follows(found.docstring, twin.docstring, module.value))
        fail(module.label, module.value, "another docstring: " + found.docstring);
    }
  }

  int compared = 0;
  std::vector<std::string> faults;
  ScriptRecorder recorder;

 private:
  struct Module {
    std::string label, value, text, twin;
  };

  std::string first_fault(const std::string& label, const std::string& value,
                          const std::vector<ExportedFile>& files,
                          const std::vector<ExportedFile>& twins) {
    if (files.size() != twins.size()) return "another number of files";
    for (std::size_t i = 0; i < files.size(); ++i) {
      if (files[i].name != twins[i].name) return "another file: " + files[i].name;
      if (files[i].text == twins[i].text) continue;
      if (std::string fault = exported_fault(files[i]); !fault.empty()) return fault;
      std::string fault = file_fault(label, value, i, files, twins);
      if (!fault.empty()) return files[i].name + ": " + fault;
    }
    return "";
  }

  std::string file_fault(const std::string& label, const std::string& value, std::size_t i,
                         const std::vector<ExportedFile>& files,
                         const std::vector<ExportedFile>& twins) {
    const std::string& name = files[i].name;
    const std::string& text = files[i].text;
    const std::string& twin = twins[i].text;
    if (std::ranges::count(text, '\n') != std::ranges::count(twin, '\n'))
      return "another number of lines";
    if (name.ends_with(".json")) return tree_fault(Json::parse(text), Json::parse(twin), value);
    if (name.ends_with(".yaml")) return yaml_fault(text, twin, value);
    if (name.ends_with(".md") && outline(text) != outline(twin)) return "another outline";
    if (name.ends_with(".py")) modules_.push_back({label, value, text, twin});
    if (name.ends_with(".sh") || name.ends_with(".sbatch")) {
      const Recorded found = recorder.run(files, name);
      const Recorded expected = recorder.run(twins, name);
      if (found.exit_code != expected.exit_code || !follows(found.starts, expected.starts, value))
        return "starts " + found.starts;
    }
    return "";
  }

  static std::string yaml_fault(const std::string& text, const std::string& twin,
                                const std::string& value) {
    const std::vector<std::string> found = yaml_documents(text);
    const std::vector<std::string> expected = yaml_documents(twin);
    if (found.size() != expected.size()) return "another number of documents";
    for (std::size_t i = 0; i < found.size(); ++i) {
      const std::string fault =
          tree_fault(parse_yaml(found[i], "found"), parse_yaml(expected[i], "twin"), value);
      if (!fault.empty()) return fault;
    }
    return "";
  }

  std::vector<Module> modules_;
};

}  // namespace

TEST_CASE("No string of a plan runs, whatever it is exported to", "[formats][names]") {
  Comparison comparison;
  std::set<std::string> strings;
  int refused = 0, pairs = 0;
  for (const HostileTarget& target : hostile_targets()) {
    for (const auto& [path, marked] : marked_files(target.plan)) {
      std::vector<ExportedFile> twins;
      try {
        twins = exported(target, with_value(marked, kHarmless));
      } catch (const ConfigError&) {
        continue;  // one of several words
      }
      strings.insert(path);
      for (const std::string& value : test::hostile_strings()) {
        if (testing::few_cases() && ++pairs % 7 != 0) continue;
        const std::string label = fmt::format("{} in {}", path, target.format);
        try {
          comparison.compare(label, value, exported(target, with_value(marked, value)), twins);
        } catch (const ConfigError& error) {
          ++refused;
          const std::string fault = refusal_fault(error.what(), path);
          if (!fault.empty()) comparison.fail(label, value, fault);
        } catch (const std::exception& error) {
          comparison.fail(label, value, error.what());
        }
      }
    }
  }
  comparison.compare_modules();
  INFO(fmt::format("{} of {} written and {} refused values are at fault; strings: {}",
                   comparison.faults.size(), comparison.compared, refused,
                   fmt::join(strings, ", ")));
  std::vector<std::string> first = comparison.faults;
  first.resize(std::min<std::size_t>(first.size(), 40));
  INFO(fmt::format("{}", fmt::join(first, "\n")));
  CHECK(comparison.faults.empty());
  CHECK(comparison.recorder.planted().empty());
  // The walk finds them by itself; these must be among them.
  for (const char* path : {"model.name", "cluster_name", "cluster.name", "cluster.device.name",
                           "cluster.fabric[0].name", "prediction.reasons[0]"})
    CHECK(strings.contains(path));
  CHECK(refused > 0);
}

TEST_CASE("Writers do not rely on readers of names", "[formats][names]") {
  // A program that uses the library may put anything into a plan.
  std::vector<std::string> faults;
  for (const HostileTarget& target : hostile_targets())
    for (const std::string& value : test::hostile_strings()) {
      ExportRequest request{.plan = target.plan, .launch = target.launch};
      const auto written = [&](const std::string& name) {
        request.plan.model.name = request.device = name;
        request.reasons = {name, name};
        std::vector<ExportedFile> files = format_of(target.format).write(request);
        files.push_back({.name = "README.md",
                         .text = readme_of(format_of(target.format), request, "starting", "")});
        return files;
      };
      const std::vector<ExportedFile> twins = written(kHarmless);
      const std::vector<ExportedFile> files = written(value);
      for (std::size_t i = 0; i < files.size(); ++i) {
        std::string fault = exported_fault(files[i]);
        if (std::ranges::count(files[i].text, '\n') != std::ranges::count(twins[i].text, '\n'))
          fault = files[i].name + ": another number of lines";
        if (!fault.empty()) faults.push_back(fmt::format("{}: {}", target.format, fault));
      }
    }
  INFO(fmt::format("{}", fmt::join(faults, "\n")).substr(0, 4000));
  CHECK(faults.empty());
}

}  // namespace meshplan::planner::format_tests
