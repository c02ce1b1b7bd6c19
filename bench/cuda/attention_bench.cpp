// Attention by cuDNN and by our own kernels, causal, bf16, from a fused qkv buffer: compared with
// our own in fp32, repeating its bits or not, then timed. With --check they are compared only. A
// library that refuses a shape that it is asked for has failed.
//   cuda_attention_bench [--check [TOKENS]]    TOKENS: of a sequence at most, for a GPU that is
//   emulated
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string_view>

#include "kernels/cuda_error.hpp"
#include "support.hpp"

namespace meshplan::bench {

namespace {

using kernels::AttentionBackward;
using kernels::AttentionForward;
using kernels::AttentionLibrary;
using kernels::AttentionShape;
using kernels::CudaBackend;

/// Up to which head size cuDNN is asked at all (docs/cuda.md, "Attention").
constexpr int kLargestCudnnHead = 128;

bool asks_cudnn(const AttentionShape& shape) {
  return shape.head_size <= kLargestCudnnHead;
}

constexpr std::int64_t kLongest = 8192;
constexpr std::array kShapes = {AttentionShape{.num_sequences = 8,
                                               .query_len = 1024,
                                               .key_len = 1024,
                                               .heads = 12,
                                               .kv_heads = 12,
                                               .head_size = 64,
                                               .scale = 0.125F},
                                AttentionShape{.num_sequences = 4,
                                               .query_len = 2048,
                                               .key_len = 2048,
                                               .heads = 32,
                                               .kv_heads = 32,
                                               .head_size = 128,
                                               .scale = 0.0884F},
                                AttentionShape{.num_sequences = 1,
                                               .query_len = kLongest,
                                               .key_len = kLongest,
                                               .heads = 32,
                                               .kv_heads = 8,
                                               .head_size = 128,
                                               .scale = 0.0884F},
                                AttentionShape{.num_sequences = 1,
                                               .query_len = kLongest,
                                               .key_len = kLongest,
                                               .heads = 16,
                                               .kv_heads = 16,
                                               .head_size = 256,
                                               .scale = 0.0625F}};

class AttentionBench {
 public:
  AttentionBench(CudaBackend& backend, const AttentionShape& shape, DType dtype = DType::BF16)
      : shape_(shape),
        dtype_(dtype),
        rows_(shape.num_sequences * shape.query_len),
        width_((shape.heads + 2 * std::int64_t{shape.kv_heads}) * shape.head_size),
        q_width_(std::int64_t{shape.heads} * shape.head_size),
        qkv_(backend, rows_ * width_, dtype),
        output_grad_(backend, rows_ * q_width_, dtype),
        o_(backend, rows_ * q_width_ * size_of(dtype)),
        lse_(backend, rows_ * shape.heads * 4),
        dqkv_(backend, rows_ * width_ * size_of(dtype)) {}

  struct Seconds {
    double forward = 0, backward = 0, any_order_backward = 0;
  };
  /// @throws ConfigError where the backend's library has no kernel for the shape
  Seconds run(CudaBackend& backend) const {
    return {.forward = seconds_of(backend, forward()),
            .backward = seconds_of(backend, backward(true)),
            .any_order_backward = seconds_of(backend, backward(false))};
  }

  struct Results {
    std::vector<float> o, dqkv;
  };
  /// @throws ConfigError where the backend's library has no kernel for the shape
  Results results(CudaBackend& backend, bool deterministic) const {
    run_once(backend, forward());
    run_once(backend, backward(deterministic));
    return {values_of(backend, o_, rows_ * q_width_), values_of(backend, dqkv_, rows_ * width_)};
  }

  /// The tested round probabilities and results to bf16, by 2^-9 at most each; in the norm over a
  /// whole tensor five such roundings are more than they can be off by.
  bool agree(const char* library, CudaBackend& backend, bool deterministic,
             const Results& expected) const {
    constexpr double kBound = 1e-2;
    std::printf("%d/%d heads of %d, %s, %s: ", shape_.heads, shape_.kv_heads, shape_.head_size,
                library, deterministic ? "deterministic" : "in any order");
    try {
      const Results actual = results(backend, deterministic);
      const std::array differences = {
          difference(actual.o, expected.o, q_width_, 0, q_width_),
          difference(actual.dqkv, expected.dqkv, width_, 0, q_width_),
          difference(actual.dqkv, expected.dqkv, width_, q_width_, v_column()),
          difference(actual.dqkv, expected.dqkv, width_, v_column(), width_)};
      std::printf("off by o %.1e, dq %.1e, dk %.1e, dv %.1e of %.0e\n", differences[0],
                  differences[1], differences[2], differences[3], kBound);
      return std::ranges::all_of(differences, [](double one) { return one <= kBound; });
    } catch (const ConfigError& error) {
      std::printf("REFUSED: %s\n", error.what());
      return false;
    }
  }

  void print(const char* what, double ours, std::optional<double> cudnn, double products) const {
    // half of the products lie above the diagonal
    const double flops = products * static_cast<double>(rows_) *
                         static_cast<double>(shape_.key_len) * static_cast<double>(q_width_);
    std::printf("%lld x %lld, %d/%d heads of %d  %-8s",
                static_cast<long long>(shape_.num_sequences),
                static_cast<long long>(shape_.query_len), shape_.heads, shape_.kv_heads,
                shape_.head_size, what);
    std::printf("  own %8.3f ms %6.1f TFLOP/s", ours * 1e3, flops / ours / 1e12);
    if (cudnn)
      std::printf("  cuDNN %8.3f ms %6.1f TFLOP/s  own takes %.2f x", *cudnn * 1e3,
                  flops / *cudnn / 1e12, ours / *cudnn);
    std::printf("\n");
  }

