// Attention by cuDNN and by our own kernels, causal, bf16, from a fused qkv buffer: compared, then
// timed. With --check they are compared only.
#include <bit>
#include <cmath>
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
                                               .query_len = 8192,
                                               .key_len = 8192,
                                               .heads = 32,
                                               .kv_heads = 8,
                                               .head_size = 128,
                                               .scale = 0.0884F},
                                AttentionShape{.num_sequences = 1,
                                               .query_len = 8192,
                                               .key_len = 8192,
                                               .heads = 16,
                                               .kv_heads = 16,
                                               .head_size = 256,
                                               .scale = 0.0625F}};

class AttentionBench {
 public:
  AttentionBench(CudaBackend& backend, const AttentionShape& shape)
      : shape_(shape),
        rows_(shape.num_sequences * shape.query_len),
        width_((shape.heads + 2 * std::int64_t{shape.kv_heads}) * shape.head_size),
        q_width_(std::int64_t{shape.heads} * shape.head_size),
        qkv_(backend, rows_ * width_),
        output_grad_(backend, rows_ * q_width_),
        o_(backend, rows_ * q_width_ * 2),
        lse_(backend, rows_ * shape.heads * 4),
        dqkv_(backend, rows_ * width_ * 2) {}

  /// Forward and backward; nothing where the backend's library has no kernel for the shape.
  struct Seconds {
    std::optional<double> forward, backward;
  };
  Seconds run(CudaBackend& backend) const {
    Seconds result;
    try {
      result.forward = seconds_of(backend, forward());
      result.backward = seconds_of(backend, backward());
    } catch (const ConfigError& error) {
      std::printf("  (%s)\n", error.what());
    }
    return result;
  }

  /// o, dq, dk and dv of one library, as bf16 bits; nothing where it has no kernel for the shape.
  using Bits = std::vector<std::uint16_t>;
  std::optional<std::array<Bits, 2>> results(CudaBackend& backend) const {
    try {
      run_once(backend, forward());
      run_once(backend, backward());
    } catch (const ConfigError& error) {
      std::printf("  (%s)\n", error.what());
      return std::nullopt;
    }
    return std::array{bits_of(backend, o_, rows_ * q_width_),
                      bits_of(backend, dqkv_, rows_ * width_)};
  }

  /// Both round probabilities and results to bf16, by 2^-9 at most each; in the norm over a whole
  /// tensor five such roundings are more than they can differ by.
  bool agree(CudaBackend& own, CudaBackend& cudnn) const {
    constexpr double kBound = 1e-2;
    const auto ours = results(own);
    const auto theirs = results(cudnn);
    if (!ours || !theirs) return true;
    const auto& [our_o, our_grad] = *ours;
    const auto& [their_o, their_grad] = *theirs;
    const std::array differences = {difference(our_o, their_o, q_width_, 0, q_width_),
                                    difference(our_grad, their_grad, width_, 0, q_width_),
                                    difference(our_grad, their_grad, width_, q_width_, v_column()),
                                    difference(our_grad, their_grad, width_, v_column(), width_)};
    std::printf("%d/%d heads of %d  own against cuDNN: o %.1e, dq %.1e, dk %.1e, dv %.1e of %.0e\n",
                shape_.heads, shape_.kv_heads, shape_.head_size, differences[0], differences[1],
                differences[2], differences[3], kBound);
    return std::ranges::all_of(differences, [](double one) { return one <= kBound; });
  }

  void print(const char* what, std::optional<double> ours, std::optional<double> cudnn,
             double products) const {
    // half of the products lie above the diagonal
    const double flops = products * static_cast<double>(rows_) *
                         static_cast<double>(shape_.key_len) * static_cast<double>(q_width_);
    std::printf("%lld x %lld, %d/%d heads of %d  %-8s",
                static_cast<long long>(shape_.num_sequences),
                static_cast<long long>(shape_.query_len), shape_.heads, shape_.kv_heads,
                shape_.head_size, what);
    if (ours) std::printf("  own %8.3f ms %6.1f TFLOP/s", *ours * 1e3, flops / *ours / 1e12);
    if (cudnn) std::printf("  cuDNN %8.3f ms %6.1f TFLOP/s", *cudnn * 1e3, flops / *cudnn / 1e12);
    if (ours && cudnn) std::printf("  own takes %.2f x", *ours / *cudnn);
    std::printf("\n");
  }

 private:
  static Bits bits_of(CudaBackend& backend, const Memory& memory, std::int64_t count) {
    Bits bits(static_cast<std::size_t>(count));
    backend.copy_to_host(bits.data(), memory.data(), count * 2);
    backend.synchronize();
    return bits;
  }
  /// Norm of the difference over the norm, of columns [begin, end) of rows of `width`.
  static double difference(const Bits& a, const Bits& b, std::int64_t width, std::int64_t begin,
                           std::int64_t end) {
    const auto value = [](std::uint16_t bits) {
      return static_cast<double>(std::bit_cast<float>(std::uint32_t{bits} << 16));
    };
    double error = 0, norm = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      const std::int64_t column = static_cast<std::int64_t>(i) % width;
      if (column < begin || column >= end) continue;
      error += std::pow(value(a[i]) - value(b[i]), 2);
      norm += std::pow(value(b[i]), 2);
    }
    return std::sqrt(error / norm);  // NaN, where a result is, agrees with nothing
  }

  const char* column(const RandomOperand& of, std::int64_t elements) const {
    return static_cast<const char*>(of.data()) + elements * 2;
  }
  char* column(const Memory& of, std::int64_t elements) const {
    return static_cast<char*>(of.data()) + elements * 2;
  }
  std::int64_t v_column() const {
    return q_width_ + std::int64_t{shape_.kv_heads} * shape_.head_size;
  }
  AttentionForward forward() const {
    return {.shape = shape_,
            .dtype = DType::BF16,
            .q = qkv_.data(),
            .q_stride = width_,
            .k = column(qkv_, q_width_),
            .v = column(qkv_, v_column()),
            .kv_stride = width_,
            .o = o_.data(),
            .o_stride = q_width_,
            .lse = static_cast<float*>(lse_.data())};
  }
  AttentionBackward backward() const {
    return {.shape = shape_,
            .dtype = DType::BF16,
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
            .dkv_stride = width_};
  }

  AttentionShape shape_;
  std::int64_t rows_, width_, q_width_;
  RandomOperand qkv_, output_grad_;
  Memory o_, lse_, dqkv_;
};

}  // namespace

}  // namespace meshplan::bench

int main(int argc, char** argv) {
  using namespace meshplan;
  const bool only_check = argc > 1 && std::string_view(argv[1]) == "--check";
  if (!bench::has_gpu()) return 0;
  const auto own = kernels::make_cuda_backend(0, {.attention = kernels::AttentionLibrary::Own});
  const auto cudnn = kernels::make_cuda_backend(
      0, {.stream = own->stream(), .attention = kernels::AttentionLibrary::Cudnn});
  std::printf("%s, bf16, causal; FLOP/s count what the mask leaves\n", own->name().c_str());
  bool all_agree = true;
  for (const kernels::AttentionShape& shape : bench::kShapes) {
    const bench::AttentionBench attention(*own, shape);
    all_agree = attention.agree(*own, *cudnn) && all_agree;
    if (only_check) continue;
    const auto ours = attention.run(*own);
    const auto theirs = attention.run(*cudnn);
    attention.print("forward", ours.forward, theirs.forward, 2.0);
    attention.print("backward", ours.backward, theirs.backward, 5.0);
  }
  return all_agree ? 0 : 1;
}
