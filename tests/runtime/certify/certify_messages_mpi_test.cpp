// One message of a twin is changed on its way: the certificate must name it. Prints what was
// changed and how many of these changes were seen:
//   tests/tcp_ranks.sh 8 build/release/tests/test_certify -# "[#certify_messages_mpi_test]~[.]"
//   tests/tcp_ranks.sh 8 build/release/tests/test_certify -# "[#certify_messages_mpi_test][.sweep]"
//   makes every change of several calls of each kind, instead of one change of one call
#include <algorithm>
#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <iostream>
#include <map>

#include "certify/certify_twin.hpp"
#include "program/certificate/large_plans.hpp"
#include "program/checks/check.hpp"
#include "runtime/certify/faulty_communicator.hpp"
#include "runtime/parity/parity_job.hpp"

namespace meshplan::test::certify_messages {
namespace {

using program::Compared;
using program::test::large_plan;
using Where = Fault::Where;
using Change = Fault::Change;

constexpr std::uint64_t kSeed = 7;

// ---------------------------------------------------------------- plans

struct NamedPlan {
  std::string name;
  Plan plan;
};

Plan with(Plan plan, const std::function<void(Plan&)>& edit) {
  edit(plan);
  return plan;
}

Plan over_context(ContextMethod method, int zero) {
  return with(large_plan("llama3-8b", {.cp = 4, .dp = 2}), [&](Plan& plan) {
    plan.context_parallel = method;
    plan.zero_stage = zero;
  });
}

Plan in_pipeline(ScheduleKind schedule, int vpp) {
  return with(large_plan("llama3-8b", {.pp = 4, .vpp = vpp, .dp = 2}, 8),
              [&](Plan& plan) { plan.schedule = schedule; });
}

Plan compressed(program::CompressionKind kind) {
  return with(large_plan("llama3-8b", {.dp = 8}),
              [&](Plan& plan) { plan.compression = {.kind = kind, .ratio = 0.05}; });
}

std::vector<NamedPlan> plans() {
  const Plan dp = large_plan("llama3-8b", {.dp = 8});
  return {
      {"tp sp pp zero1", with(large_plan("llama3-8b", {.tp = 4, .pp = 2, .dp = 8, .sp = true}),
                              [](Plan& plan) { plan.zero_stage = 1; })},
      {"tp, copied key heads", large_plan("llama3-8b", {.tp = 16, .dp = 2})},
      {"cp ring, zero3", over_context(ContextMethod::Ring, 3)},
      {"cp all-gather, zero2", over_context(ContextMethod::AllGather, 2)},
      {"cp ulysses", over_context(ContextMethod::Ulysses, 0)},
      {"embedding at both ends", large_plan("gpt2-xl", {.pp = 4})},
      {"interleaved", in_pipeline(ScheduleKind::Interleaved, 2)},
      {"1f1b-overlapped", in_pipeline(ScheduleKind::OverlappedOneFOneB, 2)},
      {"zb-v", in_pipeline(ScheduleKind::ZbV, 2)},
      {"dualpipe-v", in_pipeline(ScheduleKind::DualPipeV, 2)},
      {"zero-hybrid", with(dp,
                           [](Plan& plan) {
                             plan.zero_stage = 2;
                             plan.zero_shard_group = 2;
                           })},
      {"int8", compressed(program::CompressionKind::Int8)},
      {"top-k", compressed(program::CompressionKind::TopK)},
      {"ep etp sp", large_plan("mixtral-8x7b", {.tp = 2, .dp = 4, .ep = 2, .etp = 2, .sp = true})},
      {"ep by node", with(large_plan("mixtral-8x7b", {.dp = 8, .ep = 8}),
                          [](Plan& plan) { plan.expert_node_ranks = 4; })},
      {"ep edp", large_plan("mixtral-8x7b", {.dp = 16, .ep = 8})},
      {"sums over 8 ranks", large_plan("llama3-8b", {.cp = 4, .dp = 2})},
  };
}

// ---------------------------------------------------------------- faults

/// "tp" of "tp of ranks 0 1".
std::string kind_of(const std::string& group) {
  return group.substr(0, group.find(" of "));
}

/// Numbers, and bytes of which any may be wrong. An integer counts rows or names an expert: nothing
/// runs without it.
bool may_change(const GroupCall& call) {
  const bool number =
      call.dtype == DType::F32 || call.dtype == DType::F64 || call.dtype == DType::U8;
  // Of its world the twin itself only adds scalars; the rest gathers and compares what it has done.
  const bool of_twin =
      !call.group.starts_with("twin") ||
      (call.operation == CommOp::AllReduce && call.dtype == DType::F64 && call.sent <= 16);
  return number && of_twin && !call.group.starts_with("world") && call.sent + call.received > 0;
}

/// Calls that a twin makes, by group and operation. The certificate repeats the sums of a step
/// after it: of two steps, the calls of a group are a quarter of the first, its repetition, and so
/// on.
std::map<std::string, std::vector<GroupCall>> calls_of(const FaultState& state) {
  std::map<std::string, std::vector<GroupCall>> calls;
  for (const GroupCall& call : state.calls) {
    const int all = state.next.at({call.group, call.operation});
    const bool sum = call.operation == CommOp::AllReduce || call.operation == CommOp::ReduceScatter;
    const bool repeated = sum && call.size > 2 && call.number % (all / 2) >= all / 4;
    if (may_change(call) && !repeated)
      calls[fmt::format("{} of {}", program::name_of(call.operation), kind_of(call.group))]
          .push_back(call);
  }
  return calls;
}

/// Every way to change a message of this call. A number that is added may change by one unit
/// without a trace in the sum.
std::vector<Fault> faults_of(const GroupCall& call) {
  const bool sum = call.operation == CommOp::AllReduce || call.operation == CommOp::ReduceScatter;
  std::vector<Fault> faults;
  for (const Where where : {Where::Received, Where::Sent})
    for (const Change change : {Change::Relative, Change::Gross, Change::Ulp}) {
      if (where == Where::Sent && (call.sent == 0 || (sum && change == Change::Ulp))) continue;
      if (where == Where::Received && call.received == 0) continue;
      faults.push_back({.group = call.group,
                        .operation = call.operation,
                        .number = call.number,
                        .where = where,
                        .change = change,
                        .seed = static_cast<std::size_t>(call.number) * 7919 + 131});
    }
  return faults;
}

std::string describe(const Fault& fault, int rank) {
  constexpr const char* kChanges[] = {"grossly", "by 1e-4", "by one unit"};
  return fmt::format("{} of {}, call {}: {} rank {} {}", program::name_of(fault.operation),
                     fault.group, fault.number,
                     fault.where == Where::Sent ? "sent by" : "received by", rank,
                     kChanges[static_cast<std::size_t>(fault.change)]);
}

/// Calls to change of those of one kind: one, or several.
std::vector<GroupCall> chosen(const std::vector<GroupCall>& calls, std::size_t turn, bool all) {
  if (!all) return {calls[turn * 31 % calls.size()]};
  std::vector<GroupCall> some;
  for (const std::size_t i : {std::size_t{0}, calls.size() / 3, calls.size() - 1})
    if (some.empty() || some.back().number != calls[i].number) some.push_back(calls[i]);
  return some;
}

// ---------------------------------------------------------------- runs

struct MessageJob : ParityJob {
  MessageJob() : ParityJob{.steps = 0} {}

