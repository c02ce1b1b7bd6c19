// What the page calls: a question's text goes in, an answer's text comes out. The questions are the
// command's requests, so that the page's figures and refusals are the command's.
#include <cstddef>
#include <cstdlib>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "core/json_fields.hpp"
#include "models/model_spec.hpp"
#include "options/inputs.hpp"
#include "requests/page_request.hpp"
#include "requests/plan_request.hpp"
#include "requests/simulate_request.hpp"
#include "sim/stacks/cluster_preset.hpp"

namespace meshplan::classroom {
namespace {

constexpr double kMostWordBytes = 1 << 26;  // a plan is a word, too

/// One of the command's requests, or what a page needs to know before it can ask one.
struct Asked {
  std::string name;
  std::vector<std::string> words;  // options, as the command line spells them
};

template <class Visitor>
void fields(Visitor& v, Asked& a) {
  v.required("name", a.name, "of the question");
  v.required("words", a.words, "options, as the command line spells them", at_most(kMostWordBytes));
}

std::string names_json() {
  return Json{{"version", cli::program_version()},
              {"models", models::preset_names()},
              {"clusters", sim::cluster_names()}}
      .dump();
}

Json options_json(const cli::Question& question) {
  Json options = Json::array();
  for (const cli::OptionInfo& option : cli::options_of(question))
    options.push_back({{"flag", option.flag}, {"help", option.help}, {"choices", option.choices}});
  return options;
}

/// @param words  a model and a cluster, as --model and --cluster take them
std::string describe(const std::vector<std::string>& words) {
  if (words.size() != 2)
    throw ConfigError("describe: expected a model and a cluster, got another number of words");
  return Json{{"model", Json::parse(models::to_json(cli::load_model(words[0]).spec))},
              {"cluster", Json::parse(sim::to_json(cli::load_cluster(words[1])))}}
      .dump();
}

std::string answer(const Asked& asked) {
  const cli::Threads one_thread = [](int) { return planner::serial(); };
  if (asked.name == "names") return names_json();
  if (asked.name == "options") return options_json(cli::simulate_question()).dump();
  if (asked.name == "describe") return describe(asked.words);
  if (asked.name == "simulate") return cli::ask(cli::simulate_question(), asked.words);
  if (asked.name == "page") return cli::ask(cli::page_question(), asked.words);
  if (asked.name == "plan") return cli::ask(cli::plan_question(one_thread), asked.words);
  throw ConfigError(unknown_name_message(
      "question", asked.name, {"names", "options", "describe", "simulate", "page", "plan"}));
}

std::string error_json(const char* kind, const char* message) {
  const Json error{{"kind", kind}, {"message", message}};
  return Json{{"error", error}}.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string answer_or_error(std::string_view text) {
  try {
    const Asked asked = read_json<Asked>(text, "question");
    return "{\"answer\":" + answer(asked) + "}";
  } catch (const ConfigError& error) {
    return error_json("ConfigError", error.what());
  } catch (const std::exception& error) {
    return error_json("InvariantError", error.what());
  }
}

std::string last_answer;  // until the next question

}  // namespace
}  // namespace meshplan::classroom

extern "C" {

/// Room for a question's text; `ask` gives it back.
[[clang::export_name("allocate")]] char* classroom_allocate(std::size_t size) {
  return static_cast<char*>(std::malloc(size));
}

/// Answers the UTF-8 text {"name": ..., "words": [...]}.
/// @returns bytes of the answer, {"answer": ...} or {"error": {"kind", "message"}}
[[clang::export_name("ask")]] std::size_t classroom_ask(char* text, std::size_t size) {
  using namespace meshplan::classroom;
  last_answer = answer_or_error({text, size});
  std::free(text);
  return last_answer.size();
}

/// Where the last answer's text stands.
[[clang::export_name("answer")]] const char* classroom_answer() {
  return meshplan::classroom::last_answer.data();
}

}  // extern "C"
