// What published recipes cost beside our own choice: for each recipe that we could run, the step
// time of its plan and of the plan that the search finds for the same work.
//   recipes_bench TABLE [--jobs N] [--only TEXT] [--json FILE]
#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <fmt/format.h>
#include <fstream>
#include <iostream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <thread>

#include "core/error.hpp"
#include "core/statistics.hpp"
#include "planner/search/reasons.hpp"
#include "recipes.hpp"
#include "reports/table.hpp"
#include "sim/estimator/estimator.hpp"

namespace {

using namespace meshplan;
using bench::Recipe;
using bench::Work;

struct Priced {
  planner::Candidate candidate;
  sim::StepPrediction step;
};

struct Comparison {
  const Recipe* recipe = nullptr;
  Priced published;
  std::optional<Priced> fitting;  // the published plan with the least recompute that fits
  std::optional<Priced> ours;

  /// Our choice is so many times as fast.
  std::optional<double> ratio() const {
    if (!fitting || !ours) return std::nullopt;
    return fitting->step.step_time_s / ours->step.step_time_s;
  }
};

Priced price(const planner::SearchRequest& request, const planner::Candidate& candidate) {
  const program::Plan plan = planner::make_plan(request, candidate);
  if (plan.stack.is_own()) return {candidate, sim::simulate_step(plan, request.cluster).step};
  return {candidate, sim::Estimator(request.cluster, plan.stack.software).estimate(plan)};
}

/// Full recompute of the fewest layers of each stage. Where the estimate of memory is a lower
/// bound, a few more than it asks for.
std::optional<Priced> fewest_recomputed(const planner::SearchRequest& request,
                                        planner::Candidate candidate) {
  candidate.recompute = {.kind = program::RecomputeKind::Full};
  const int all =
      std::ranges::max(program::resolved_layers_per_stage(planner::make_plan(request, candidate)));
  sim::Estimator estimator(request.cluster, request.stack.software);
  for (int layers = 1; layers <= all; ++layers) {
    candidate.recompute.num_layers = layers;
    if (!estimator.estimate(planner::make_plan(request, candidate)).fits()) continue;
    Priced priced = price(request, candidate);
    if (priced.step.fits()) return priced;
  }
  return std::nullopt;
}

std::optional<Priced> with_least_recompute(const planner::SearchRequest& request,
                                           const Priced& published) {
  if (published.step.fits()) return published;
  using program::RecomputeKind;
  planner::Candidate candidate = published.candidate;
  if (candidate.recompute.kind == RecomputeKind::None) {
    candidate.recompute.kind = RecomputeKind::Selective;
    const Priced selective = price(request, candidate);
    if (selective.step.fits()) return selective;
  }
  if (candidate.recompute.kind == RecomputeKind::Full) return std::nullopt;
  return fewest_recomputed(request, candidate);
}

std::optional<Priced> our_choice(const planner::SearchRequest& request) {
  const planner::SearchOutcome outcome =
      planner::search(request, planner::cost_model(request), planner::serial());
  const auto* const found = std::get_if<planner::SearchResult>(&outcome);
  if (found == nullptr) return std::nullopt;
  const planner::RankedPlan& first = found->ranked.front();
  return Priced{planner::candidate_of(first.plan), first.step()};
}

std::string label(const Work& work) {
  return fmt::format("{} on {} x {}, {} sequences of {}, {}, {}", work.model, work.gpus,
                     work.cluster, work.global_batch_size, work.seq_len,
                     work.precision == program::Precision::BF16 ? "bf16" : "fp8", work.software);
}

Comparison as_published(const planner::SearchRequest& request,
                        const planner::Candidate& candidate) {
  Comparison one{.published = price(request, candidate)};
  one.fitting = with_least_recompute(request, one.published);
  return one;
}

bool is_faster(const std::optional<Priced>& priced, const std::optional<Priced>& other) {
  return priced && (!other || priced->step.step_time_s < other->step.step_time_s);
}

/// Recipes of one work, in the order of the table; those that cannot be played get the reason.
std::vector<Comparison> compare(const Work& work, const std::vector<Recipe*>& recipes) {
  const planner::SearchRequest request = bench::request_of(work);
  std::optional<Priced> ours;
  try {
    ours = our_choice(request);
  } catch (const ConfigError& error) {
    for (Recipe* recipe : recipes) recipe->left_out = fmt::format("our search: {}", error.what());
    return {};
  }
  std::vector<Comparison> comparisons;
  for (Recipe* recipe : recipes) try {
      Comparison one = as_published(request, recipe->candidate);
      // The table does not say whether it is asked for: the faster of both.
      const bool own = request.stack.is_own();
      if (const auto paired = own ? bench::in_pairs(recipe->candidate) : std::nullopt) {
        Comparison other = as_published(request, *paired);
        if (is_faster(other.fitting, one.fitting)) one = std::move(other);
      }
      one.recipe = recipe;
      one.ours = ours;
      comparisons.push_back(std::move(one));
    } catch (const ConfigError& error) {
      recipe->left_out = fmt::format("our rule 'operations': {}", error.what());
    }
  return comparisons;
}

std::vector<Comparison> compare_all(std::vector<Recipe>& recipes, int jobs) {
  std::map<Work, std::vector<Recipe*>> by_work;
  for (Recipe& recipe : recipes)
    if (recipe.left_out.empty()) by_work[recipe.work].push_back(&recipe);
  const std::vector<std::pair<Work, std::vector<Recipe*>>> works(by_work.begin(), by_work.end());
  std::vector<std::vector<Comparison>> found(works.size());
  std::atomic<std::size_t> next{0};
  std::mutex progress;
  const auto run = [&] {
    for (std::size_t i = next++; i < works.size(); i = next++) {
      {
        const std::lock_guard lock(progress);
        fmt::print(stderr, "{}/{} {}\n", i + 1, works.size(), label(works[i].first));
      }
      found[i] = compare(works[i].first, works[i].second);
    }
  };
  {
    std::vector<std::jthread> threads;
    for (int job = 1; job < jobs; ++job) threads.emplace_back(run);
    run();
  }
  std::vector<Comparison> all;
  for (auto& part : found) std::ranges::move(part, std::back_inserter(all));
  return all;
}

std::string gib(const sim::StepPrediction& step) {
  return planner::format_bytes(step.peak_memory_bytes);
}

std::string fit_of(const Comparison& one) {
  if (one.published.step.fits()) return "yes";
  if (!one.fitting) return "no";
  const program::Recompute& added = one.fitting->candidate.recompute;
  if (added.kind == program::RecomputeKind::Selective) return "if selective";
  return added.num_layers ? fmt::format("if full({})", *added.num_layers) : "if full";
}

std::vector<std::string> cells(const Comparison& one) {
  const auto ratio = one.ratio();
  const Priced& shown = one.fitting ? *one.fitting : one.published;
  return {one.recipe->name,
          describe(one.published.candidate),
          planner::format_seconds(shown.step.step_time_s),
          gib(one.published.step),
          fit_of(one),
          one.ours ? describe(one.ours->candidate) : "nothing fits",
          one.ours ? planner::format_seconds(one.ours->step.step_time_s) : "",
          one.ours ? gib(one.ours->step) : "",
          ratio ? fmt::format("{:.2f}", *ratio) : "-"};
}

void print_comparisons(const std::vector<Comparison>& comparisons) {
  using reports::Align;
  reports::Table table{.columns = {{"recipe", Align::Left},
                                   {"its plan", Align::Left},
                                   {"step"},
                                   {"memory"},
                                   {"fits"},
                                   {"our choice", Align::Left},
                                   {"step"},
                                   {"memory"},
                                   {"ratio"}}};
  for (const Comparison& one : comparisons) table.rows.push_back(cells(one));
  fmt::print("{}", reports::to_text(table));
}

void print_distribution(const std::vector<Comparison>& comparisons) {
  std::vector<double> ratios;
  for (const Comparison& one : comparisons)
    if (const auto ratio = one.ratio()) ratios.push_back(*ratio);
  fmt::print("\n{} recipes compared, {} of them without a ratio: nothing fits\n",
             comparisons.size(), comparisons.size() - ratios.size());
  if (ratios.empty()) return;
  constexpr std::array kQuantiles = {0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0};
  for (const double part : kQuantiles)
    fmt::print("  ratio at {:3.0f} %  {:.2f}\n", 100 * part, quantile(ratios, part));
  constexpr std::array kLimits = {0.98, 1.05, 1.25, 1.5};
  const auto below = [&](double limit) {
    return std::ranges::count_if(ratios, [&](double ratio) { return ratio < limit; });
  };
  std::ptrdiff_t before = 0;
  for (const double limit : kLimits) {
    fmt::print("  below {:.2f}: {}\n", limit, below(limit) - before);
    before = below(limit);
  }
  fmt::print("  above: {}\n", std::ssize(ratios) - before);
}

/// Rules are counted by their id, not by the values in their message.
std::string reason_of(const Recipe& recipe) {
  return recipe.left_out.starts_with("our rule")
             ? recipe.left_out.substr(0, recipe.left_out.find(':'))
             : recipe.left_out;
}

void print_counts(const char* title, const std::map<std::string, int>& counts) {
  if (!counts.empty()) fmt::print("\n{}\n", title);
  for (const auto& [what, number] : counts) fmt::print("  {:3}  {}\n", number, what);
}

void print_reasons(const std::vector<Recipe>& recipes) {
  std::map<std::string, int> left_out, assumed;
  for (const Recipe& recipe : recipes) {
    if (!recipe.left_out.empty())
      ++left_out[reason_of(recipe)];
    else
      for (const std::string& what : recipe.assumed) ++assumed[what];
  }
  print_counts("left out, recipes and why", left_out);
  print_counts("assumed, recipes and what", assumed);
  for (const Recipe& recipe : recipes)
    if (recipe.left_out.starts_with("our rule"))
      fmt::print("  {}: {}\n", recipe.name, recipe.left_out);
}

nlohmann::ordered_json to_json(const std::optional<Priced>& priced) {
  if (!priced) return nullptr;
  return {{"plan", describe(priced->candidate)},
          {"step_time_s", priced->step.step_time_s},
          {"peak_memory_bytes", priced->step.peak_memory_bytes},
          {"fits", priced->step.fits()}};
}

nlohmann::ordered_json to_json(const std::vector<Comparison>& comparisons,
                               const std::vector<Recipe>& recipes) {
  nlohmann::ordered_json json{{"compared", nlohmann::ordered_json::array()},
                              {"left_out", nlohmann::ordered_json::array()}};
  for (const Comparison& one : comparisons) {
    const auto ratio = one.ratio();
    json["compared"].push_back({{"recipe", one.recipe->name},
                                {"work", label(one.recipe->work)},
                                {"assumed", one.recipe->assumed},
                                {"published", to_json(one.published)},
                                {"fitting", to_json(one.fitting)},
                                {"ours", to_json(one.ours)},
                                {"ratio", ratio ? nlohmann::ordered_json(*ratio) : nullptr}});
  }
  for (const Recipe& recipe : recipes)
    if (!recipe.left_out.empty())
      json["left_out"].push_back({{"recipe", recipe.name}, {"reason", recipe.left_out}});
  return json;
}

std::string read_file(const std::string& path) {
  const std::ifstream file(path);
  if (!file) throw ConfigError(path + ": cannot be read");
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void run(const std::string& path, const std::string& only, int jobs, const std::string& json) {
  std::vector<Recipe> recipes = bench::read_recipes(read_file(path), path);
  std::erase_if(recipes,
                [&](const Recipe& recipe) { return recipe.name.find(only) == std::string::npos; });
  const std::vector<Comparison> comparisons = compare_all(recipes, jobs);
  print_comparisons(comparisons);
  print_distribution(comparisons);
  print_reasons(recipes);
  if (!json.empty()) std::ofstream(json) << to_json(comparisons, recipes).dump(2) << '\n';
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Compares published recipes with our choice for the same work");
  std::string table, only, json;
  int jobs = 1;
  app.add_option("table", table, "CSV of recipes")->required()->check(CLI::ExistingFile);
  app.add_option("--jobs", jobs, "searches at a time")->check(CLI::Range(1, 64));
  app.add_option("--only", only, "recipes whose name holds this text");
  app.add_option("--json", json, "also write all figures to this file");
  CLI11_PARSE(app, argc, argv);
  try {
    run(table, only, jobs, json);
  } catch (const ConfigError& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 2;
  }
  return 0;
}
