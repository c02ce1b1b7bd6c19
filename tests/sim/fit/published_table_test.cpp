// The table of published runs lies beside the checkout, for it is not ours to publish.
#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <sstream>

#include "core/error.hpp"
#include "sim/fit/validation.hpp"
#include "sim/prices/fitted_constants.hpp"
#include "support/project_folder.hpp"

namespace meshplan::sim {
namespace {

using Cells = std::vector<std::string>;

/// Quoted cells may hold commas; the table has no line breaks in cells.
Cells cells_of(const std::string& line) {
  Cells cells(1);
  bool quoted = false;
  for (const char c : line) {
    if (c == '"') quoted = !quoted;
    if (c == ',' && !quoted)
      cells.emplace_back();
    else
      cells.back() += c;
  }
  return cells;
}

std::string line_of(const Cells& cells) {
  std::string line;
  for (const std::string& cell : cells)
    line += (line.empty() && &cell == &cells[0] ? "" : ",") + cell;
  return line + "\n";
}

/// The table with labels and measurements blanked, its rows in another order: row i is row
/// `order[i]` of the given one.
std::string blanked(const std::string& text, const std::vector<std::size_t>& order) {
  const std::set<std::string> blank{
      "id",          "family",       "source", "model",           "notes",
      "step_time_s", "peak_mem_gib", "suite",  "step_time_basis", "peak_mem_kind"};
  std::istringstream stream(text);
  std::string header;
  std::getline(stream, header);
  const Cells columns = cells_of(header);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) {
    Cells cells = cells_of(line);
    for (std::size_t c = 0; c < columns.size(); ++c)
      if (blank.contains(columns[c])) cells[c].clear();
    lines.push_back(line_of(cells));
  }
  std::string result = header + "\n";
  for (const std::size_t i : order) result += lines[i];
  return result;
}

}  // namespace

TEST_CASE("Nothing in a prediction is keyed by a label, a measurement or the order of rows",
          "[sim][validation]") {
  const std::filesystem::path table =
      test::project_folder() / "../shared/validation/published_dev.csv";
  std::ifstream file(table);
  if (!file) {
    WARN("skipped: there is no table of published runs at " << table.string());
    return;
  }
  std::stringstream text;
  text << file.rdbuf();
  const auto rows = parse_published_table(text.str(), "published_dev.csv");
  std::vector<std::size_t> order(rows.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::shuffle(order.begin(), order.end(), std::mt19937(7));
  const auto shuffled = parse_published_table(blanked(text.str(), order), "blanked.csv");
  REQUIRE(shuffled.size() == rows.size());
  const Constants constants = constants_of(fitted_constants());
  const auto named = PreparedTable(rows, one_by_one).predict(constants, one_by_one);
  const auto blank = PreparedTable(shuffled, one_by_one).predict(constants, one_by_one);
  std::size_t equal = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    REQUIRE(named[order[i]].prediction);
    REQUIRE(blank[i].prediction);
    equal += *named[order[i]].prediction == *blank[i].prediction ? 1 : 0;
  }
  CHECK(equal == order.size());
}

namespace {

constexpr std::string_view kRun =
    ",,,,dgx-h100,{},,12,2048,8192,16,16,128,32000,swiglu,,,,,,4096,8,1,1,1,1,1,,8,1,no,1,8,bf16,"
    "none,flash,dp,,,,,,";

/// Two rows, "a" on torchtitan and "b" on `software`, with a column of releases behind the others.
std::vector<PublishedRow> released(const std::string& software, const std::string& release) {
  std::string text =
      "id,family,suite,source,cluster,software,model,layers,hidden,ffn_hidden,heads,kv_heads,"
      "head_dim,vocab,activation,experts,topk,moe_ffn_hidden,shared_expert_ffn,arch_notes,seq_len,"
      "num_gpus,tp,pp,vpp,cp,ep,etp,dp,zero_stage,sequence_parallel,micro_batch_size,"
      "global_batch_size,precision,recompute,attention,overlap,switches,step_time_s,"
      "step_time_basis,peak_mem_gib,peak_mem_kind,notes,release\n";
  const auto row = [&](const std::string& id, const std::string& stack, const std::string& of) {
    std::string line(kRun);
    line.replace(line.find("{}"), 2, stack);
    text += id + line + "," + of + "\n";
  };
  row("a", "torchtitan", "");
  row("b", software, release);
  return parse_published_table(text, "made.csv");
}

std::string refused(const std::string& releases) {
  std::vector<PublishedRow> rows = released("megatron-core", "");
  try {
    take_releases("id,software,release\n" + releases, "releases.csv", rows);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("Rows may say the release of their software", "[sim][validation]") {
  CHECK(released("megatron-core", "25.09")[1].run.profile == "megatron-core@25.09");
  CHECK(released("megatron-core@25.09", "25.09")[1].run.profile == "megatron-core@25.09");
  CHECK(released("megatron-core", "25.09")[0].run.profile == "torchtitan");
  CHECK_THAT(released("megatron-core@25.09", "25.11")[1].error,
             Catch::Contains("expected one of them"));

  // What its profile cannot place is left out, and the prediction says so.
  const std::vector<PublishedRow> old = released("megatron-core", "23.05");
  CHECK(old[1].run.profile == "megatron-core");
  const auto predicted =
      PreparedTable(old, one_by_one).predict(constants_of(fitted_constants()), one_by_one);
  CHECK(predicted[1].prediction);
  CHECK_THAT(predicted[1].note, Catch::Contains("nothing is known of a release before 24.07"));
  CHECK(predicted[0].note.empty());
}

TEST_CASE("Releases beside a table are joined by row", "[sim][validation]") {
  std::vector<PublishedRow> rows = released("megatron-core", "");
  take_releases("id,software,release\nb,megatron-core,25.11\n", "releases.csv", rows);
  CHECK(rows[0].run.profile == "torchtitan");
  CHECK(rows[1].run.profile == "megatron-core@25.11");
  CHECK(refused("b,megatron-core,25.11\n").empty());
  CHECK_THAT(refused("b,megatron-core,25.11\nbb,megatron-core,25.11\n"),
             Catch::Contains("releases.csv: row 3: id 'bb'") && Catch::Contains("nearest: 'b'"));
  CHECK_THAT(refused("a,megatron-core,25.11\n"), Catch::Contains("runs on 'torchtitan'"));
  CHECK_THAT(refused("b,megatron-core,25.11,1\n"), Catch::Contains("4 cells"));
}

}  // namespace meshplan::sim
