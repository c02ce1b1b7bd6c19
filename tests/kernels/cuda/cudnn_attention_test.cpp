// Which of cuDNN's kernels an attention takes, with stand-ins for what needs a GPU: planning and
// running a graph, and reading back what it wrote. Graphs are cuDNN's own.
#include "attention/cudnn_attention.hpp"

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cstring>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "device/digest.hpp"
#include "library/cudnn_plan.hpp"

namespace meshplan::kernels::cuda {

namespace {

constexpr int kWritten = 64;  // bytes of each result

struct FakeCudnn {
  std::vector<bool> engines = {true};  // does it repeat its bits?
  std::int64_t workspace_bytes = 256;
  std::deque<std::int64_t> workspaces;  // of the next plans, before that
  bool writes_zeros = false;
  bool capturing = false;
  int planned = 0;               // engines
  std::vector<std::size_t> ran;  // engines
  std::vector<std::size_t> operands;
  std::map<std::int64_t, void*> at;  // operands of the last run
  struct Copied {
    const void* from = nullptr;
    std::size_t pitch = 0, width = 0, height = 0;
  } copied;
};
FakeCudnn& fake() {
  static FakeCudnn cudnn;
  return cudnn;
}

/// dq, dk and dv of the operation that the tests run.
std::array<std::array<std::uint16_t, kWritten / 2>, 3>& results() {
  static std::array<std::array<std::uint16_t, kWritten / 2>, 3> memory{};
  return memory;
}

}  // namespace

CudnnPlan plan_graph(const CudnnTarget& /*target*/, const CudnnGraph& /*graph*/,
                     std::size_t first_engine, std::string& refusal) {
  if (first_engine >= fake().engines.size()) {
    refusal = "cuDNN has no engine for it";
    return {};
  }
  ++fake().planned;
  std::int64_t workspace_bytes = fake().workspace_bytes;
  if (!fake().workspaces.empty()) {
    workspace_bytes = fake().workspaces.front();
    fake().workspaces.pop_front();
  }
  return {.plan = make(CUDNN_BACKEND_TENSOR_DESCRIPTOR),
          .workspace_bytes = workspace_bytes,
          .engine = first_engine};
}

void execute(cudnnHandle_t /*handle*/, const CudnnPlan& plan,
             const std::vector<std::pair<std::int64_t, void*>>& operands, void* /*workspace*/) {
  const int run = static_cast<int>(fake().ran.size());
  fake().ran.push_back(plan.engine);
  fake().operands.push_back(operands.size());
  fake().at = {operands.begin(), operands.end()};
  if (fake().writes_zeros) return;
  for (auto& result : results()) result.fill(7);
  if (!fake().engines[plan.engine] && run % 3 == 2) results()[0][5] = 8;  // of dq, now and then
}

std::uint64_t digest_of(const Context& /*context*/, std::span<const Bits> parts) {
  CHECK(parts.size() == 3);
  std::uint64_t sum = 0;
  for (const auto& result : results())
    for (std::size_t i = 0; i < result.size(); ++i) sum += (i + 1) * result[i];
  return sum;
}
bool is_capturing(const Context& /*context*/) {
  return fake().capturing;
}

}  // namespace meshplan::kernels::cuda

cudaError_t cudaMemcpy2DAsync(void* /*to*/, std::size_t /*to_pitch*/, const void* from,
                              std::size_t from_pitch, std::size_t width, std::size_t height,
                              cudaMemcpyKind /*kind*/, cudaStream_t /*stream*/) {
  meshplan::kernels::cuda::fake().copied = {from, from_pitch, width, height};
  return cudaSuccess;
}

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  static int object = 0;
  *handle = reinterpret_cast<cudnnHandle_t>(&object);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t /*handle*/) {
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t /*handle*/, cudaStream_t /*stream*/) {
  return CUDNN_STATUS_SUCCESS;
}

namespace meshplan::kernels::cuda::test {

using Catch::Matchers::Contains;

namespace {

struct Attention {
  Attention() {
    fake() = {};
    results() = {};
  }
  bool run() { return cudnn.run(context, op); }

