#include "planner/rules/rules.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "core/error.hpp"
#include "rules/pipeline_layout.hpp"
#include "support/project_folder.hpp"
#include "support/random.hpp"

namespace meshplan::planner {
namespace {

program::Plan plan_of(const std::string& model, program::ParallelConfig parallel) {
  program::Plan plan;
  plan.model = models::load_preset(model);
  plan.parallel = parallel;
  plan.workload = {.seq_len = 8192, .global_batch_size = 64, .precision = DType::BF16};
  if (parallel.vpp > 1) plan.schedule = program::ScheduleKind::Interleaved;
  return plan;
}

/// A plan that every stack starts, as facts.
Facts sound_facts() {
  Facts facts = facts_of(plan_of("llama3-8b", {.tp = 4, .pp = 2, .dp = 2, .sp = true}));
  facts["vocab"] = 128'000;
  return facts;
}

const Judgement& of_rule(const std::vector<Judgement>& judgements, const std::string& id) {
  const auto found = std::ranges::find(judgements, id, &Judgement::id);
  REQUIRE(found != judgements.end());
  return *found;
}

Facts changed(Facts facts, const std::string& changes) {
  std::istringstream words(changes);
  for (std::string word; words >> word;) {
    const std::size_t equals = word.find('=');
    facts[word.substr(0, equals)] = std::stoll(word.substr(equals + 1));
  }
  return facts;
}

struct Case {
  const char* target;
  const char* rule;
  const char* changes;  // of the sound facts
};

// What breaks each rule, and nothing else need be wrong.
constexpr Case kBroken[] = {
    {"megatron-lm", "M1", "world=20"},
    {"megatron-lm", "M2", "experts=8 ep=3 etp=1"},
    {"megatron-lm", "M3", "pp_last=0 ep=2 etp=1"},
    {"megatron-lm", "M4", "heads=30"},
    {"megatron-lm", "M5", "kv_heads=6"},
    {"megatron-lm", "M6", "ffn=14338"},
    {"megatron-lm", "M6e", "experts=8 expert_ffn=1023 etp=2"},
    {"megatron-lm", "M7", "experts=6 ep=4"},
    {"megatron-lm", "M8", "cp=2 seq=8190"},
    {"megatron-lm", "M8s", "seq=8190"},
    {"megatron-lm", "M9", "gbs=63"},
    {"megatron-lm", "M10", "layers=31"},
    {"megatron-lm", "M11a",
     "pp=4 decoder_first_pipeline_num_layers=7 decoder_last_pipeline_num_layers=6"},
    {"megatron-lm", "M11b",
     "pp=4 decoder_first_pipeline_num_layers=6 decoder_last_pipeline_num_layers=6 vpp=4"},
    {"megatron-lm", "M11c",
     "decoder_first_pipeline_num_layers=10 account_for_loss_in_pipeline_split=1"},
    {"megatron-lm", "M11d",
     "pp=4 decoder_first_pipeline_num_layers=8 vpp=4 num_layers_per_virtual_pipeline_stage=2"},
    {"megatron-lm", "M12f",
     "vpp=2 num_layers_per_virtual_pipeline_stage=2 num_virtual_stages_per_pipeline_rank=2"},
    {"megatron-lm", "M12a", "vpp=3 interleaved=1 one_f_one_b=0"},
    {"megatron-lm", "M12b", "layout=1 layout_stages=3 layout_layers=32"},
    {"megatron-lm", "M12c", "layout=1 layout_stages=2 layout_layers=31"},
    {"megatron-lm", "M12d", "layout=1 layout_stages=2 layout_layers=32 layout_ends=0"},
    {"megatron-lm", "M12e",
     "layout=1 layout_stages=2 layout_layers=32 account_for_embedding_in_pipeline_split=1"},
    {"megatron-lm", "M13", "vpp=2 no_overlap_p2p_communication=1"},
    {"megatron-lm", "M14", "vpp=2 gbs=62"},
    {"megatron-lm", "M15a", "tp=1"},
    {"megatron-lm", "M15b", "experts=8 sp=0"},
    {"megatron-lm", "M16a", "recompute=2 recompute_method=0"},
    {"megatron-lm", "M16b", "recompute=1 recompute_limited=1"},
    {"megatron-lm", "M16c", "recompute=2 recompute_by_stage=1"},
    {"megatron-lm", "M16d", "recompute=2 distribute_saved_activations=1"},
    {"megatron-lm", "M17a", "recompute=1 recompute_unknown_modules=1"},
    {"megatron-lm", "M17b", "recompute=1 recompute_moe_act=1 moe_grouped_gemm=0"},
    {"megatron-lm", "M17c", "recompute=1 recompute_mla_up_proj=1"},
    {"megatron-lm", "M17d",
     "recompute=1 recompute_shared_experts=1 shared_ffn=8 moe_shared_expert_overlap=1"},
    {"megatron-lm", "M17e", "recompute=1 recompute_layernorm=1 fp8=1 fp8_delayed=1"},
    {"megatron-lm", "M18", "cpu_offloading_num_layers=1 recompute=1"},
    {"megatron-lm", "M19", "overlap_moe_expert_parallel_comm=1"},
    {"megatron-lm", "M20", "overlap_param_gather=1"},
    {"megatron-lm", "M21", "use_torch_fsdp2=1"},
    {"megatron-lm", "M22", "num_distributed_optimizer_instances=3"},
    {"megatron-lm", "M23a", "cp=2 cp_comm_types=3"},
    {"megatron-lm", "M23b", "cp=4 cp_hierarchical=1 cp_hierarchical_product=8"},
    {"megatron-lm", "M24", "experts=8 disable_bias_linear=0 etp=4"},
    {"megatron-lm", "M24s", "experts=8 disable_bias_linear=0 shared_ffn=8"},
    {"megatron-lm", "M25", "experts=60 expert_groups=8"},
    {"megatron-lm", "M25b", "experts=60 correction_bias=1"},
    {"megatron-lm", "M26", "vocab=128256"},
    {"megatron-lm", "M27", "mla=1 mla_down_proj_fusion=1 q_lora=1538 kv_lora=512 qk_rope=64"},
    {"megatron-lm", "M28", "one_f_one_b=0 zb_h1=1"},
    {"megatron-lm", "M29", "seq=16384 max_position_embeddings=8192"},
    {"torchtitan", "T1", "world=20"},
    {"torchtitan", "T2", "experts=12 ep=3"},
    {"torchtitan", "T3", "heads=30"},
    {"torchtitan", "T4", "tp=8 kv_heads=4"},
    {"torchtitan", "T5", "experts=6 ep=4"},
    {"torchtitan", "T6", "experts=8 ep=2 etp=4"},
    {"torchtitan", "T7", "tied=1"},
    {"torchtitan", "T8", "cp=2 flex_attention=0"},
    {"torchtitan", "T9", "seq=8191"},
    {"torchtitan", "T10", "gbs=63"},
    {"torchtitan", "T11", "cuda_graphs=1"},
    {"torchtitan", "T12", "layers_of_stage=12"},
    {"torchtitan", "T13", "layers_of_stage=9"},
    {"torchtitan", "T14", "vpp=9 one_f_one_b=0 interleaved=1"},
    {"torchtitan", "T15", "layout=1 layout_stages=2 layout_layers=31"},
    {"torchtitan", "T16", "gbs=2 custom_schedule=1"},
    {"torchtitan", "T17", "seq=16384"},
    {"torchtitan", "T18", "zero=1"},
    {"torchtitan", "T19", "fp16=1"},
    {"torchtitan", "T20", "gbs=2"},
    {"deepspeed", "D1", "gbs=63"},
    {"deepspeed", "D2", "zero=2"},
    {"deepspeed", "D3", "world=17"},
    {"deepspeed", "D4", "experts=6 ep=4"},
    {"deepspeed", "D5", "experts=12 ep=3"},
    {"deepspeed", "D6", "cp=2 cp_ring=1"},
    {"deepspeed", "D7", "cp=2 heads=31"},
    {"deepspeed", "D8", "cp=4 kv_heads=6"},
    {"deepspeed", "D9", "cp=3"},
    {"deepspeed", "D10", "tp=3"},
    {"deepspeed", "D11", "kv_heads=2"},
    {"deepspeed", "D12", "experts=8 ep=2"},
    {"deepspeed", "D13", "experts=8 ep=2 etp=2"},
    {"deepspeed", "D14", "vpp=2"},
    {"nanotron", "N1", "world=20"},
    {"nanotron", "N2", "ep=2"},
    {"nanotron", "N3", "heads=30"},
    {"nanotron", "N4", "kv_heads=2"},
    {"nanotron", "N5", "kv_heads=12"},
    {"nanotron", "N6", "ffn=14338"},
    {"nanotron", "N7", "cp=2 seq=8190"},
    {"nanotron", "N8", "seq=8190"},
    {"nanotron", "N9", "gbs=63"},
    {"nanotron", "N10", "pp=64 gbs=4"},
    {"nanotron", "N11", "one_f_one_b=0 zb_h1=1"},
    {"nanotron", "N12", "ends_as_layers=1"},
    {"nanotron", "N13", "zero=2"},
    {"nanotron", "N14", "recompute=1"},
};

}  // namespace

TEST_CASE("Every rule file is read, and its sources are a file and a line", "[planner][rules]") {
  CHECK(rule_targets() ==
        std::vector<std::string>{"meshplan", "deepspeed", "megatron-lm", "nanotron", "torchtitan"});
  const std::regex place("[\\w./]+\\.py:[1-9][0-9]*");
  for (const std::string& target : rule_targets()) {
    const RuleSet& set = rules_for(target);
    CHECK(set.target == target);
    CHECK_FALSE(set.rules.empty());
    if (target == kOwnTarget) continue;
    CHECK_FALSE(set.commit.empty());
    for (const Rule& rule : set.rules) {
      INFO(target << " " << rule.id);
      CHECK(std::regex_match(rule.source, place));
      CHECK_FALSE(rule.reason.empty());
    }
  }
  CHECK(&rules_for("megatron") == &rules_for("megatron-lm"));
  CHECK_THROWS_WITH(rules_for("megatron-l"), Catch::Contains("did you mean 'megatron-lm'?"));
  CHECK(target_of("megatron-core") == "megatron-lm");
  CHECK(target_of("meshplan") == "meshplan");
  CHECK_FALSE(target_of("jax-xla"));
}

TEST_CASE("A sound plan passes every rule that facts decide", "[planner][rules]") {
  for (const std::string& target : rule_targets()) {
    if (target == kOwnTarget) continue;
    for (const Judgement& judgement : judge(rules_for(target), sound_facts())) {
      INFO(target << " " << judgement.id << ": " << judgement.message);
      CHECK(judgement.verdict != Verdict::Failed);
    }
  }
}

TEST_CASE("Each rule is broken by a case of its own", "[planner][rules]") {
  std::set<std::pair<std::string, std::string>> seen;
  for (const Case& broken : kBroken) {
    INFO(broken.target << " " << broken.rule << " " << broken.changes);
    const auto judgements = judge(rules_for(broken.target), changed(sound_facts(), broken.changes));
    const Judgement& judgement = of_rule(judgements, broken.rule);
    INFO(judgement.message);
    CHECK(judgement.verdict == Verdict::Failed);
    CHECK(judgement.message.find("hold") != std::string::npos);
    seen.emplace(broken.target, broken.rule);
  }
  for (const std::string& target : rule_targets())
    if (target != kOwnTarget)
      for (const Rule& rule : rules_for(target).rules) {
        INFO(target << " " << rule.id);
        CHECK((rule.requirement.empty() || seen.contains({target, rule.id})));
      }
}

TEST_CASE("Rules agree with the stack's own lines, written as C++", "[planner][rules]") {
  testing::Random random(20261126);
  const RuleSet& rules = rules_for("megatron-lm");
  const auto size_of = [&](std::initializer_list<std::int64_t> values) {
    return values.begin()[random.below(values.size())];
  };
  for (int i = 0; i < 500; ++i) {
    const std::int64_t tp = size_of({1, 2, 3, 4, 8}), pp = size_of({1, 2, 3, 4}),
                       cp = size_of({1, 2}), ep = size_of({1, 2, 4, 8}), etp = size_of({1, 2, 4}),
                       vpp = size_of({1, 2, 4}), world = size_of({8, 12, 16, 24, 48, 96}),
                       heads = size_of({8, 12, 32, 40}), kv = size_of({1, 2, 4, 8}),
                       gbs = size_of({8, 12, 64, 96}), mbs = size_of({1, 2, 3}),
                       layers = size_of({24, 30, 32, 61}), seq = size_of({1024, 1026, 4100});
    const bool sp = random.one_in(2);
    const Facts facts = changed(
        sound_facts(), "tp=" + std::to_string(tp) + " pp=" + std::to_string(pp) +
                           " cp=" + std::to_string(cp) + " ep=" + std::to_string(ep) +
                           " etp=" + std::to_string(etp) + " vpp=" + std::to_string(vpp) +
                           " world=" + std::to_string(world) + " heads=" + std::to_string(heads) +
                           " kv_heads=" + std::to_string(kv) + " gbs=" + std::to_string(gbs) +
                           " mbs=" + std::to_string(mbs) + " layers=" + std::to_string(layers) +
                           " seq=" + std::to_string(seq) + " sp=" + std::to_string(sp));
    const auto judgements = judge(rules, facts);
    const auto passed = [&](const char* id) {
      const Verdict verdict = of_rule(judgements, id).verdict;
      return verdict == Verdict::Passed;
    };
    CHECK(passed("M1") == (world % (tp * pp * cp) == 0));
    CHECK(passed("M2") == (world % (etp * ep * pp) == 0));
    CHECK(passed("M4") == (heads % tp == 0));
    CHECK(passed("M5") == !(kv % tp != 0 && tp % kv != 0));
    CHECK(passed("M8") == !(cp > 1 && seq % (cp * 2) != 0));
    CHECK(passed("M8s") == !(sp && tp > 1 && seq / cp / tp * cp * tp != seq));
    CHECK(passed("M10") == !(pp > 1 && layers % pp != 0));
    CHECK(passed("M12a") == !(vpp > 1 && !(layers % pp == 0 && layers / pp % vpp == 0)));
    CHECK(passed("M13") == !(vpp > 1 && pp == 1));
    const std::int64_t dp = world / (tp * pp * cp);
    if (dp == 0) continue;
    const std::int64_t microbatches = gbs / (mbs * dp);
    CHECK(passed("M9") == (gbs % (mbs * dp) == 0 && microbatches >= 1));
    const bool stalls = 0 < microbatches % pp && microbatches % pp < pp;
    CHECK(passed("M14") == !(vpp > 1 && (pp > microbatches || stalls)));
  }
}

TEST_CASE("The nearest choice does, and nothing nearer", "[planner][rules]") {
  Facts facts = changed(sound_facts(), "tp=6 world=96 dp=8 pp=2 gbs=96 sp=0");
  const auto judgements = judge(rules_for("megatron-lm"), facts);
  const Judgement& heads = of_rule(judgements, "M4");
  REQUIRE(heads.verdict == Verdict::Failed);
  REQUIRE(heads.nearest);
  // tp = 4 and 8 are equally near, and divide 32 heads, 8 key/value heads, 14336 and 96 ranks; with
  // 12 and 6 replicas they divide the batch.
  CHECK(heads.nearest == NearestChoice{.fact = "tp", .value = 4, .breaks = {}});
  CHECK(heads.message ==
        "heads(32) % tp(6) == 0 must hold: every tp rank holds whole query heads; "
        "nearest tp: 4");
  // 20 replicas do not divide 96 sequences.
  facts = changed(facts, "world=80 tp=5 pp=2 gbs=64");
  const auto others = judge(rules_for("megatron-lm"), facts);
  const Judgement& other = of_rule(others, "M4");
  REQUIRE(other.nearest);
  CHECK(other.nearest->value == 4);
  CHECK(other.nearest->breaks == std::vector<std::string>{"M9"});
  CHECK(other.message.find("nearest tp: 4 (which breaks M9)") != std::string::npos);
}

TEST_CASE("Of choices equally near, one under which nothing else breaks comes first",
          "[planner][rules]") {
  // ep = 4 and 6 divide 12 experts; 30 ranks divide over 6 alone.
  const auto judgements =
      judge(rules_for("megatron-lm"),
            changed(sound_facts(), "tp=1 pp=1 sp=0 world=30 experts=12 ep=5 gbs=60"));
  CHECK(of_rule(judgements, "M2").verdict == Verdict::Passed);
  CHECK(of_rule(judgements, "M7").nearest == NearestChoice{.fact = "ep", .value = 6, .breaks = {}});
}

TEST_CASE("A rule that no value of its fact mends says so", "[planner][rules]") {
  const auto judgements = judge(rules_for("megatron-lm"),
                                changed(sound_facts(), "recompute=1 cpu_offloading_num_layers=1"));
  const Judgement& judgement = of_rule(judgements, "M18");  // the pipeline is in the way, too
  CHECK_FALSE(judgement.nearest);
  CHECK(judgement.message.find("no recompute near it does") != std::string::npos);
}

TEST_CASE("What is not known is undecidable and named", "[planner][rules]") {
  const RuleSet& rules = rules_for("megatron-lm");
  const Facts few{{"tp", 4}, {"world", 16}, {"pp", 1}, {"cp", 1}};
  const auto judgements = judge(rules, few, Unsaid::Unknown);
  const Judgement& heads = of_rule(judgements, "M4");
  CHECK(heads.verdict == Verdict::Undecidable);
  CHECK(heads.message.find("not known: heads; heads(?) % tp(4) == 0 must hold") == 0);
  CHECK(of_rule(judgements, "M1").verdict == Verdict::Undecidable);  // weight shards
  CHECK(of_rule(judge(rules, few), "M1").verdict == Verdict::Passed);
  // cp = 1 decides without the sequence.
  CHECK(of_rule(judgements, "M8").verdict == Verdict::Passed);
  CHECK_FALSE(of_rule(judgements, "M8").applies);
  // An environment variable, which matters with tp, cp or FSDP alone.
  CHECK(of_rule(judgements, "M30").verdict == Verdict::Undecidable);
  CHECK(of_rule(judge(rules, changed(few, "tp=1 zero=0")), "M30").verdict == Verdict::Passed);
  const auto broken = judge(rules, changed(few, "pp=0"), Unsaid::AsStackHasIt);
  CHECK(of_rule(broken, "M1").message.find("divides by zero") != std::string::npos);
}

TEST_CASE("Bound rules judge as the others do", "[planner][rules]") {
  for (const std::string& target : rule_targets()) {
    if (target == kOwnTarget) continue;
    const RuleSet& rules = rules_for(target);
    for (const Case& broken : kBroken) {
      const Facts facts = changed(sound_facts(), broken.changes);
      std::vector<std::string> names;
      std::vector<std::optional<std::int64_t>> values;
      for (const auto& [name, value] : facts) {
        names.insert(names.begin(), name);  // in another order
        values.insert(values.begin(), value);
      }
      const BoundRules bound(rules, names);
      const auto judgements = judge(rules, facts);
      REQUIRE(bound.size() == judgements.size());
      std::optional<std::size_t> first;
      for (std::size_t rule = 0; rule < bound.size(); ++rule) {
        CHECK(bound.judge(rule, values) == judgements[rule].verdict);
        if (!first && judgements[rule].verdict == Verdict::Failed &&
            judgements[rule].effect == Effect::Refused)
          first = rule;
      }
      CHECK(bound.first_refusal(values) == first);
    }
  }
}

TEST_CASE("Facts of a plan have the meanings that are told", "[planner][rules]") {
  program::Plan plan =
      plan_of("deepseek-v3",
              {.tp = 2, .cp = 1, .pp = 8, .vpp = 2, .dp = 32, .ep = 64, .etp = 1, .sp = true});
  const Facts facts = facts_of(plan);
  CHECK(facts.at("world") == 512);
  CHECK(facts.at("experts") == 256);
  CHECK(facts.at("top_k") == 8);
  CHECK(facts.at("q_lora") == 1536);
  CHECK(facts.at("kv_lora") == 512);
  CHECK(facts.at("interleaved") == 1);
  CHECK(facts.at("one_f_one_b") == 0);
  CHECK(facts.at("pp_last") == 1);
  CHECK_FALSE(facts.contains("layout_stages"));
  plan.parallel = {.tp = 1 << 20, .cp = 1 << 20, .pp = 1 << 20, .dp = 1 << 20};
  CHECK_FALSE(facts_of(plan).contains("world"));  // 2^80
  plan.rank_order = "tp-cp-ep-pp-dp";
  CHECK(facts_of(plan).at("pp_last") == 0);
  REQUIRE(plan_facts().size() == plan_fact_values(plan).size());
  std::set<std::string> names;
  for (const FactMeaning& fact : plan_facts()) {
    CHECK_FALSE(fact.meaning.empty());
    CHECK(names.insert(fact.name).second);
  }
}

TEST_CASE("Facts that are alike are told apart", "[planner][rules]") {
  program::Plan plan = plan_of("deepseek-v3", {.tp = 2, .pp = 8, .dp = 32, .ep = 64});
  const Facts facts = facts_of(plan);
  CHECK(facts.at("expert_groups") == 8);  // n_group of its config.json
  CHECK(facts.at("top_groups") == 4);     // topk_group
  CHECK(facts.at("recompute_limited") == 0);
  CHECK(facts.at("recompute_by_stage") == 0);
  plan.recompute.layers_per_stage = {1, 2};
  const Facts changed = facts_of(plan);
  CHECK(changed.at("recompute_limited") == 1);
  CHECK(changed.at("recompute_by_stage") == 1);
}

TEST_CASE("A fact beside a plan wins over the plan's own of that name", "[planner][rules]") {
  const program::Plan plan = plan_of("llama3-8b", {.tp = 4, .dp = 2});
  const RuleSet& rules = rules_for("megatron-lm");
  CHECK(of_rule(judge(rules, plan), "M4").verdict == Verdict::Passed);  // 32 heads
  CHECK(of_rule(judge(rules, plan, {{"heads", 30}}), "M4").verdict == Verdict::Failed);
}

TEST_CASE("Facts beside a plan replace the plan's", "[planner][rules]") {
  const program::Plan plan = plan_of("llama3-8b", {.tp = 4, .dp = 2});
  const RuleSet& rules = rules_for("megatron-lm");
  CHECK(of_rule(judge(rules, plan), "M1").verdict == Verdict::Passed);
  CHECK(of_rule(judge(rules, plan, {{"tensor_parallel_num_weight_shards", 12}}), "M1").verdict ==
        Verdict::Failed);
}

TEST_CASE("A stack whose rules nobody wrote down has none", "[planner][rules]") {
  CHECK_FALSE(target_of("torchtitan-eager"));
  const RuleSet& none = rules_for("torchtitan-eager");
  CHECK(none.software == "torchtitan-eager");
  CHECK(judge(none, plan_of("llama3-8b", {.tp = 3})).empty());
  CHECK(std::ranges::count(rule_targets(), "torchtitan-eager") == 0);  // not offered
  CHECK_THROWS_WITH(rules_for("torchtitan-eage"), Catch::Contains("torchtitan"));
}

TEST_CASE("Our own rules come through the same door", "[planner][rules]") {
  program::Plan plan = plan_of("llama3-8b", {.tp = 3, .dp = 2});
  const auto judgements = judge(rules_for(kOwnTarget), plan);
  const Judgement& heads = of_rule(judgements, "heads");
  CHECK(heads.verdict == Verdict::Failed);
  CHECK(heads.message.find("is not divisible by tp (3)") != std::string::npos);
  CHECK(of_rule(judgements, "batch").verdict == Verdict::Passed);
  CHECK(of_rule(judgements, "fp8").verdict == Verdict::Undecidable);  // not come to
  plan.parallel.tp = 4;
  for (const Judgement& judgement : judge(rules_for(kOwnTarget), plan))
    CHECK(judgement.verdict == Verdict::Passed);
  plan.parallel.tp = 0;
  const auto impossible = judge(rules_for(kOwnTarget), plan);
  CHECK(of_rule(impossible, "positive").verdict == Verdict::Failed);
  CHECK(of_rule(impossible, "batch").verdict == Verdict::Undecidable);
}

TEST_CASE("Our own rules are those of docs/rules.md", "[planner][rules]") {
  std::ifstream page(test::project_folder() / "docs/rules.md");
  std::vector<std::string> told, listed;
  for (std::string line; std::getline(page, line);)
    if (line.starts_with("| ") && !line.starts_with("| id ") && !line.starts_with("| --- "))
      told.push_back(line.substr(2, line.find(' ', 2) - 2));
  for (const Rule& rule : rules_for(kOwnTarget).rules) listed.push_back(rule.id);
  CHECK(told == listed);
}

TEST_CASE("Bad rule files are refused with rule and column", "[planner][rules]") {
  const auto message_of = [](const std::string& rules, const std::string& more = "") {
    try {
      parse_rules(R"({"target": "x", "stack": "X", "commit": "c", "software": "megatron-core",)" +
                      more + R"("rules": [)" + rules + "]}",
                  "x.json");
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const std::string rest = R"(, "reason": "because", "source": "a.py:1"})";
  const std::string rule = R"({"id": "X1", "name": "n")";
  CHECK(message_of(rule + R"(, "requires": "heads % tp == 0")" + rest).empty());
  CHECK(message_of(rule + R"(, "requires": "heads % == 0")" + rest) ==
        "x.json: rule X1: requires: 'heads % == 0': column 9: expected a name, a number or '(', "
        "got '== 0'");
  CHECK(message_of(rule + R"(, "requires": "hedas % tp == 0")" + rest)
            .find("rule X1: requires: unknown name 'hedas'; did you mean 'heads'?") !=
        std::string::npos);
  CHECK(message_of(rule + R"(, "requires": "heads % tp")" + rest).find("expected a condition") !=
        std::string::npos);
  CHECK(message_of(rule + R"(, "requires": "sp", "when": "tp +")" + rest)
            .find("rule X1: when: 'tp +': column 5") != std::string::npos);
  CHECK(message_of(rule + R"(, "requires": "sp", "nearest": "tq")" + rest)
            .find("rule X1: nearest: unknown name 'tq'") != std::string::npos);
  CHECK(message_of(rule + rest).find("either this or 'undecidable'") != std::string::npos);
  const std::string good = rule + R"(, "requires": "sp")" + rest;
  CHECK(message_of(good + "," + good).find("another rule with this id") != std::string::npos);
  CHECK(message_of(good,
                   R"("terms": [{"name": "a", "value": "b + 1"}, {"name": "b", "value": "a"}],)")
            .find("is made of itself") != std::string::npos);
  CHECK(message_of(good, R"("terms": [{"name": "if", "value": "1"}],)").find("is no name") !=
        std::string::npos);
}

TEST_CASE("Megatron-LM's pipeline layouts become facts", "[planner][rules]") {
  const Facts llama = layout_facts("Et*2|(t*2|)*34,t*3|(t*2|)*3,tL", 8);
  CHECK(llama.at("layout_stages") == 40);
  CHECK(llama.at("layout_layers") == 80);
  CHECK(llama.at("layout_ends") == 1);
  CHECK(llama.at("layout_mtp_in_place") == 1);
  // The example of parse_str_to_list.
  const Facts example = layout_facts("Ettt|(tt|)*29,m|L", 16);
  CHECK(example.at("layout_stages") == 32);
  CHECK(example.at("layout_layers") == 61);
  CHECK(example.at("layout_mtp") == 1);
  CHECK(example.at("layout_mtp_in_place") == 1);
  CHECK(layout_facts("Et|m|t|L", 2).at("layout_mtp_in_place") == 0);  // a layer behind it
  CHECK(layout_facts("Et|tm|t|tL", 4).at("layout_mtp_in_place") == 0);
  CHECK(layout_facts("Et|t|m|mL", 4).at("layout_mtp_in_place") == 0);  // in two stages
  CHECK(layout_facts("Et|tm|L|", 2).at("layout_mtp_in_place") == 0);   // not in the last chunk
  CHECK(layout_facts("t|E|tL", 3).at("layout_ends") == 0);
  CHECK_FALSE(layout_facts("Et|t|L", 2).contains("layout_mtp_in_place"));
  CHECK(layout_facts("", 1).at("layout_stages") == 1);
  CHECK_THROWS_WITH(layout_facts("Et|x|L", 3), Catch::Contains("column 4: expected one of E, t"));
  CHECK_THROWS_WITH(layout_facts("(t|", 1), Catch::Contains("expected ')', got the end"));
  CHECK_THROWS_WITH(layout_facts("(t|)", 1), Catch::Contains("expected '*' and a number"));
  CHECK_THROWS_WITH(layout_facts("t*", 1), Catch::Contains("expected a number"));
  CHECK_THROWS_WITH(layout_facts("(t*60000)*60000", 1), Catch::Contains("at most 65536"));
  CHECK_THROWS_WITH(layout_facts("t*99999999999999999999999", 1), Catch::Contains("a number"));
}

}  // namespace meshplan::planner
