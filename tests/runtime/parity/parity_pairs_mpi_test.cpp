// Every technique alone and every pair that check() allows, over at most 8 ranks: plans that
// combine as many as they can give the gradients and losses of one rank. In full, three times in
// other company.
//   test_parity "[.coverage]"   prints what MESHPLAN_PARITY_LOG has recorded
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fstream>
#include <iostream>
#include <map>
#include <random>
#include <sstream>

#include "program/checks/check.hpp"
#include "runtime/parity/parity_job.hpp"
#include "runtime/parity/parity_models.hpp"
#include "runtime/parity/parity_precision.hpp"
#include "runtime/parity/parity_techniques.hpp"
#include "support/cases.hpp"

namespace meshplan::test::parity_pairs {
namespace {

using program::CompressionKind;
using program::Precision;

constexpr int kPairSteps = 2;
constexpr int kDensities = 4;
constexpr int kTries = 120;          // of a pair, before it counts as refused
constexpr int kWitnesses = 4;        // plans of a pair to choose from
constexpr double kInt8Error = 0.05;  // see parity_compression_mpi_test

// ---------------------------------------------------------------- plans

/// What a plan is put together from.
struct Parts {
  ParallelConfig parallel;
  ScheduleKind schedule = ScheduleKind::OneFOneB;
  ContextMethod method = ContextMethod::AllGather;
  RecomputeKind recompute = RecomputeKind::None;
  CompressionKind compression = CompressionKind::None;
  Precision precision = Precision::F32;
  int zero = 0;
  bool hybrid_zero = false, hybrid_context = false, packed = false, experts = false, latent = false;
  bool by_node = false, float8_dispatch = false;
  bool frozen = false;
  bool uneven = false;
  bool whole_modules = false;  // recomputed, products included
};

/// All that a model of this kind has.
models::ModuleSet whole_modules(const models::ModelSpec& model) {
  using models::Module;
  models::ModuleSet modules{Module::Norms, Module::Attention,
                            model.moe ? Module::Moe : Module::Mlp};
  if (model.mla) modules.add(Module::MlaUpProj);
  return modules;
}

/// With widths that FP8 products can have on two ranks.
models::ModelSpec latent_in_float8(models::ModelSpec model) {
  model = latent_style(model);
  model.head_size = 32;
  model.mla = models::MlaSpec{.q_lora_rank = 48,
                              .kv_lora_rank = 32,
                              .qk_nope_head_size = 16,
                              .qk_rope_head_size = 16,
                              .v_head_size = 16};
  return model;
}

Plan plan_of(const Parts& parts) {
  models::ModelSpec model = parts.experts ? mixtral_style() : llama_style();
  if (parts.latent) model = latent_in_float8(model);
  model.name =
      fmt::format("{}{}", parts.experts ? "experts" : "dense", parts.latent ? " latent" : "");
  model.num_layers = 4;
  // Rounding must not change who is chosen.
  if (parts.experts && parts.precision != Precision::F32) model.moe->top_k = model.moe->num_experts;
  Plan plan = parity_plan(model, parts.parallel);
  plan.workload.seq_len = 32;
  program::set_precision(plan.workload, parts.precision);
  if (parts.precision == Precision::Fp8) plan.workload.seq_len = 64;  // 16 tokens on every rank
  if (parts.uneven) --plan.workload.global_batch_size;
  plan.uneven_batch = parts.uneven;
  if (parts.packed) plan.workload.documents = {.packed = true, .end_of_document = 0};
  plan.schedule = parts.schedule;
  plan.context_parallel = parts.method;
  plan.max_tokens_per_rank = parts.hybrid_context ? plan.workload.seq_len / 2 + 4 : 0;
  plan.recompute.kind = parts.recompute;
  if (parts.whole_modules) plan.recompute.modules = whole_modules(model);
  plan.compression = {.kind = parts.compression, .ratio = 1};
  plan.zero_stage = parts.zero;
  plan.zero_shard_group = parts.hybrid_zero ? 2 : 0;
  plan.expert_node_ranks = parts.by_node ? 2 : 0;
  plan.expert_dispatch_fp8 = parts.float8_dispatch;
  plan.bucket_bytes = 16 << 10;
  // Gradients end in the second layer, and pass a part of the third.
  if (parts.frozen) plan.frozen = {"embedding", "layers.0", "layers.2.self_attn"};
  return plan;
}

void recompute(Parts& parts, RecomputeKind kind, bool whole_modules = false) {
  parts.recompute = kind;
  parts.whole_modules = whole_modules;
}
void use_pipeline(Parts& parts, ScheduleKind schedule, int chunks) {
  parts.parallel.pp = 2;
  parts.parallel.vpp = chunks;
  parts.schedule = schedule;
}
void use_context(Parts& parts, ContextMethod method) {
  parts.parallel.cp = 2;
  parts.method = method;
}
/// So that there is something to divide, or to compress.
void use_replicas(Parts& parts, int least = 2) {
  ParallelConfig& p = parts.parallel;
  if (p.dp * p.cp < least) p.dp = least / p.cp;
}
void use_zero(Parts& parts, int stage) {
  use_replicas(parts);
  parts.zero = stage;
}
void use_experts(Parts& parts, int ep, int etp) {
  ParallelConfig& p = parts.parallel;
  parts.experts = true;
  p.ep = std::max(p.ep, ep);
  p.etp = std::max(p.etp, etp);
  while (p.tp * p.cp * p.dp < p.ep * p.etp) p.dp *= 2;
}
void use_compression(Parts& parts, CompressionKind kind) {
  use_replicas(parts);
  parts.compression = kind;
}

/// What gives a plan a technique, unless something else forbids it.
using Change = void (*)(Parts&);
const std::map<std::string, Change> kChanges = {
    {"tp", [](Parts& p) { p.parallel.tp = 2; }},
    {"sp", [](Parts& p) { p.parallel.tp = 2, p.parallel.sp = true; }},
    {"pp", [](Parts& p) { p.parallel.pp = 2; }},
    {"vpp",
     [](Parts& p) {
       if (p.parallel.vpp == 1) use_pipeline(p, ScheduleKind::Interleaved, 2);
     }},
    {"gpipe", [](Parts& p) { use_pipeline(p, ScheduleKind::GPipe, 1); }},
    {"1f1b", [](Parts& p) { use_pipeline(p, ScheduleKind::OneFOneB, 1); }},
    {"interleaved", [](Parts& p) { use_pipeline(p, ScheduleKind::Interleaved, 2); }},
    {"1f1b-overlapped", [](Parts& p) { use_pipeline(p, ScheduleKind::OverlappedOneFOneB, 1); }},
    {"zb-h1", [](Parts& p) { use_pipeline(p, ScheduleKind::ZbH1, 1); }},
    {"zb-v", [](Parts& p) { use_pipeline(p, ScheduleKind::ZbV, 2); }},
    {"dualpipe-v", [](Parts& p) { use_pipeline(p, ScheduleKind::DualPipeV, 2); }},
    {"cp-gather", [](Parts& p) { use_context(p, ContextMethod::AllGather); }},
    {"cp-ring", [](Parts& p) { use_context(p, ContextMethod::Ring); }},
    {"cp-ulysses", [](Parts& p) { use_context(p, ContextMethod::Ulysses); }},
    {"cp-hybrid", [](Parts& p) { p.parallel.cp = 2, p.packed = p.hybrid_context = true; }},
    {"dp", [](Parts& p) { p.parallel.dp = std::max(p.parallel.dp, 2); }},
    {"uneven", [](Parts& p) { p.parallel.dp = std::max(p.parallel.dp, 2), p.uneven = true; }},
    {"zero1", [](Parts& p) { use_zero(p, 1); }},
    {"zero2", [](Parts& p) { use_zero(p, 2); }},
    {"zero3", [](Parts& p) { use_zero(p, 3); }},
    {"zero-hybrid",
     [](Parts& p) { use_replicas(p, 4), p.zero = std::max(1, p.zero), p.hybrid_zero = true; }},
    {"experts", [](Parts& p) { p.experts = true; }},
    {"ep", [](Parts& p) { use_experts(p, 2, 1); }},
    {"etp", [](Parts& p) { use_experts(p, 1, 2); }},
    {"by-node", [](Parts& p) { use_experts(p, 4, 1), p.by_node = true; }},
    {"fp8-dispatch",
     [](Parts& p) {
       use_experts(p, 2, 1), p.float8_dispatch = true;
       if (p.precision == Precision::F32) p.precision = Precision::BF16;
     }},
    {"latent", [](Parts& p) { p.latent = true; }},
    {"selective", [](Parts& p) { recompute(p, RecomputeKind::Selective); }},
    {"modules", [](Parts& p) { recompute(p, RecomputeKind::Selective, true); }},
    {"full", [](Parts& p) { recompute(p, RecomputeKind::Full); }},
    {"packed", [](Parts& p) { p.packed = true; }},
    {"int8", [](Parts& p) { use_compression(p, CompressionKind::Int8); }},
    {"top-k", [](Parts& p) { use_compression(p, CompressionKind::TopK); }},
    {"bf16", [](Parts& p) { p.precision = Precision::BF16; }},
    {"fp16", [](Parts& p) { p.precision = Precision::F16; }},
    {"fp8", [](Parts& p) { p.precision = Precision::Fp8; }},
    {"frozen", [](Parts& p) { p.frozen = true; }},
};

bool is_legal(const Plan& plan) {
  return plan.parallel.world_size() <= kMaxRanks && check(plan).empty();
}

/// Plans to choose from, and all pairs that some plan can have.
struct Space {
  std::vector<Plan> exact;    // whose gradients are those of one rank but for the order of sums
  std::vector<Plan> rounded;  // 16-bit or int8 numbers
  PairSet legal;