  /// @param fault  on this rank
  program::TwinResult certify(const program::Twin& twin, const std::optional<Fault>& fault) {
    state.restart(fault);
    return runtime::certify_twin(twin, kSeed, {*faulty_world, device, *backend}, groups);
  }

  /// The same on all ranks.
  int from_rank(int value, int rank) {
    std::int32_t shared = value;
    world->broadcast({&shared, 1, DType::I32}, rank).wait();
    return shared;
  }
  std::string text_from(std::string text, int rank) {
    text.resize(static_cast<std::size_t>(from_rank(static_cast<int>(text.size()), rank)));
    world->broadcast({text.data(), std::ssize(text), DType::U8}, rank).wait();
    return text;
  }

  FaultState state;
  std::unique_ptr<runtime::Communicator> faulty_world = make_faulty_world(*world, state);
  runtime::TwinGroups groups{*faulty_world};
};

/// Does the certificate say that this kind of message differs?
bool names_message(const program::TwinResult& result, std::string kind) {
  if (kind.find("twin") != std::string::npos) kind = "all_reduce of world";
  return std::ranges::any_of(result.compared, [&](const Compared& compared) {
    return compared.what == program::kMessage && !compared.agrees() && compared.name == kind;
  });
}

/// Does anything but messages and copies differ?
bool seen_by_norms(const program::TwinResult& result) {
  return std::ranges::any_of(result.compared, [](const Compared& compared) {
    return !program::is_exact(compared) && !compared.agrees();
  });
}

struct Tally {
  int changed = 0;
  int caught = 0;
  int by_norms = 0;  // known to rank 0
};

/// Changes messages of one kind on one rank, one after the other.
void change_messages(MessageJob& job, const program::Twin& twin, int rank,
                     const std::vector<Fault>& faults, Tally& tally) {
  const int count = job.from_rank(static_cast<int>(faults.size()), rank);
  for (int i = 0; i < count; ++i) {
    const bool mine = job.world->rank() == rank;
    const std::optional<Fault> fault =
        mine ? std::optional(faults[static_cast<std::size_t>(i)]) : std::nullopt;
    const std::string kind = job.text_from(
        mine ? fmt::format("{} of {}", program::name_of(fault->operation), kind_of(fault->group))
             : "",
        rank);
    const std::string what = job.text_from(mine ? describe(*fault, rank) : "", rank);
    const program::TwinResult result = job.certify(twin, fault);
    INFO(what);
    CHECK(job.from_rank(job.state.hits, rank) == 1);
    const bool caught =
        job.from_rank(!result.agrees() && names_message(result, kind) ? 1 : 0, 0) != 0;
    CHECK(caught);
    ++tally.changed;
    if (caught) ++tally.caught;
    if (seen_by_norms(result)) ++tally.by_norms;
    if (job.world->rank() == 0 && !caught) std::cout << "NOT CAUGHT: " << what << '\n';
  }
}

void sweep(bool all) {
  MessageJob job;
  Tally total;
  std::size_t turn = 0;
  for (const NamedPlan& named : plans()) {
    REQUIRE(program::check(named.plan).empty());
    const auto twins = program::twins_of(named.plan, program::TwinPrecision::Exact).twins;
    const program::Twin& twin = twins.front();
    const program::TwinResult right = job.certify(twin, std::nullopt);
    INFO(named.name);
    CHECK(job.from_rank(right.agrees() ? 1 : 0, 0) == 1);
    const auto calls = calls_of(job.state);
    Tally tally;
    for (const int rank : {0, twin.plan.parallel.world_size() - 1}) {
      std::vector<Fault> faults;
      for (const auto& [kind, of_kind] : calls)
        for (const GroupCall& call : chosen(of_kind, ++turn, all)) {
          const std::vector<Fault> each = faults_of(call);
          if (all)
            faults.insert(faults.end(), each.begin(), each.end());
          else
            faults.push_back(each[turn % each.size()]);
        }
      change_messages(job, twin, rank, faults, tally);
      turn = static_cast<std::size_t>(job.from_rank(static_cast<int>(turn), 0));
    }
    if (job.world->rank() == 0)
      std::cout << fmt::format("{:<28} {:<24} {} of {}\n", named.name,
                               to_string(twin.plan.parallel), tally.caught, tally.changed)
                << std::flush;
    total.changed += tally.changed;
    total.caught += tally.caught;
    total.by_norms += tally.by_norms;
  }
  if (job.world->rank() == 0)
    std::cout << fmt::format("{} of {} changed messages caught; norms see {}\n", total.caught,
                             total.changed, total.by_norms);
}

}  // namespace

TEST_CASE("a message that is changed on its way is named", "[certify]") {
  sweep(false);
}

TEST_CASE("every change of a message is seen", "[certify][.sweep]") {
  sweep(true);
}

}  // namespace meshplan::test::certify_messages
