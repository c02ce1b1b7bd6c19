// Memory-bound kernels against the copy bandwidth of the same GPU: bf16, a micro-batch of 8192
// tokens of a model with 4096 features. Every operand is larger than the L2 cache together with the
// others.
#include <memory>

#include "support.hpp"

namespace meshplan::bench {

namespace {

using namespace kernels;  // names of operations only

constexpr std::int64_t kTokens = 8192;
constexpr std::int64_t kSize = 4096;
constexpr std::int64_t kFfnSize = 14336;
constexpr std::int64_t kVocab = 32768;         // a shard of it
constexpr std::int64_t kParameters = 1 << 28;  // of an optimizer step
constexpr std::int64_t kHeads = 40;            // query and key heads, of 128
constexpr std::int64_t kHeadSize = 128;

class MemoryBench {
 public:
  explicit MemoryBench(CudaBackend& backend) : backend_(backend) {
    // A copy reads and writes each byte once: what the kernels are measured against.
    constexpr std::int64_t kBytes = std::int64_t{1} << 30;
    const Memory from(backend, kBytes);
    const Memory to(backend, kBytes);
    copy_bytes_per_s_ =
        2.0 * static_cast<double>(kBytes) /
        seconds_of(backend, Scale{kBytes / 2, DType::BF16, 1.0F, from.data(), to.data()});
    std::printf("%s: copy %.0f GB/s\n", backend.name().c_str(), copy_bytes_per_s_ / 1e9);
    std::printf("%-28s %10s %8s %8s\n", "operation", "us", "GB/s", "of copy");
  }

  /// @param bytes  the traffic that the operation's header states
  void report(const char* name, const Operation& op, double bytes) {
    const double seconds = seconds_of(backend_, op);
    const double rate = bytes / seconds;
    std::printf("%-28s %10.1f %8.0f %7.1f%%\n", name, seconds * 1e6, rate / 1e9,
                100.0 * rate / copy_bytes_per_s_);
  }

  void norms() {
    const double row_bytes = 2.0 * kTokens * kSize;
    const RandomOperand x(backend_, kTokens * kSize);
    const RandomOperand dy(backend_, kTokens * kSize);
    const RandomOperand weight(backend_, kSize);
    const Memory y(backend_, kTokens * kSize * 2);
    const Memory sum(backend_, kTokens * kSize * 2);
    const Memory mean(backend_, kTokens * 4);
    const Memory inv(backend_, kTokens * 4);
    const Memory dweight(backend_, kSize * 4);
    const Memory dbias(backend_, kSize * 4);
    auto* means = static_cast<float*>(mean.data());
    auto* invs = static_cast<float*>(inv.data());
    report("RMS norm",
           RmsNormForward{kTokens, kSize, 1e-5F, DType::BF16, x.data(), kSize, weight.data(),
                          y.data(), kSize, invs},
           2 * row_bytes);
    report("RMS norm of a sum",
           RmsNormForward{.tokens = kTokens,
                          .size = kSize,
                          .epsilon = 1e-5F,
                          .dtype = DType::BF16,
                          .x = x.data(),
                          .x_stride = kSize,
                          .weight = weight.data(),
                          .y = y.data(),
                          .y_stride = kSize,
                          .inv_rms = invs,
                          .residual = dy.data(),
                          .sum = sum.data()},
           4 * row_bytes);
    report("RMS norm backward",
           RmsNormBackward{.tokens = kTokens,
                           .size = kSize,
                           .dtype = DType::BF16,
                           .dy = dy.data(),
                           .dy_stride = kSize,
                           .x = x.data(),
                           .x_stride = kSize,
                           .weight = weight.data(),
                           .inv_rms = invs,
                           .dx = y.data(),
                           .dx_stride = kSize,
                           .dweight = static_cast<float*>(dweight.data())},
           3 * row_bytes);
    report("layer norm",
           LayerNormForward{kTokens, kSize, 1e-5F, DType::BF16, x.data(), kSize, weight.data(),
                            weight.data(), y.data(), kSize, means, invs},
           2 * row_bytes);
    report("layer norm backward",
           LayerNormBackward{.tokens = kTokens,
                             .size = kSize,
                             .dtype = DType::BF16,
                             .dy = dy.data(),
                             .dy_stride = kSize,
                             .x = x.data(),
                             .x_stride = kSize,
                             .weight = weight.data(),
                             .mean = means,
                             .inv_std = invs,
                             .dx = y.data(),
                             .dx_stride = kSize,
                             .dweight = static_cast<float*>(dweight.data()),
                             .dbias = static_cast<float*>(dbias.data())},
           3 * row_bytes);
  }

