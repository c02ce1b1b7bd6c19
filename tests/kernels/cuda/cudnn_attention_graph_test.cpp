// cuDNN checks tensors and operations as they are described, which needs no GPU; only planning
// does.
#include "attention/cudnn_attention_graph.hpp"

#include <catch2/catch.hpp>

namespace meshplan::kernels::cuda::test {

namespace {

AttentionForward forward() {
  return {.shape = {.num_sequences = 2,
                    .query_len = 64,
                    .key_len = 128,
                    .heads = 4,
                    .kv_heads = 2,
                    .head_size = 64,
                    .query_offset = 64},
          .dtype = DType::BF16,
          .q_stride = 512,
          .kv_stride = 512,
          .o_stride = 256};
}
AttentionBackward backward() {
  const AttentionForward f = forward();
  return {.shape = f.shape,
          .dtype = f.dtype,
          .q_stride = f.q_stride,
          .kv_stride = f.kv_stride,
          .o_stride = f.o_stride,
          .dq_stride = 512,
          .dkv_stride = 512};
}

}  // namespace

TEST_CASE("cuDNN accepts every node of the attention graphs", "[kernels][cuda]") {
  for (const std::int64_t window : {0, 16}) {
    for (const int kv_heads : {4, 2}) {
      AttentionForward f = forward();
      f.shape.window = window;
      f.shape.kv_heads = kv_heads;
      AttentionBackward b = backward();
      b.shape = f.shape;
      REQUIRE(graph_refusal(f).empty());
      REQUIRE(graph_refusal(b).empty());
      // causal with an offset is 5 nodes, a window 5 more; grouped heads 2 in the backward
      const std::size_t masks = window > 0 ? 10 : 5;
      CHECK(attention_graph(f)->graph.operations().size() == 10 + masks);
      const std::size_t gradients = 17 + masks + (kv_heads == 2 ? 2 : 0);
      CHECK(attention_graph(b, QueryGradientSum::FromScores)->graph.operations().size() ==
            gradients);
      CHECK(attention_graph(b, QueryGradientSum::InFloat32)->graph.operations().size() ==
            gradients + 1);  // the sum is rounded
    }
  }
}

TEST_CASE("a cuDNN that is too old is named beside the one that is needed", "[kernels][cuda]") {
  CHECK(version_refusal(91002) == "cuDNN 9.10.2 was loaded, 9.19.0 or later is needed");
  CHECK(version_refusal(91900).empty());
  CHECK(version_refusal(100000).empty());
}

TEST_CASE("what cuDNN cannot do as we define it goes to our own kernels", "[kernels][cuda]") {
  const auto refused = [](const auto& change) {
    AttentionForward op = forward();
    change(op);
    return graph_refusal(op);
  };
  CHECK(refused([](auto& op) { op.dtype = DType::F32; }) == "cuDNN attends in bf16 and fp16 only");
  CHECK(refused([](auto& op) { op.shape.head_size = 20; }) ==
        "its head size is not 8, 16, ... 128");
  CHECK(refused([](auto& op) { op.shape.head_size = 256; }) ==
        "its head size is not 8, 16, ... 128");
  CHECK(refused([](auto& op) { op.shape.value_head_size = 32; }) ==
        "its value heads have a size of their own");
  CHECK(refused([](auto& op) { op.q_stride = 515; }) == "its rows are not aligned to 16 bytes");
  CHECK(refused([](auto& op) { op.shape.query_offset = -1; }) ==
        "its queries do not lie within its keys");
  CHECK(refused([](auto& op) { op.shape.query_offset = 65; }) ==
        "its queries do not lie within its keys");
  const std::int32_t lengths[2] = {3, 0};
  CHECK(refused([&](auto& op) { op.key_lengths = lengths; }) ==
        "sequences without keys are NaN in cuDNN and zero here");
  CHECK(refused([&](auto& op) { op.key_ranges = lengths; }) ==
        "documents are packed into its sequences");
  CHECK(refused([&](auto& op) { op.sinks = lengths; }) == "a sink joins each of its softmaxes");
}

}  // namespace meshplan::kernels::cuda::test