  alignas(256) std::array<std::byte, 1 << 16> scratch{};
  alignas(16) std::array<std::byte, 4096> memory{};
  Context context{.scratch = scratch};
  AttentionBackward op{.shape = {.num_sequences = 1,
                                 .query_len = 4,
                                 .key_len = 4,
                                 .heads = 1,
                                 .kv_heads = 1,
                                 .head_size = 8},
                       .dtype = DType::BF16,
                       .q = memory.data(),
                       .q_stride = 24,
                       .k = memory.data(),
                       .v = memory.data(),
                       .kv_stride = 24,
                       .o = memory.data(),
                       .o_stride = 8,
                       .output_grad = memory.data(),
                       .lse = reinterpret_cast<const float*>(memory.data() + 1024),
                       .dq = memory.data(),
                       .dq_stride = 24,
                       .dk = memory.data(),
                       .dv = memory.data(),
                       .dkv_stride = 24};
  std::string said;
  CudnnAttention cudnn{[this](const std::string& line) { said += line + "\n"; }};
};

}  // namespace

TEST_CASE("A gradient that repeats its bits is kept, and tried once", "[kernels][cuda]") {
  Attention attention;
  CHECK(attention.cudnn.refusal(attention.context, attention.op).empty());
  CHECK(attention.run());
  CHECK(fake().ran == std::vector<std::size_t>(8, 0));
  CHECK(attention.run());
  CHECK(fake().ran.size() == 9);
  CHECK(attention.said.empty());
}

TEST_CASE("An engine whose gradient does not repeat gives its place to one whose does",
          "[kernels][cuda]") {
  Attention attention;
  fake().engines = {false, true};
  CHECK(attention.run());
  CHECK(fake().ran.back() == 1);
  CHECK_THAT(attention.said, Contains("engine 0 gave other gradients in run 3") &&
                                 Contains("the next takes its place"));
  attention.said.clear();
  fake().ran.clear();
  CHECK(attention.run());
  CHECK(fake().ran == std::vector<std::size_t>{1});  // remembered
  CHECK(attention.said.empty());
}

TEST_CASE("Where no engine repeats its gradient, cuDNN is refused for good", "[kernels][cuda]") {
  Attention attention;
  fake().engines = {false, false};
  CHECK_FALSE(attention.run());
  CHECK_THAT(attention.said, Contains("there is no other"));
  CHECK(attention.cudnn.refusal(attention.context, attention.op) ==
        "its gradients differ from run to run");
  AttentionBackward other = attention.op;  // of another shape: not yet tried
  other.shape.causal = false;
  CHECK(attention.cudnn.refusal(attention.context, other).empty());
}

TEST_CASE("Whoever takes any order gets the sum in fp32, untried", "[kernels][cuda]") {
  Attention attention;
  fake().engines = {false};
  const std::int64_t ordered = attention.cudnn.scratch_bytes(attention.context, attention.op);
  CHECK(attention.run() == false);
  const std::size_t operands = fake().operands.back();
  attention.op.choice.deterministic = false;
  fake().ran.clear();
  CHECK(attention.run());
  CHECK(attention.run());
  CHECK(fake().ran.size() == 2);
  CHECK(fake().operands.back() == operands + 1);  // the sum
  attention.op.shape.query_len = attention.op.shape.key_len = 1024;
  const std::int64_t any = attention.cudnn.scratch_bytes(attention.context, attention.op);
  CHECK(any >= ordered + 4 * 1024 * 8);
}

TEST_CASE("A gradient of zeros says nothing: the next run is looked at", "[kernels][cuda]") {
  Attention attention;
  fake().engines = {false};
  fake().writes_zeros = true;
  CHECK(attention.run());
  CHECK(fake().ran.size() == 1);
  fake().writes_zeros = false;
  CHECK_FALSE(attention.run());
}

TEST_CASE("Nothing is repeated while a step is recorded", "[kernels][cuda]") {
  Attention attention;
  fake().capturing = true;
  CHECK(attention.run());
  CHECK(fake().ran.size() == 1);
}

TEST_CASE("A kernel that wants more workspace than was planned is refused", "[kernels][cuda]") {
  Attention attention;
  const std::int64_t needed = attention.cudnn.scratch_bytes(attention.context, attention.op);
  attention.op.choice.scratch_bytes = needed;
  CHECK(attention.cudnn.refusal(attention.context, attention.op).empty());
  attention.op.choice.scratch_bytes = needed - 1;
  CHECK_THAT(attention.cudnn.refusal(attention.context, attention.op),
             Contains("cuDNN wants " + std::to_string(needed) +
                      " bytes of workspace, the plan has " + std::to_string(needed - 1)));
}

TEST_CASE("Statistics are read where they lie, unless they are some queries of a sequence",
          "[kernels][cuda]") {
  Attention attention;
  const auto reads = [&](const void* place) {
    return std::ranges::any_of(fake().at, [&](const auto& one) { return one.second == place; });
  };
  attention.op.shape.num_sequences = 2;
  attention.op.shape.heads = attention.op.shape.kv_heads = 3;
  CHECK(attention.run());
  CHECK(reads(attention.op.lse));
  CHECK(fake().copied.height == 0);
  attention.op.lse_stride = 16;
  CHECK(attention.run());
  CHECK_FALSE(reads(attention.op.lse));
  CHECK(fake().copied.from == attention.op.lse);
  CHECK(fake().copied.pitch == 64);
  CHECK(fake().copied.width == 16);
  CHECK(fake().copied.height == 6);
}

TEST_CASE("A gradient that wants more than was planned is computed in parts", "[kernels][cuda]") {
  Attention attention;
  AttentionBackward& op = attention.op;
  op.shape.num_sequences = 3;
  op.shape.heads = 8;
  op.shape.kv_heads = 4;
  op.q_stride = op.kv_stride = op.dq_stride = op.dkv_stride = 128;  // 8 + 2 * 4 heads of 8
  op.o_stride = 64;
  op.choice.deterministic = false;  // each part runs once
  // 1,000 bytes for a head: of three sequences, two, one; of half of its heads, a quarter.
  fake().workspaces = {24000, 16000, 8000, 4000, 2000};
  const std::int64_t whole = attention.cudnn.scratch_bytes(attention.context, op);
  op.choice.scratch_bytes = whole - 1;
  CHECK(attention.cudnn.refusal(attention.context, op).empty());
  CHECK(attention.cudnn.scratch_bytes(attention.context, op) < whole);
  CHECK(attention.run());
  CHECK(fake().ran.size() == 2);  // two sequences, then one
  const auto place = [&](const void* base, std::int64_t bytes) {
    return static_cast<const void*>(static_cast<const std::byte*>(base) + bytes);
  };
  const auto reads = [&](const void* at) {
    return std::ranges::any_of(fake().at, [&](const auto& one) { return one.second == at; });
  };
  CHECK(reads(place(op.q, 2 * 4 * 128 * 2)));  // of the third sequence: 4 queries each, bf16
  CHECK(reads(place(op.o, 2 * 4 * 64 * 2)));
  CHECK(reads(place(op.lse, 2 * 8 * 4 * 4)));
  fake().ran.clear();
  op.choice.scratch_bytes = 2 * 1000 + 3000;  // two heads of one sequence, which share keys
  CHECK(attention.run());
  CHECK(fake().ran.size() == 3 * 4);
  CHECK(reads(place(op.q, (2 * 4 * 128 + 6 * 8) * 2)));
  CHECK(reads(place(op.dk, (2 * 4 * 128 + 3 * 8) * 2)));
  CHECK(reads(place(op.lse, (2 * 8 + 6) * 4 * 4)));
  op.choice.scratch_bytes = 2 * 1000;
  CHECK_FALSE(attention.cudnn.refusal(attention.context, op).empty());
}

}  // namespace meshplan::kernels::cuda::test
