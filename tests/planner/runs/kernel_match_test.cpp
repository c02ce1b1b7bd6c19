#include "planner/runs/kernel_match.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <set>

#include "core/error.hpp"
#include "planner/runs/kineto_text.hpp"
#include "program/lower/lower.hpp"
#include "program/plans.hpp"
#include "runs/operation_list.hpp"

namespace meshplan::planner {
namespace {

using Catch::Matchers::Contains;
using program::Span;
using test::KinetoText;
using Json = KinetoText::Json;

program::Plan profiled_plan(const program::ParallelConfig& parallel = {.tp = 2, .pp = 2, .dp = 2}) {
  return program::test::make_plan(program::test::llama_style(), parallel, 4);
}

MeasuredRun matched(const KinetoText& kineto, const program::Plan& plan) {
  return match_kernels(parse_kineto_trace(kineto.text(), "trace.json"), "trace.json", plan, 0);
}

std::string kineto_refusal(const std::string& text) {
  try {
    parse_kineto_trace(text, "trace.json");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no ConfigError";
}

const char* collective_name(program::Collective collective) {
  switch (collective) {
    case program::Collective::AllReduce:
      return "allreduce";
    case program::Collective::ReduceScatter:
      return "_reduce_scatter_base";
    case program::Collective::AllGather:
      return "_allgather_base";
    case program::Collective::AllToAll:
      return "all_to_all";
    default:
      return "broadcast";
  }
}

/// Launches a kernel for every operation of a rank in its order, as PyTorch would name it.
KinetoText step_of(const program::Plan& plan, int rank) {
  KinetoText kineto;
  kineto.rank = rank;
  kineto.world_size = plan.parallel.world_size();
  double time = 10;
  for (const ListedOperation& operation : list_operations(plan, rank)) {
    const std::string outer =
        operation.backward ? "autograd::engine::evaluate_function: MmBackward0" : "Block";
    kineto.scope("cpu_op", outer, time, 9);
    if (operation.kind == KernelKind::Product) {
      kineto.scope("cpu_op", "aten::mm", time + 1, 5,
                   {{static_cast<std::int64_t>(operation.span.flops / 2), 1}, {1, 1}});
      kineto.kernel("sm90_xmma_gemm_bf16bf16", time + 2, time + 5, 4);
    } else if (operation.kind == KernelKind::Collective) {
      kineto.kernel("ncclDevKernel_RING_LL", time + 2, time + 5, 4,
                    {{"Collective name", collective_name(*operation.collective)},
                     {"In msg nelems", operation.message_bytes},
                     {"Out msg nelems", operation.message_bytes},
                     {"Group size", 2},
                     {"dtype", "Byte"}},
                    20);
    } else if (operation.kind == KernelKind::Message) {
      kineto.kernel("ncclDevKernel_SendRecv", time + 2, time + 5, 4,
                    {{"Collective name", *operation.sends ? "send" : "recv"},
                     {"In msg nelems", operation.message_bytes / 4},
                     {"Out msg nelems", operation.message_bytes / 4},
                     {"dtype", "Float"}},
                    21);
    } else {
      const bool attention = operation.kind == KernelKind::Attention;
      kineto.kernel(attention ? "flash_fwd_kernel" : "vectorized_elementwise_kernel", time + 2,
                    time + 5, 4);
    }
    time += 10;
  }
  kineto.scope("user_annotation", "ProfilerStep#7", 10, time);
  return kineto;
}

}  // namespace

TEST_CASE("kernels are told apart by their names", "[planner][kineto]") {
  CHECK(kind_of_kernel("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64") ==
        KernelKind::Product);
  CHECK(kind_of_kernel("nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_TNT") == KernelKind::Product);
  CHECK(kind_of_kernel("void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128>>") ==
        KernelKind::Attention);
  CHECK(kind_of_kernel("fmha_cutlassF_bf16_aligned_64x128_rf_sm80") == KernelKind::Attention);
  CHECK(kind_of_kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage)") ==
        KernelKind::Collective);
  CHECK(kind_of_kernel("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t") == KernelKind::Message);
  CHECK(kind_of_kernel("void transformer_engine::normalization::rmsnorm_fwd_tuned_kernel") ==
        KernelKind::Norm);
  CHECK(kind_of_kernel("void at::native::vectorized_elementwise_kernel<4, float>") ==
        KernelKind::Elementwise);
  CHECK(kind_of_kernel("void multi_tensor_apply_kernel<AdamFunctor>") == KernelKind::Optimizer);
  CHECK(kind_of_kernel("Memcpy DtoH (Device -> Pinned)") == KernelKind::Copy);
  CHECK(kind_of_kernel("distribution_elementwise_grid<{lambda()#1}>") == KernelKind::Elementwise);
  CHECK(kind_of_kernel("mine") == KernelKind::Other);
}

TEST_CASE("a kernel belongs to the ranges that are open at its launch", "[planner][kineto]") {
  KinetoText kineto;
  kineto.rank = 3;
  kineto.world_size = 8;
  kineto.scope("user_annotation", "mlp", 0, 100);
  kineto.scope("cpu_op", "aten::linear", 10, 20, {{2, 8, 4}, {16, 4}, {16}});
  kineto.scope("cpu_op", "aten::addmm", 12, 15);
  kineto.kernel("gemm", 15, 500, 50);
  kineto.scope("cpu_op", "aten::add", 40, 10);
  kineto.kernel("elementwise", 45, 550, 5);
  kineto.kernel("late", 150, 600, 1);
  kineto.kernel("unlaunched", -1, 700, 1);
  const KinetoTrace trace = parse_kineto_trace(kineto.text(), "trace.json");
  CHECK(trace.rank == 3);
  CHECK(trace.world_size == 8);
  REQUIRE(trace.kernels.size() == 4);
  const auto names = [&](std::size_t kernel) {
    std::vector<std::string> list;
    for (const std::size_t scope : trace.kernels[kernel].scopes)
      list.emplace_back(trace.scopes[scope].name);
    return list;
  };
  CHECK(names(0) == std::vector<std::string>{"mlp", "aten::linear", "aten::addmm"});
  CHECK(names(1) == std::vector<std::string>{"mlp", "aten::add"});
  CHECK(names(2).empty());
  CHECK(names(3).empty());
  CHECK(trace.kernels[0].end_s - trace.kernels[0].start_s == Approx(50e-6));
  CHECK(trace.scopes[trace.kernels[0].scopes[1]].input_dims.front() ==
        std::vector<std::int64_t>{2, 8, 4});
}

TEST_CASE("each kernel finds the operation that it was made from", "[planner][kineto]") {
  for (const program::ParallelConfig& parallel :
       {program::ParallelConfig{.tp = 2, .pp = 2, .dp = 2}, program::ParallelConfig{},
        program::ParallelConfig{.tp = 2, .sp = true}, program::ParallelConfig{.dp = 4}}) {
    const program::Plan plan = profiled_plan(parallel);
    for (const int rank : {0, parallel.world_size() - 1}) {
      const std::vector<ListedOperation> operations = list_operations(plan, rank);
      const MeasuredRun run = matched(step_of(plan, rank), plan);
      REQUIRE(run.trace.spans.size() == operations.size());
      std::set<std::uint64_t> ids;
      for (std::size_t i = 0; i < operations.size(); ++i) {
        // Kernels are in the order of the operations; backward products of equal FLOPs may swap.
        const Span& span = run.trace.spans[i];
        const ListedOperation& operation = operations[i];
        if (operation.kind == KernelKind::Product || operation.kind == KernelKind::Collective ||
            operation.kind == KernelKind::Message) {
          CHECK(span.name == operation.span.name);
          CHECK(span.lane == operation.span.lane);
          CHECK(span.group == operation.span.group);
          CHECK(ids.insert(span.id).second);
        }
        CHECK(span.rank == rank);
        CHECK(span.end_s - span.start_s == Approx(4e-6));
      }
      CHECK(run.match.kernels == static_cast<int>(operations.size()));
      const auto sized = std::ranges::count_if(operations, [](const ListedOperation& operation) {
        return operation.kind == KernelKind::Product || operation.kind == KernelKind::Collective ||
               operation.kind == KernelKind::Message;
      });
      CHECK(run.match.by_size == sized);
      CHECK(run.match.by_order > 0);  // attention
      for (const UnmatchedKernel& left : run.match.unmatched)
        CHECK(left.kind == KernelKind::Elementwise);
    }
  }
}

TEST_CASE("a range called as an operation is that operation", "[planner][kineto]") {
  const program::Plan plan = profiled_plan({});
  KinetoText kineto;
  kineto.scope("user_annotation", "qkv", 0, 10);
  kineto.kernel("mine", 5, 20, 2);
  kineto.kernel("mine_too", 6, 22, 2);
  kineto.scope("user_annotation", "qkv", 20, 10);
  kineto.kernel("mine", 25, 30, 2);
  kineto.kernel("other", 40, 50, 3);
  const MeasuredRun run = matched(kineto, plan);
  CHECK(run.match.by_name == 3);
  REQUIRE(run.trace.spans.size() == 4);
  CHECK(run.trace.spans[0].name == "qkv");
  CHECK(run.trace.spans[1].id == run.trace.spans[0].id);
  CHECK(run.trace.spans[2].id != run.trace.spans[0].id);
  REQUIRE(run.match.unmatched.size() == 1);
  CHECK(run.match.unmatched[0].name == "other");
  CHECK(run.match.unmatched[0].seconds == Approx(3e-6));
  CHECK(run.match.matched_s == Approx(6e-6));
}

TEST_CASE("steps are those of the profiler, and what lies outside is left out",
          "[planner][kineto]") {
  KinetoText kineto;
  kineto.kernel("before", 1, 2, 1);
  kineto.scope("user_annotation", "ProfilerStep#3", 10, 100);
  kineto.kernel("a", 20, 50, 10);
  kineto.scope("user_annotation", "ProfilerStep#4", 110, 120);
  kineto.kernel("a", 120, 150, 10);
  const MeasuredRun run = matched(kineto, profiled_plan({}));
  CHECK(run.trace.step_times_s.size() == 2);
  CHECK(run.trace.step_times_s[0] == Approx(100e-6));
  CHECK(run.trace.step_times_s[1] == Approx(120e-6));
  CHECK(run.match.kernels == 2);
  CHECK(run.match.outside == 1);
  CHECK(run.trace.spans[0].start_s == Approx(0).margin(1e-9));
  CHECK(run.trace.spans[1].step == 1);
}

TEST_CASE("wrong profiles are refused with file, event and value", "[planner][kineto]") {
  KinetoText kineto;
  kineto.kernel("a", 1, 2, 1);
  const Json valid = kineto.json();
  const auto changed = [&](auto change) {
    Json json = valid;
    change(json);
    return kineto_refusal(json.dump());
  };
  CHECK(changed([](Json&) {}) == "no ConfigError");
  CHECK_THAT(changed([](Json& j) { j["traceEvents"][2]["dur"] = "long"; }),
             Contains("trace.json: traceEvents[2]: dur: \"long\", expected microseconds"));
  CHECK_THAT(changed([](Json& j) { j["traceEvents"][2].erase("ts"); }),
             Contains("trace.json: traceEvents[2]: 'ts' is missing"));
  CHECK_THAT(changed([](Json& j) { j["traceEvents"][1] = 5; }),
             Contains("traceEvents[1]: 5, expected an object"));
  CHECK_THAT(changed([](Json& j) { j["traceEvents"] = Json::array(); }),
             Contains("none of 0 events is a kernel"));
  CHECK_THAT(kineto_refusal("[]"), Contains("trace.json: expected an object with 'traceEvents'"));
  CHECK_THAT(kineto_refusal(valid.dump().substr(0, 200)), Contains("trace.json:1:"));
  CHECK_THAT(kineto_refusal(""), Contains("trace.json:1:1"));

  KinetoText other;
  other.world_size = 16;
  other.kernel("a", 1, 2, 1);
  CHECK_THROWS_WITH(matched(other, profiled_plan()),
                    Contains("distributedInfo.world_size: 16, expected 8 as in the plan"));
  other.world_size = 8;
  other.rank = 8;
  CHECK_THROWS_WITH(matched(other, profiled_plan()), Contains("distributedInfo.rank: 8"));
}

}  // namespace meshplan::planner