  /// Pairs that exact plans can have are covered by such.
  std::vector<Plan> cover() const {
    std::vector<Plan> chosen;
    PairSet covered;
    for (const auto* plans : {&exact, &rounded}) {
      for (const std::size_t i : covering_plans(*plans, covered)) chosen.push_back((*plans)[i]);
      for (const Plan& plan : chosen) covered |= pairs_of(plan);
    }
    return chosen;
  }
};

bool is_exact(const Plan& plan) {
  return plan.workload.precision == DType::F32 && plan.compression.kind != CompressionKind::Int8;
}

/// Each pair in plans that have other techniques besides, drawn by a fixed seed: the same on every
/// rank. Drawn few at first, so that what a pair forbids is seldom among them.
Space draw_plans(unsigned seed) {
  std::mt19937 random(seed);
  const std::vector<std::string>& names = all_techniques();
  Space space;
  for (std::size_t a = 0; a < names.size(); ++a)
    for (std::size_t b = a; b < names.size(); ++b) {
      int found = 0;
      for (int i = 0; i < kTries && found < kWitnesses; ++i) {
        Parts parts;
        const unsigned percent = 10U * (1U + static_cast<unsigned>(i % kDensities));
        for (const std::string& other : names)
          if (i > 0 && random() % 100 < percent) kChanges.at(other)(parts);
        kChanges.at(names[a])(parts);
        kChanges.at(names[b])(parts);
        const Plan plan = plan_of(parts);
        const PairSet pairs = pairs_of(plan);
        if (!pairs.test(pair_index(a, b)) || !is_legal(plan)) continue;
        ++found;
        space.legal |= pairs;
        (is_exact(plan) ? space.exact : space.rounded).push_back(plan);
      }
    }
  return space;
}

const Space& space_of(unsigned seed) {
  static std::map<unsigned, Space> spaces;
  const auto [entry, fresh] = spaces.try_emplace(seed);
  if (fresh) entry->second = draw_plans(seed);
  return entry->second;
}

// ---------------------------------------------------------------- runs

struct PairJob : ParityJob {
  PairJob() : ParityJob{.steps = kPairSteps} {}

