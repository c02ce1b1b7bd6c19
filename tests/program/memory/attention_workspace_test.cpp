#include "memory/attention_workspace.hpp"

#include <algorithm>
#include <catch2/catch.hpp>

#include "models/model_spec.hpp"
#include "program/lower/lower.hpp"
#include "program/plans.hpp"

namespace meshplan::program {
namespace {

/// 32 heads of 128 on 8 of keys, sequences of 8,192.
Plan llama3_8b(ParallelConfig parallel = {}) {
  Plan plan = test::make_plan(models::load_preset("llama3-8b"), parallel, 8);
  plan.model.num_layers = 2;
  plan.model.max_positions = 8192;
  plan.workload.seq_len = 8192;
  plan.workload.precision = DType::BF16;
  return plan;
}

constexpr std::int64_t kRowSums = std::int64_t{4} * 32 * 8192;
constexpr std::int64_t kSharedHeads = std::int64_t{4} * 32 * 8192 * 128;  // dk and dv
constexpr std::int64_t kScores = std::int64_t{2} * 32 * 8192 * 8192;
constexpr std::int64_t kFew = 4096;

std::int64_t workspace(const Plan& plan) {
  return lower(plan, 0).memory.workspace_bytes;
}

}  // namespace

TEST_CASE("Attention's workspace is planned by hand", "[program][memory]") {
  Plan plan = llama3_8b();
  plan.attention_workspace_bytes = std::int64_t{8} << 30;
  CHECK(workspace(plan) == kScores + kSharedHeads + 2 * kRowSums + kFew);
  plan.deterministic = false;  // 4 bytes of each element of dq, on an A100 twice
  CHECK(workspace(plan) == 8LL * 32 * 8192 * 128 + kSharedHeads + 2 * kRowSums + kFew);
  plan.attention = AttentionKernels::Own;
  CHECK(workspace(plan) == kRowSums);
}

TEST_CASE("What needs more workspace than the plan allows is computed in parts",
          "[program][memory]") {
  Plan plan = llama3_8b();
  const std::int64_t whole = kScores + kSharedHeads + 2 * kRowSums;
  CHECK(workspace(plan) == whole / 4 + kFew);  // 2 of 8 heads of keys at a time, below 2 GiB
  plan.attention_workspace_bytes = whole / 8 + kFew;
  CHECK(workspace(plan) == whole / 8 + kFew);
  plan.micro_batch_size = 3;  // one sequence at a time
  plan.workload.global_batch_size = 24;
  CHECK(workspace(plan) == std::max(whole / 8 + kFew, 3 * kRowSums));
  plan.attention_workspace_bytes = 2 * whole + kFew;  // two, then one
  CHECK(workspace(plan) == 2 * whole + kFew);
}

TEST_CASE("Our own attention is planned where one group of heads needs more than the plan allows",
          "[program][memory]") {
  Plan plan = llama3_8b();
  const std::int64_t least = (kScores + kSharedHeads + 2 * kRowSums) / 8 + kFew;
  plan.attention_workspace_bytes = least - 1;
  CHECK(workspace(plan) == kRowSums);
  plan.attention = AttentionKernels::Cudnn;  // whatever it takes
  CHECK(workspace(plan) == least);
}

TEST_CASE("Workspace follows what a rank attends to", "[program][memory]") {
  const auto with_room = [](ParallelConfig parallel) {
    Plan plan = llama3_8b(parallel);
    plan.attention_workspace_bytes = std::int64_t{8} << 30;
    return plan;
  };
  Plan plan = with_room({.tp = 4});
  CHECK(workspace(plan) == (kScores + kSharedHeads + 2 * kRowSums) / 4 + kFew);
  plan = with_room({.cp = 2});  // chunks of 2,048 against all keys
  CHECK(workspace(plan) == kScores / 4 + kSharedHeads + kRowSums / 2 + kFew);
  plan.context_parallel = ContextMethod::Ring;  // its own 4,096 against themselves
  CHECK(workspace(plan) == kScores / 4 + kSharedHeads / 2 + kRowSums + kFew);
  plan.context_parallel = ContextMethod::Ulysses;  // half of the heads
  CHECK(workspace(plan) == (kScores + kSharedHeads + 2 * kRowSums) / 2 + kFew);
}

TEST_CASE("What cuDNN does not compute needs none of its workspace", "[program][memory]") {
  Plan plan = llama3_8b();
  plan.attention = AttentionKernels::Cudnn;
  plan.workload.precision = DType::F32;
  CHECK(workspace(plan) == kRowSums);
  plan.workload.precision = DType::BF16;
  plan.model.head_size = 256;
  CHECK(workspace(plan) == kRowSums);
  plan.model.head_size = 128;
  CHECK(lower(plan, 0, Pass::ForwardOnly).memory.workspace_bytes == kFew);
}

}  // namespace meshplan::program
