#include "sim/fit/validation.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <fmt/format.h>

#include "core/error.hpp"

namespace meshplan::sim {
namespace {

const char* kHeader =
    "id,family,suite,source,cluster,software,model,layers,hidden,ffn_hidden,heads,kv_heads,"
    "head_dim,vocab,activation,experts,topk,moe_ffn_hidden,shared_expert_ffn,arch_notes,seq_len,"
    "num_gpus,tp,pp,vpp,cp,ep,etp,dp,zero_stage,sequence_parallel,micro_batch_size,"
    "global_batch_size,precision,recompute,attention,overlap,switches,step_time_s,step_time_basis,"
    "peak_mem_gib,peak_mem_kind,notes\n";

/// A made-up run of a small GPT on one DGX A100.
std::string row(const std::string& labels, int tp, double seconds, const std::string& notes = "") {
  return fmt::format(
      "{},dgx-a100,megatron-core,{},4,1024,4096,16,16,64,1024,gelu,,,,,,1024,8,{},1,1,1,1,,{},1,"
      "no,2,32,bf16,none,flash,dp,,{},published,10,torch max allocated,\"{}\"\n",
      labels, labels.empty() ? "" : "model", tp, 8 / tp, seconds, notes);
}

std::vector<PublishedRow> table(const std::string& rows) {
  return parse_published_table(kHeader + rows, "made.csv");
}

RowPrediction with_error(double measured, double error) {
  RowPrediction row;
  row.prediction.emplace();
  row.prediction->step_time_s = measured * (1 + error);
  row.error = error;
  return row;
}

}  // namespace

TEST_CASE("A row becomes a run", "[sim][validation]") {
  const auto rows = table(row("a,f,s,x", 2, 0.5, "a \"\"quoted\"\", note"));
  REQUIRE(rows.size() == 1);
  CHECK(rows[0].error.empty());
  CHECK(rows[0].run.parallel.tp == 2);
  CHECK(rows[0].run.parallel.dp == 4);
  CHECK(rows[0].run.num_microbatches() == 4);
  CHECK(rows[0].run.model.tied_embeddings);
  CHECK(rows[0].step_time_s == 0.5);
  CHECK(rows[0].memory_kind == MemoryKind::Allocated);
}

TEST_CASE("A bad row names column and value, and the others are read", "[sim][validation]") {
  std::string bad = row("b,f,s,x", 2, 0.5);
  bad.replace(bad.find("gelu"), 4, "gulu");
  const auto rows = table(bad + row("a,f,s,x", 2, 0.5));
  REQUIRE(rows.size() == 2);
  CHECK_THAT(rows[0].error,
             Catch::Contains("activation") && Catch::Contains("gulu") && Catch::Contains("gelu"));
  CHECK(rows[1].error.empty());
  CHECK_THROWS_WITH(parse_published_table("id,family\n", "short.csv"),
                    Catch::Contains("short.csv") && Catch::Contains("suite"));
}

TEST_CASE("Labels and the order of rows change no prediction", "[sim][validation]") {
  const auto named = table(row("a,f,s,x", 2, 0.5) + row("b,g,s,x", 4, 0.4));
  auto blank = table(row(",,,", 4, 0.4) + row(",,,", 2, 0.5));
  const Constants constants = constants_of(fitted_constants());
  const auto first = PreparedTable(named, one_by_one).predict(constants, one_by_one);
  auto second = PreparedTable(blank, one_by_one).predict(constants, one_by_one);
  std::ranges::reverse(second);
  for (std::size_t i = 0; i < first.size(); ++i)
    CHECK(*first[i].prediction == *second[i].prediction);
}

// Two families: one with errors of +10 and -30 %, one with +10 %: mean absolute (20 + 10) / 2,
// bias (-10 + 10) / 2.
TEST_CASE("Errors are averaged within a family first", "[sim][validation]") {
  const auto rows = table(row("a,f,s,x", 1, 1.0) + row("b,f,s,x", 2, 1.0) + row("c,g,s,x", 4, 1.0));
  const auto suites =
      summarize(rows, {with_error(1, 0.1), with_error(1, -0.3), with_error(1, 0.1)});
  REQUIRE(suites.size() == 1);
  CHECK(suites[0].step_time.families == 2);
  CHECK(suites[0].step_time.mean_absolute == Approx(0.15));
  CHECK(suites[0].step_time.bias == Approx(0).margin(1e-12));
  CHECK(suites[0].step_time.maximum == Approx(0.3));
}

// Measured 1.0, 0.8, 0.9; predicted best is the third: regret 0.9 / 0.8 - 1. Of three pairs the
// two with the first run are in order.
TEST_CASE("Regret is what the predicted best costs over the measured best", "[sim][validation]") {
  const auto rows = table(row("a,f,s,x", 1, 1.0) + row("b,g,s,x", 2, 0.8) + row("c,h,s,x", 4, 0.9));
  const auto suites =
      summarize(rows, {with_error(1.0, 0), with_error(0.8, 0.125), with_error(0.9, -0.1)});
  CHECK(suites[0].choice.groups == 1);
  CHECK(suites[0].choice.mean_regret == Approx(0.125));
  CHECK(suites[0].choice.ordered_pairs == Approx(2.0 / 3));
}

// Rows that were made with another constant lead the fit back to it.
TEST_CASE("A fit recovers the constant that made the rows", "[sim][validation]") {
  auto records = fitted_constants();
  auto rows = table(row("a,f,s,x", 1, 1) + row("b,g,s,x", 2, 1) + row("c,h,s,x", 4, 1));
  for (auto& r : rows) {
    r.run.model.hidden_size = 4096;
    r.run.model.ffn_size = 16384;
    r.run.model.head_size = 256;
  }
  Constants truth = constants_of(records);
  truth.step_ampere *= 1.1;
  for (auto& r : rows) r.step_time_s = PreparedRun(r.run).predict(truth).step_time_s;  // measured
  FitOptions options{.constant_free = std::vector<bool>(records.size(), false)};
  std::size_t index = 0;
  while (records[index].name != "step_ampere") ++index;
  options.constant_free[index] = true;
  const Fit fit = fit_constants(PreparedTable(rows, one_by_one), records, options, one_by_one);
  CHECK(fit.constants[index].value == Approx(truth.step_ampere).epsilon(0.02));
  CHECK(fit.loss_after < fit.loss_before);
}

// Rows of tp 4 are four times slower than the model says; left out, they cannot pull the fit, so
// the others' error falls and theirs grows.
TEST_CASE("A left-out group has no part in the fit", "[sim][validation]") {
  auto rows = table(row("a,f,s,x", 1, 1) + row("b,g,s,x", 2, 1) + row("c,h,s,x", 4, 1));
  const auto records = fitted_constants();
  const Constants truth = constants_of(records);
  for (auto& r : rows) r.step_time_s = PreparedRun(r.run).predict(truth).step_time_s;
  rows[2].step_time_s = *rows[2].step_time_s * 4;
  rows[2].run.cluster = "selene-a100";
  const auto groups =
      leave_one_out(PreparedTable(rows, one_by_one), records, LeaveOut::Cluster, one_by_one);
  REQUIRE(groups.size() == 2);
  CHECK(groups[1].group == "selene-a100");
  CHECK(groups[1].rows == 1);
  CHECK(groups[1].predictions.front().first == 2);
  CHECK(groups[1].left_out > 0.6);
}

// Errors of 0 and +50 % around half-widths of 1.533 * 0.1 in logarithms: one of two is inside.
TEST_CASE("Coverage counts the rows inside their intervals", "[sim][validation]") {
  const auto rows = table(row("a,f,s,x", 1, 1.0) + row("b,g,s,x", 2, 1.0));
  std::vector<RowPrediction> predictions{with_error(1, 0), with_error(1, 0.5)};
  for (RowPrediction& prediction : predictions) prediction.prediction->relative_sigma = 0.1;
  const IntervalSummary summary = intervals_of(rows, predictions);
  CHECK(summary.rows == 2);
  CHECK(summary.covered == Approx(0.5));
  CHECK(summary.half_width == Approx(std::expm1(0.1533)).epsilon(1e-3));
}

TEST_CASE("The constants file is checked", "[sim][validation]") {
  auto records = fitted_constants();
  CHECK(parse_constants(to_json(records), "c.json").size() == constant_members().size());
  records[0].value = records[0].high * 2;
  CHECK_THROWS_WITH(parse_constants(to_json(records), "c.json"),
                    Catch::Contains("c.json") && Catch::Contains(records[0].name));
  records.erase(records.begin());
  CHECK_THROWS_WITH(parse_constants(to_json(records), "c.json"), Catch::Contains("missing"));
}

// At most 24, each fixed by at least four groups of runs.
TEST_CASE("Fitted constants are few and determined", "[sim][validation]") {
  CHECK(constant_members().size() <= 24);
  for (const ConstantRecord& record : fitted_constants()) {
    INFO(record.name);
    CHECK(record.determined_by.size() >= 4);
    CHECK_FALSE(record.source.empty());
  }
}

}  // namespace meshplan::sim