  /// Runs the same model and workload on one rank.
  const RunResult& reference_of(const Plan& plan) {
    Plan alone = plan_of({});
    alone.model = plan.model;
    alone.workload = plan.workload;
    alone.frozen = plan.frozen;
    const std::string key = fmt::format(
        "{} {} {} {} {}", plan.model.name, precision_name(plan.workload),
        plan.workload.documents.packed, plan.frozen.size(), plan.workload.global_batch_size);
    const auto [entry, fresh] = references.try_emplace(key);
    if (fresh) entry->second = run_alone(alone);
    return entry->second;
  }
  std::map<std::string, RunResult> references;
};

std::string names_of(const Plan& plan) {
  std::vector<std::string> names;
  for (const std::size_t i : techniques_of(plan)) names.push_back(all_techniques()[i]);
  return fmt::format("{}: {}", plan.model.name, fmt::join(names, " "));
}

/// For a gradient, and for what is mostly cancellation.
double gradient_tolerance_of(const Plan& plan) {
  const bool half = plan.workload.precision != DType::F32;
  double tolerance = half ? half_tolerance(plan) : 1e-5;
  if (precision_of(plan.workload) == Precision::Fp8) tolerance = float8_tolerance(plan);
  if (plan.compression.kind == CompressionKind::Int8) tolerance += kInt8Error;
  return tolerance;
}

/// For the first loss, which no gradient has moved yet.
double loss_tolerance_of(const Plan& plan) {
  if (precision_of(plan.workload) == Precision::Fp8 || plan.expert_dispatch_fp8) return 0x1p-6;
  return plan.workload.precision == DType::F32 ? 1e-6 : unit_roundoff(plan.workload.precision);
}

/// @returns the gradient error over what is allowed; none on ranks that the plan does not use
std::optional<double> run_and_check(PairJob& fixture, const Plan& plan) {
  const RunResult& reference = fixture.reference_of(plan);
  const auto run = fixture.run(plan);
  if (!run) return std::nullopt;
  const double tolerance = gradient_tolerance_of(plan);
  const bool exact = is_exact(plan);
  const GradientError error = compare_gradients(*run, reference, exact ? 1e-6 : kSmallInHalf);
  INFO(names_of(plan) << "; " << to_string(plan.parallel) << ", worst gradient " << error.worst
                      << " by " << error.relative << ", allowed " << tolerance);
  CHECK(error.relative <= tolerance);
  CHECK(error.small_absolute <= (exact ? 1e-11 : tolerance * kSmallInHalf));
  if (plan.model.moe) CHECK(run->expert_loads.front() == reference.expert_loads.front());
  if (exact)
    CHECK(scalar_error(*run, reference) <= 1e-5);
  else
    CHECK(run->losses.front() == Approx(reference.losses.front()).epsilon(loss_tolerance_of(plan)));
  if (fixture.world->rank() == 0) record_parity("pairs", plan, error.relative);
  return error.relative / tolerance;
}

// ---------------------------------------------------------------- what was covered

struct SuiteRecord {
  int plans = 0;
  double worst = 0;  // relative gradient error, of plans in fp32 without int8
};

struct Coverage {
  std::map<std::string, SuiteRecord> suites;
  std::map<std::size_t, int> count;  // by pair_index
  int plans = 0;
};

Coverage read_log(const std::string& file) {
  std::ifstream log(file);
  REQUIRE(log);
  const std::vector<std::string>& names = all_techniques();
  Coverage coverage;
  for (std::string line; std::getline(log, line);) {
    std::istringstream fields(line);
    std::string suite, model, list, error;
    std::getline(fields, suite, '\t');
    std::getline(fields, model, '\t');
    std::getline(fields, list, '\t');
    std::getline(fields, error, '\t');
    std::vector<std::size_t> own;
    std::istringstream techniques(list);
    bool rounds = false;
    for (std::string name; std::getline(techniques, name, ',');) {
      own.push_back(static_cast<std::size_t>(std::ranges::find(names, name) - names.begin()));
      rounds = rounds || name == "bf16" || name == "fp16" || name == "fp8" || name == "int8";
    }
    for (std::size_t i = 0; i < own.size(); ++i)
      for (std::size_t j = i; j < own.size(); ++j) ++coverage.count[pair_index(own[i], own[j])];
    ++coverage.plans;
    SuiteRecord& record = coverage.suites[suite + (rounds ? " (rounding)" : "")];
    ++record.plans;
    record.worst = std::max(record.worst, std::stod(error));
  }
  return coverage;
}

void print(const Coverage& coverage, const PairSet& legal) {
  const std::vector<std::string>& names = all_techniques();
  fmt::print("\n{:<28} {:>6}  worst relative gradient error\n", "suite", "plans");
  for (const auto& [suite, record] : coverage.suites)
    fmt::print("{:<28} {:>6}  {:.2e}\n", suite, record.plans, record.worst);
  fmt::print(
      "{:<28} {:>6}\n\nplans by pair of techniques (on the diagonal: with the technique; "
      ". refused, ! legal but not covered)\n{:>14}",
      "all", coverage.plans, "");
  for (std::size_t i = 0; i < names.size(); ++i) fmt::print(" {:>4}", i + 1);
  fmt::print("\n");
  for (std::size_t b = 0; b < names.size(); ++b) {
    fmt::print("{:>2} {:<11}", b + 1, names[b]);
    for (std::size_t a = 0; a <= b; ++a) {
      const auto found = coverage.count.find(pair_index(a, b));
      if (found != coverage.count.end())
        fmt::print(" {:>4}", found->second);
      else
        fmt::print(" {:>4}", legal.test(pair_index(a, b)) ? "!" : ".");
    }
    fmt::print("\n");
  }
}

}  // namespace

TEST_CASE("every technique and every legal pair gives the gradients and losses of one rank",
          "[parity][pairs]") {
  PairJob fixture;
  const std::vector<unsigned> seeds =
      testing::all_cases() ? std::vector{1U, 2U, 3U} : std::vector{1U};
  for (const unsigned seed : seeds) {
    const Space& space = space_of(seed);
    double worst = 0;
    const std::vector<Plan> chosen = space.cover();
    for (const Plan& plan : chosen)
      if (const auto error = run_and_check(fixture, plan)) worst = std::max(worst, *error);
    if (fixture.world->rank() == 0)
      std::cout << fmt::format(
          "pairs: {} plans have all {} techniques and all {} legal pairs of them, worst gradient "
          "{:.2f} of its tolerance\n",
          chosen.size(), all_techniques().size(), space.legal.count() - all_techniques().size(),
          worst);
  }
}

TEST_CASE("what the rules refuse of two techniques is what the documents say", "[parity][pairs]") {
  const PairSet& legal = space_of(1).legal;
  const auto index = [](std::string_view name) {
    const auto found = std::ranges::find(all_techniques(), name);
    REQUIRE(found != all_techniques().end());
    return static_cast<std::size_t>(found - all_techniques().begin());
  };
  const auto allowed = [&](std::string_view a, std::string_view b) {
    const std::size_t i = index(a), j = index(b);
    return legal.test(pair_index(std::min(i, j), std::max(i, j)));
  };
  for (const std::string& name : all_techniques()) {
    INFO(name);
    CHECK(allowed(name, name));
  }
  CHECK_FALSE(allowed("gpipe", "vpp"));
  CHECK(allowed("experts", "fp16"));
  CHECK(allowed("ep", "int8"));
  CHECK(allowed("zero3", "int8"));
  CHECK(allowed("zero-hybrid", "top-k"));
  CHECK(allowed("fp16", "int8"));
  CHECK_FALSE(allowed("cp-ulysses", "cp-hybrid"));
  CHECK_FALSE(allowed("zero1", "zero2"));
  CHECK_FALSE(allowed("zero3", "zb-v"));
  CHECK(allowed("zero3", "interleaved"));
  CHECK(allowed("packed", "ep"));
  CHECK(allowed("uneven", "ep"));
  CHECK(allowed("uneven", "zero3"));
}

TEST_CASE("what the record covers", "[.coverage]") {
  const char* file = std::getenv("MESHPLAN_PARITY_LOG");
  REQUIRE(file != nullptr);
  const Coverage coverage = read_log(file);
  const PairSet& legal = space_of(1).legal;
  print(coverage, legal);
  std::vector<std::string> missing;
  const std::vector<std::string>& names = all_techniques();
  for (std::size_t a = 0; a < names.size(); ++a)
    for (std::size_t b = a; b < names.size(); ++b)
      if (legal.test(pair_index(a, b)) && !coverage.count.contains(pair_index(a, b)))
        missing.push_back(a == b ? names[a] : names[a] + " x " + names[b]);
  fmt::print("\nlegal, but not covered: {}\n",
             missing.empty() ? "none" : fmt::format("{}", fmt::join(missing, ", ")));
  CHECK(missing.empty());
}

}  // namespace meshplan::test::parity_pairs
