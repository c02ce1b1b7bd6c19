// Memory that attention needs on a GPU beside its operands, so that the plan counts what a library
// asks for. Ranks on processors need none of it.
#pragma once

#include <cstdint>

#include "program/program.hpp"

namespace meshplan::program {

/// Sizes of one call of attention's backward pass.
struct AttentionSizes {
  std::int64_t sequences = 0;
  std::int64_t queries = 0;  // of a sequence
  std::int64_t keys = 0;
  int heads = 0;
  int kv_heads = 0;
  int head_size = 0;
};

/// The most that cuDNN's backward kernels (9.19) and our tensors beside them take, on sm_80 to
/// sm_100. With `deterministic` the gradient of the scores lies in memory, 2 B H Q S bytes with Q
/// and S in tiles of 128; without, dq is added up there in fp32, 4 B H Q E bytes, on sm_80 twice.
/// Where heads share keys dk and dv of every query head take 4 B H S E bytes more.
/// Tested against cuDNN itself by tests/kernels/cuda/cudnn_plans_test.cpp.
std::int64_t cudnn_workspace_bytes(const AttentionSizes& sizes, bool deterministic);

/// Does this backward pass of attention run on cuDNN's kernels that keep the gradient of the scores
/// in memory (Plan::deterministic), where a GPU runs it?
bool stores_score_gradient(const Program& program, const Block& block, const Operation& operation);

/// MemoryPlan::workspace_bytes: what the plan's choice of attention kernels needs for the largest
/// attention of the program. What would take more than Plan::attention_workspace_bytes is computed
/// in parts: fewer sequences, then fewer heads at once. Where even one group of heads of a sequence
/// needs more, our own kernel runs.
std::int64_t attention_workspace_bytes(const Program& program);

}  // namespace meshplan::program
