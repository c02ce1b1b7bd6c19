// cuDNN plans the attention graphs for GPUs that are described to it (tests/kernels/cuda/devices),
// with none there: which shapes have an engine, and how much workspace it asks for.
#include <cudnn.h>

#include <array>
#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "attention/cudnn_attention_graph.hpp"
#include "library/cudnn_plan.hpp"
#include "memory/attention_workspace.hpp"
#include "support/cases.hpp"
#include "support/project_folder.hpp"

namespace meshplan::kernels::cuda::test {

namespace {

constexpr std::array<const char*, 3> kDevices = {"a100", "h100", "b200"};

CudnnDescriptor device_of(const std::string& name) {
  std::ifstream file(meshplan::test::project_folder() / "tests/kernels/cuda/devices" /
                     (name + ".json"));
  REQUIRE(file.good());
  return described_device({std::istreambuf_iterator<char>(file), {}});
}

/// Operands as the model's layers have them: q, k and v beside each other in one projection.
AttentionForward forward(const AttentionShape& shape, DType dtype) {
  const std::int64_t row = std::int64_t{shape.heads + 2 * shape.kv_heads} * shape.head_size;
  return {.shape = shape,
          .dtype = dtype,
          .q_stride = row,
          .kv_stride = row,
          .o_stride = std::int64_t{shape.heads} * shape.head_size};
}
AttentionBackward backward(const AttentionShape& shape, DType dtype) {
  const AttentionForward f = forward(shape, dtype);
  return {.shape = shape,
          .dtype = dtype,
          .q_stride = f.q_stride,
          .kv_stride = f.kv_stride,
          .o_stride = f.o_stride,
          .dq_stride = f.q_stride,
          .dkv_stride = f.kv_stride};
}

std::int64_t workspace_bytes(const CudnnDescriptor& device, const AttentionGraph& graph) {
  std::string refusal;
  const CudnnPlan plan = plan_graph({.device = device.get()}, graph.graph, 0, refusal);
  INFO(refusal);
  REQUIRE(plan.plan.get() != nullptr);
  return plan.workspace_bytes;
}
std::int64_t workspace_bytes(const CudnnDescriptor& device, const AttentionForward& op) {
  REQUIRE(graph_refusal(op).empty());
  return workspace_bytes(device, *attention_graph(op));
}
std::int64_t workspace_bytes(const CudnnDescriptor& device, const AttentionBackward& op,
                             QueryGradientSum sum) {
  REQUIRE(graph_refusal(op).empty());
  return workspace_bytes(device, *attention_graph(op, sum));
}

/// What cuDNN 9.19 asked for, in the order of kDevices. Backward: the scores' gradient, 2 B H Q K
/// bytes with Q and K in whole tiles, or, where dq is added up in our fp32 sum, another such sum on
/// an A100; and dk and dv of every query head where heads share them.
struct Recorded {
  const char* what;
  AttentionShape shape;
  DType dtype;
  std::array<std::int64_t, 3> forward;
  std::array<std::int64_t, 3> backward;
  std::array<std::int64_t, 3> any_order;
};
const std::vector<Recorded> kRecorded = {
    {"bf16, one kv head per head",
     {.num_sequences = 1,
      .query_len = 2048,
      .key_len = 2048,
      .heads = 32,
      .kv_heads = 32,
      .head_size = 128},
     DType::BF16,
     {0, 256, 0},
     {268'435'584, 268'435'712, 268'435'584},
     {33'554'560, 256, 0}},
    {"bf16, grouped",
     {.num_sequences = 1,
      .query_len = 8192,
      .key_len = 8192,
      .heads = 32,
      .kv_heads = 8,
      .head_size = 128},
     DType::BF16,
     {0, 256, 0},
     {4'429'185'152, 4'429'185'280, 4'429'185'152},
     {268'435'584, 134'217'984, 134'217'856}},
    {"bf16, heads of 64",
     {.num_sequences = 2,
      .query_len = 2048,
      .key_len = 2048,
      .heads = 32,
      .kv_heads = 8,
      .head_size = 64},
     DType::BF16,
     {0, 256, 0},
     {570'425'472, 570'425'600, 570'425'472},
     {67'108'992, 33'554'688, 33'554'560}},
    {"fp16, heads of 64",
     {.num_sequences = 2,
      .query_len = 2048,
      .key_len = 2048,
      .heads = 32,
      .kv_heads = 8,
      .head_size = 64},
     DType::F16,
     {0, 256, 0},
     {570'425'472, 570'425'600, 570'425'472},
     {67'108'992, 33'554'688, 33'554'560}},
    {"bf16, without a mask",
     {.num_sequences = 2,
      .query_len = 2048,
      .key_len = 2048,
      .heads = 32,
      .kv_heads = 8,
      .head_size = 128,
      .causal = false},
     DType::BF16,
     {0, 256, 0},
     {603'979'904, 603'980'032, 603'979'904},
     {134'217'856, 67'109'120, 67'108'992}},
    {"bf16, the second half of the queries",
     {.num_sequences = 2,
      .query_len = 1024,
      .key_len = 2048,
      .heads = 32,
      .kv_heads = 8,
      .head_size = 128,
      .query_offset = 1024},
     DType::BF16,
     {0, 256, 0},
     {335'544'448, 335'544'576, 335'544'448},
     {100'663'424, 67'109'120, 67'108'992}},
    {"bf16, queries amid the keys",
     {.num_sequences = 2,
      .query_len = 1024,
      .key_len = 2048,
      .heads = 32,
      .kv_heads = 8,
      .head_size = 128,
      .query_offset = 512},
     DType::BF16,
     {0, 256, 0},
     {335'544'448, 335'544'576, 335'544'448},
     {100'663'424, 67'109'120, 67'108'992}},
    {"bf16, window",
     {.num_sequences = 2,
      .query_len = 2048,
      .key_len = 2048,
      .heads = 32,
      .kv_heads = 8,
      .head_size = 128,
      .window = 512},
     DType::BF16,
     {0, 256, 0},
     {603'979'904, 603'980'032, 603'979'904},
     {134'217'856, 67'109'120, 67'108'992}},
    {"fp16, window and offset",
     {.num_sequences = 2,
      .query_len = 1024,
      .key_len = 2048,
      .heads = 32,
      .kv_heads = 8,
      .head_size = 128,
      .query_offset = 1024,
      .window = 512},
     DType::F16,
     {0, 256, 0},
     {335'544'448, 335'544'576, 335'544'448},
     {100'663'424, 67'109'120, 67'108'992}},
    {"bf16, odd lengths",
     {.num_sequences = 2,
      .query_len = 1025,
      .key_len = 1025,
      .heads = 32,
      .kv_heads = 8,
      .head_size = 128},
     DType::BF16,
     {0, 256, 0},
     {185'106'560, 194'019'584, 185'106'560},
     {67'403'904, 33'587'456, 33'587'328}},
    {"bf16, heads of 80, odd lengths and offset",
     {.num_sequences = 3,
      .query_len = 77,
      .key_len = 131,
      .heads = 6,
      .kv_heads = 2,
      .head_size = 80,
      .query_offset = 54},
     DType::BF16,
     {0, 256, 0},
     {1'639'552, 1'934'592, 1'639'552},
     {1'215'616, 754'944, 1'215'616}},
    {"fp16, heads of 40, odd lengths, offset, window",
     {.num_sequences = 3,
      .query_len = 77,
      .key_len = 131,
      .heads = 6,
      .kv_heads = 2,
      .head_size = 40,
      .query_offset = 54,
      .window = 20},
     DType::F16,
     {0, 256, 0},
     {1'262'208, 1'557'248, 1'262'208},
     {607'872, 377'600, 607'872}},
};

/// A plan takes cuDNN half a second. Without MESHPLAN_CASES=all each shape is planned on one
/// device.
bool is_wanted(std::size_t number) {
  return testing::all_cases() || number % kDevices.size() == 0;
}

/// Does a memory plan have room for what cuDNN asked for, and for our tensors beside it?
void check_room(const AttentionShape& shape, std::int64_t from_scores, std::int64_t in_float32) {
  const std::int64_t rows = 4 * shape.num_sequences * shape.heads * shape.query_len;
  const program::AttentionSizes sizes{.sequences = shape.num_sequences,
                                      .queries = shape.query_len,
                                      .keys = shape.key_len,
                                      .heads = shape.heads,
                                      .kv_heads = shape.kv_heads,
                                      .head_size = shape.head_size};
  constexpr std::int64_t kAlignments = 4 * 256;
  CHECK(from_scores + 2 * rows + kAlignments <= program::cudnn_workspace_bytes(sizes, true));
  CHECK(in_float32 + (shape.head_size + 2) * rows + kAlignments <=
        program::cudnn_workspace_bytes(sizes, false));
}

}  // namespace

TEST_CASE("cuDNN has an engine for every attention graph on A100, H100 and B200",
          "[kernels][cuda]") {
  INFO("cuDNN " << cudnnGetVersion());
  for (std::size_t i = 0; i < kDevices.size(); ++i) {
    const CudnnDescriptor device = device_of(kDevices[i]);
    for (std::size_t r = 0; r < kRecorded.size(); ++r) {
      if (!is_wanted(i + r)) continue;
      const Recorded& row = kRecorded[r];
      INFO(kDevices[i] << ": " << row.what);
      const AttentionBackward gradient = backward(row.shape, row.dtype);
      CHECK(workspace_bytes(device, forward(row.shape, row.dtype)) == row.forward[i]);
      CHECK(workspace_bytes(device, gradient, QueryGradientSum::FromScores) == row.backward[i]);
      CHECK(workspace_bytes(device, gradient, QueryGradientSum::InFloat32) == row.any_order[i]);
      check_room(row.shape, row.backward[i], row.any_order[i]);
    }
  }
}

TEST_CASE("a plan has room for what cuDNN asks for, whatever the shape", "[kernels][cuda]") {
  std::size_t number = 0;
  for (const char* name : kDevices) {
    const CudnnDescriptor device = device_of(name);
    ++number;  // begins elsewhere on each
    for (const int head_size : {8, 96, 128})
      for (const int kv_heads : {1, 6})
        for (const std::int64_t length : {65, 777}) {
          if (!is_wanted(number++)) continue;
          INFO(name << ": " << length << " x " << head_size << " on " << kv_heads);
          const AttentionShape shape{.num_sequences = 2,
                                     .query_len = length,
                                     .key_len = 2 * length,
                                     .heads = 6,
                                     .kv_heads = kv_heads,
                                     .head_size = head_size,
                                     .query_offset = length};
          const AttentionBackward op = backward(shape, DType::BF16);
          check_room(shape, workspace_bytes(device, op, QueryGradientSum::FromScores),
                     workspace_bytes(device, op, QueryGradientSum::InFloat32));
        }
  }
}

TEST_CASE("a device that is not described as cuDNN wants it is refused", "[kernels][cuda]") {
  CHECK_THROWS_AS(described_device("{}"), CudaError);
}

}  // namespace meshplan::kernels::cuda::test