  void activations() {
    constexpr std::int64_t kCount = kTokens * kFfnSize;
    const RandomOperand x(backend_, 2 * kCount);
    const RandomOperand dy(backend_, kCount);
    const Memory y(backend_, kCount * 2);
    const Memory dx(backend_, 2 * kCount * 2);
    const double bytes = 2.0 * kCount;
    report("SwiGLU",
           GatedActivationForward{ActivationKind::Silu, kTokens, kFfnSize, DType::BF16, x.data(),
                                  2 * kFfnSize, y.data(), kFfnSize},
           3 * bytes);
    report("SwiGLU backward",
           GatedActivationBackward{ActivationKind::Silu, kTokens, kFfnSize, DType::BF16, dy.data(),
                                   kFfnSize, x.data(), 2 * kFfnSize, dx.data(), 2 * kFfnSize},
           5 * bytes);
    report("GELU", ActivationForward{ActivationKind::Gelu, kCount, DType::BF16, x.data(), y.data()},
           2 * bytes);
    report("add", Add{kCount, DType::BF16, x.data(), dy.data(), y.data()}, 3 * bytes);
    report("accumulate fp32 += bf16",
           Accumulate{kCount, DType::F32, dx.data(), DType::BF16, dy.data()}, 5 * bytes);
  }

  void positions_and_tokens() {
    constexpr std::int64_t kWidth = kHeads * kHeadSize;
    const RandomOperand x(backend_, kTokens * kWidth);
    const Memory table(backend_, kTokens * kHeadSize * 4);
    report("rope",
           Rope{.tokens = kTokens,
                .heads = kHeads,
                .head_size = kHeadSize,
                .rope_size = kHeadSize,
                .positions = {.seq_len = kTokens},
                .dtype = DType::BF16,
                .x = x.data(),
                .x_stride = kWidth,
                .table = static_cast<const float*>(table.data())},
           4.0 * kTokens * kWidth);
    std::vector<std::int32_t> host(static_cast<std::size_t>(kTokens));
    std::uint32_t state = 1;
    for (std::int32_t& id : host) {
      state = state * 1664525U + 1013904223U;
      id = static_cast<std::int32_t>((state >> 8) % kVocab);
    }
    const Memory ids(backend_, kTokens * 4);
    backend_.copy_to_device(ids.data(), host.data(), kTokens * 4);
    const RandomOperand weight(backend_, kVocab * kSize);
    const Memory out(backend_, kTokens * kSize * 2);
    const Memory dweight(backend_, kVocab * kSize * 4);
    const auto* tokens = static_cast<const std::int32_t*>(ids.data());
    report("embedding",
           EmbeddingForward{kTokens, kSize, 0, kVocab, DType::BF16, tokens, weight.data(),
                            out.data(), kSize},
           4.0 * kTokens * kSize);
    // the rows of dweight that occur are read and written
    report("embedding backward",
           EmbeddingBackward{kTokens, kSize, 0, kVocab, DType::BF16, tokens, out.data(), kSize,
                             static_cast<float*>(dweight.data()), true},
           10.0 * kTokens * kSize);
  }

  void loss() {
    const RandomOperand logits(backend_, kTokens * kVocab);
    const Memory targets(backend_, kTokens * 4);
    const Memory stats(backend_, kTokens * 4 * kCrossEntropyStats);
    const Memory lse(backend_, kTokens * 4);
    const Memory scale(backend_, 4);
    const auto* ids = static_cast<const std::int32_t*>(targets.data());
    report("cross entropy",
           CrossEntropyLocal{.tokens = kTokens,
                             .columns = kVocab,
                             .valid = kVocab,
                             .dtype = DType::BF16,
                             .logits = logits.data(),
                             .logits_stride = kVocab,
                             .targets = ids,
                             .stats = static_cast<float*>(stats.data())},
           2.0 * kTokens * kVocab);
    report("cross entropy backward",
           CrossEntropyBackward{.tokens = kTokens,
                                .columns = kVocab,
                                .valid = kVocab,
                                .dtype = DType::BF16,
                                .logits = logits.data(),
                                .dlogits = logits.data(),
                                .logits_stride = kVocab,
                                .targets = ids,
                                .lse = static_cast<const float*>(lse.data()),
                                .scale = static_cast<const float*>(scale.data())},
           4.0 * kTokens * kVocab);
  }

  void optimizer() {
    std::vector<std::unique_ptr<Memory>> state;
    for (int i = 0; i < 4; ++i)
      state.push_back(std::make_unique<Memory>(backend_, kParameters * 4));
    const Memory weight(backend_, kParameters * 2);
    const auto at = [&](std::size_t i) { return static_cast<float*>(state[i]->data()); };
    report("AdamW",
           AdamStep{.count = kParameters,
                    .learning_rate = 1e-4F,
                    .weight_decay = 0.1F,
                    .master = at(0),
                    .m = at(1),
                    .v = at(2),
                    .gradient = at(3),
                    .weight = weight.data(),
                    .weight_dtype = DType::BF16},
           30.0 * kParameters);
    const Memory sum(backend_, 8);
    report("squared norm", SquaredNorm{kParameters, at(3), static_cast<double*>(sum.data())},
           4.0 * kParameters);
  }

 private:
  CudaBackend& backend_;
  double copy_bytes_per_s_ = 0.0;
};

}  // namespace

}  // namespace meshplan::bench

int main() {
  if (!meshplan::bench::has_gpu()) return meshplan::bench::kSkipped;
  const auto backend = meshplan::kernels::make_cuda_backend(0);
  meshplan::bench::MemoryBench bench(*backend);
  bench.norms();
  bench.activations();
  bench.positions_and_tokens();
  bench.loss();
  bench.optimizer();
}