 private:
  std::vector<float> values_of(CudaBackend& backend, const Memory& memory,
                               std::int64_t count) const {
    std::vector<float> values(static_cast<std::size_t>(count));
    std::vector<std::uint16_t> bits(dtype_ == DType::F32 ? 0 : values.size());
    backend.copy_to_host(bits.empty() ? static_cast<void*>(values.data()) : bits.data(),
                         memory.data(), count * size_of(dtype_));
    backend.synchronize();
    std::ranges::transform(bits, values.begin(), widened);
    return values;
  }
  /// Norm of the difference over the norm, of columns [begin, end) of rows of `width`.
  static double difference(const std::vector<float>& actual, const std::vector<float>& expected,
                           std::int64_t width, std::int64_t begin, std::int64_t end) {
    double error = 0, norm = 0;
    for (std::size_t i = 0; i < actual.size(); ++i) {
      const std::int64_t column = static_cast<std::int64_t>(i) % width;
      if (column < begin || column >= end) continue;
      error += std::pow(double{actual[i]} - double{expected[i]}, 2);
      norm += std::pow(double{expected[i]}, 2);
    }
    return std::sqrt(error / norm);  // NaN, where a result is, agrees with nothing
  }

  const char* column(const RandomOperand& of, std::int64_t elements) const {
    return static_cast<const char*>(of.data()) + elements * size_of(dtype_);
  }
  char* column(const Memory& of, std::int64_t elements) const {
    return static_cast<char*>(of.data()) + elements * size_of(dtype_);
  }
  std::int64_t v_column() const {
    return q_width_ + std::int64_t{shape_.kv_heads} * shape_.head_size;
  }
  AttentionForward forward() const {
    return {.shape = shape_,
            .dtype = dtype_,
            .q = qkv_.data(),
            .q_stride = width_,
            .k = column(qkv_, q_width_),
            .v = column(qkv_, v_column()),
            .kv_stride = width_,
            .o = o_.data(),
            .o_stride = q_width_,
            .lse = static_cast<float*>(lse_.data())};
  }
  AttentionBackward backward(bool deterministic) const {
    return {.shape = shape_,
            .dtype = dtype_,
            .q = qkv_.data(),
            .q_stride = width_,
            .k = column(qkv_, q_width_),
            .v = column(qkv_, v_column()),
            .kv_stride = width_,
            .o = o_.data(),
            .o_stride = q_width_,
            .output_grad = output_grad_.data(),
            .lse = static_cast<const float*>(lse_.data()),
            .dq = dqkv_.data(),
            .dq_stride = width_,
            .dk = column(dqkv_, q_width_),
            .dv = column(dqkv_, v_column()),
            .dkv_stride = width_,
            .choice = {.deterministic = deterministic}};
  }

  AttentionShape shape_;
  DType dtype_;
  std::int64_t rows_, width_, q_width_;
  RandomOperand qkv_, output_grad_;
  Memory o_, lse_, dqkv_;
};

/// Both libraries, with results that repeat and without, beside our own in fp32, which the tests of
/// kernels compare with an explicit softmax.
bool all_agree(CudaBackend& own, CudaBackend& cudnn, const AttentionShape& shape) {
  const AttentionBench::Results expected =
      AttentionBench(own, shape, DType::F32).results(own, /*deterministic=*/true);
  const AttentionBench attention(own, shape);
  bool agree = true;
  for (const bool deterministic : {true, false}) {
    agree = attention.agree("own", own, deterministic, expected) && agree;
    if (asks_cudnn(shape))
      agree = attention.agree("cuDNN", cudnn, deterministic, expected) && agree;
  }
  return agree;
}

void time_both(CudaBackend& own, CudaBackend& cudnn, const AttentionShape& shape) {
  const AttentionBench attention(own, shape);
  const auto ours = attention.run(own);
  std::optional<AttentionBench::Seconds> theirs;
  if (asks_cudnn(shape)) theirs = attention.run(cudnn);
  const auto of_cudnn = [&](double AttentionBench::Seconds::*which) {
    return theirs ? std::optional((*theirs).*which) : std::nullopt;
  };
  using Seconds = AttentionBench::Seconds;
  attention.print("forward", ours.forward, of_cudnn(&Seconds::forward), 2.0);
  attention.print("backward", ours.backward, of_cudnn(&Seconds::backward), 5.0);
  attention.print("backward, any order", ours.any_order_backward,
                  of_cudnn(&Seconds::any_order_backward), 5.0);
}

}  // namespace

}  // namespace meshplan::bench

int main(int argc, char** argv) {
  using namespace meshplan;
  const bool only_check = argc > 1 && std::string_view(argv[1]) == "--check";
  const std::int64_t most_tokens = argc > 2 ? std::atoll(argv[2]) : bench::kLongest;
  if (!bench::has_gpu()) return bench::kSkipped;
  const auto own = kernels::make_cuda_backend(0, {.attention = kernels::AttentionLibrary::Own});
  const auto cudnn = kernels::make_cuda_backend(
      0, {.stream = own->stream(), .attention = kernels::AttentionLibrary::Cudnn});
  std::printf("%s, bf16, causal; FLOP/s count what the mask leaves\n", own->name().c_str());
  bool all_agree = true;
  for (kernels::AttentionShape shape : bench::kShapes) {
    shape.query_len = shape.key_len = std::min(shape.query_len, most_tokens);
    const bool agree = bench::all_agree(*own, *cudnn, shape);
    all_agree = agree && all_agree;
    if (agree && !only_check) bench::time_both(*own, *cudnn, shape);
  }
  std::printf("%s\n", all_agree ? "all agree" : "NOT all agree");
  return all_agree ? 0 : 1;
}
