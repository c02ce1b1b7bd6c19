// docs/families.md says of each family of Hugging Face configurations what is read, counted,
// predicted and run: its table is what an example of each gives.
#include <catch2/catch.hpp>
#include <cmath>
#include <fmt/format.h>
#include <fstream>
#include <iostream>
#include <map>
#include <optional>
#include <sstream>

#include "core/json_fields.hpp"
#include "models/counts.hpp"
#include "models/hugging_face.hpp"
#include "program/checks/check.hpp"
#include "support/project_folder.hpp"

namespace meshplan::program {
namespace families_page_test {

std::string text_of(const std::string& path) {
  std::ifstream file(meshplan::test::project_folder() / path);
  REQUIRE(file);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string billions(double count) {
  return count >= 1e9 ? fmt::format("{:.2f} B", count / 1e9) : fmt::format("{:.1f} M", count / 1e6);
}

/// What our own program does not do of the model, if anything.
std::optional<std::string> refusal(const models::ModelSpec& model) {
  Plan plan;
  plan.model = model;
  plan.workload = {.seq_len = 64, .global_batch_size = 1};
  for (const Violation& violation : check(plan))
    if (violation.rule == "not-lowered") {
      const std::string message = violation.message.substr(violation.message.find(": ") + 2);
      return message.substr(0, message.find(" is not lowered"));
    }
  return std::nullopt;
}

/// "yes", or the refusal. What --no-dropout and --text-only leave out is left out, and what
/// --no-mtp does where the modules alone are refused.
std::string runs(models::ModelSpec model) {
  std::string without;
  const auto leave_out = [&](bool has, const char* flag) {
    if (has) without += fmt::format("{}{}", without.empty() ? ", " : " ", flag);
  };
  leave_out(model.dropout > 0, "--no-dropout");
  leave_out(model.vision.has_value(), "--text-only");
  model.dropout = 0;
  model.vision.reset();
  if (model.mtp_layers > 0 && refusal(model)) {
    leave_out(true, "--no-mtp");
    model.mtp_layers = 0;
  }
  const std::optional<std::string> refused = refusal(model);
  return refused ? "no: " + *refused : "yes" + without;
}

std::string table_of_families() {
  std::istringstream rows(text_of("tests/models/data/published_models.jsonl"));
  std::map<std::string, std::string> lines;
  for (std::string line; std::getline(rows, line);) {
    const Json row = Json::parse(line);
    const models::ImportedModel model =
        models::import_hugging_face(row["config"].get<std::string>(), "config.json");
    const models::ParameterCounts counts =
        models::count_parameters(models::build_graph(model.spec));
    const double own = static_cast<double>(counts.total), theirs = row["parameters"];
    lines.try_emplace(model.model_type,
                      fmt::format("| `{}` | {} | {} | {:+.2f} % | {} |\n", model.model_type,
                                  row["model"].get<std::string>(), billions(own),
                                  100 * (own / theirs - 1), runs(model.spec)));
  }
  std::string table =
      "| type | example | parameters | beside its class | our own program runs it |\n"
      "| --- | --- | --- | --- | --- |\n";
  for (const auto& [type, line] : lines) table += line;
  return table;
}

TEST_CASE("the page of families says what an example of each gives", "[program][families]") {
  INFO("print it with: test_program \"[.families-page]\"");
  CHECK(text_of("docs/families.md").find(table_of_families()) != std::string::npos);
}

TEST_CASE("the table of the page of families is printed", "[.families-page]") {
  std::cout << table_of_families();
}

}  // namespace families_page_test
}  // namespace meshplan::program
