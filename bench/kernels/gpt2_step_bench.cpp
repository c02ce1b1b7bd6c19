// One training step of GPT-2 124M (12 layers, 768, 12 heads, vocabulary 50257 padded to 50304),
// operation by operation on random data: where does the time go, and at which rate does each kind
// run? Gradients are not checked here (tests/kernels does); the loss of random logits must be
// log(vocabulary). Usage: gpt2_step_bench [threads] [sequences] [sequence length] [fp32|bf16]
// [steps]
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cpu_backend.hpp"

namespace {

using namespace meshplan;
using namespace meshplan::kernels;
using Clock = std::chrono::steady_clock;

constexpr std::int64_t kLayers = 12;
constexpr std::int64_t kHidden = 768;
constexpr int kHeads = 12;
constexpr std::int64_t kFfn = 4 * kHidden;
constexpr std::int64_t kVocab = 50257;
constexpr std::int64_t kPaddedVocab = 50304;
constexpr std::int64_t kLayerParameters =
    12 * kHidden * kHidden + 13 * kHidden;  // four linears with bias, two norms
constexpr std::int64_t kParameters =
    kLayers * kLayerParameters + (kPaddedVocab + 1024 + 2) * kHidden;

/// Time of all threads: other processes do not count, but threads that wait for each other do.
double cpu_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

struct Work {
  double seconds = 0.0;
  double cpu_seconds = 0.0;
  double flop = 0.0;
  double bytes = 0.0;
};

class Step {
 public:
  Step(int num_threads, std::int64_t sequences, std::int64_t seq_len, DType dtype)
      : backend_(make_cpu_backend(num_threads)),
        sequences_(sequences),
        seq_len_(seq_len),
        tokens_(sequences * seq_len),
        dtype_(dtype) {
    weights_ = allocate(kParameters * size_of(dtype));
    for (float** flat : {&master_, &m_, &v_, &gradient_})
      *flat = static_cast<float*>(allocate(kParameters * 4));
    backend_->run(RandomNormal{.seed = 1,
                               .rows = 1,
                               .columns = kParameters,
                               .global_columns = kParameters,
                               .stddev = 0.02F,
                               .out = master_,
                               .out_stride = kParameters});
    backend_->run(Convert{kParameters, DType::F32, master_, dtype, weights_});
    for (std::int64_t layer = 0; layer < kLayers; ++layer) layers_.push_back(make_layer());
    x_ = activation(kHidden);
    dx_ = activation(kHidden);
    branch_ = activation(kHidden);
    wide_ = activation(kFfn);
    logits_ = activation(kPaddedVocab);
    statistics_ = static_cast<float*>(allocate(tokens_ * 8 * 4));
    std::vector<std::int32_t> ids;
    for (std::int64_t t = 0; t < tokens_; ++t)
      ids.push_back(static_cast<std::int32_t>(t * 7919 % kVocab));
    ids_ = static_cast<std::int32_t*>(allocate(tokens_ * 4));
    backend_->copy_to_device(ids_, ids.data(), tokens_ * 4);
    scale_ = static_cast<float*>(allocate(4));
    *scale_ = 1.0F / static_cast<float>(tokens_);
    sum_ = static_cast<double*>(allocate(16));  // of the loss; of squares
  }
  ~Step() {
    for (void* memory : owned_) backend_->free(memory);
  }
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  void run(std::int64_t step) {
    forward();
    head();
    backward();
    optimize(step);
  }
  double loss() const { return *sum_ / static_cast<double>(tokens_); }
  std::map<std::string, Work>& work() { return work_; }
  std::string name() const { return backend_->name(); }

 private:
  struct Layer {
    void *x, *norm1, *qkv, *attention, *middle, *norm2, *wide, *gelu;
    float *statistics1, *statistics2, *lse;
  };

  void* allocate(std::int64_t bytes) {
    owned_.push_back(backend_->allocate(bytes));
    return owned_.back();
  }
  void* activation(std::int64_t columns) { return allocate(tokens_ * columns * size_of(dtype_)); }
  float* statistic(std::int64_t columns) {
    return static_cast<float*>(allocate(tokens_ * columns * 4));
  }
  Layer make_layer() {
    return {activation(kHidden), activation(kHidden), activation(3 * kHidden), activation(kHidden),
            activation(kHidden), activation(kHidden), activation(kFfn),        activation(kFfn),
            statistic(2),        statistic(2),        statistic(kHeads)};
  }
  void* at(void* base, std::int64_t element) const {
    return static_cast<char*>(base) + element * size_of(dtype_);
  }

  void timed(const char* kind, double flop, double bytes, const Operation& op) {
    if (const std::int64_t need = backend_->scratch_bytes(op); need > scratch_bytes_) {
      scratch_bytes_ = need;
      backend_->set_scratch(allocate(need), need);
    }
    const auto begin = Clock::now();
    const double cpu_begin = cpu_seconds();
    backend_->run(op);
    Work& work = work_[kind];
    work.cpu_seconds += cpu_seconds() - cpu_begin;
    work.seconds += std::chrono::duration<double>(Clock::now() - begin).count();
    work.flop += flop;
    work.bytes += bytes;
  }
  double flop(std::int64_t in, std::int64_t out) const {
    return 2.0 * static_cast<double>(tokens_ * in * out);
  }
  double bytes(std::int64_t columns) const {
    return static_cast<double>(tokens_ * columns * size_of(dtype_));
  }

  void linear(const void* x, std::int64_t in, std::int64_t offset, std::int64_t out, void* y,
              bool has_bias = true) {
    timed("linear forward", flop(in, out), 0,
          LinearForward{.shape = {tokens_, in, out},
                        .dtype = dtype_,
                        .x = x,
                        .x_stride = in,
                        .weight = at(weights_, offset),
                        .weight_stride = in,
                        .bias = has_bias ? at(weights_, offset + in * out) : nullptr,
                        .y = y,
                        .y_stride = out});
  }
  void linear_backward(const void* dy, std::int64_t out, const void* x, std::int64_t in,
                       std::int64_t offset, void* dx, bool has_bias = true) {
    timed("linear weight grad", flop(in, out), 0,
          LinearWeightGrad{.shape = {tokens_, in, out},
                           .dtype = dtype_,
                           .dy = dy,
                           .dy_stride = out,
                           .x = x,
                           .x_stride = in,
                           .dweight = gradient_ + offset,
                           .dweight_stride = in,
                           .dbias = has_bias ? gradient_ + offset + in * out : nullptr});
    timed("linear input grad", flop(in, out), 0,
          LinearInputGrad{.shape = {tokens_, in, out},
                          .dtype = dtype_,
                          .dy = dy,
                          .dy_stride = out,
                          .weight = at(weights_, offset),
                          .weight_stride = in,
                          .dx = dx,
                          .dx_stride = in});
  }
  void norm(const void* x, std::int64_t offset, void* y, float* statistics) {
    timed("layer norm", 0, bytes(2 * kHidden),
          LayerNormForward{.tokens = tokens_,
                           .size = kHidden,
                           .epsilon = 1e-5F,
                           .dtype = dtype_,
                           .x = x,
                           .x_stride = kHidden,
                           .weight = at(weights_, offset),
                           .bias = at(weights_, offset + kHidden),
                           .y = y,
                           .y_stride = kHidden,
                           .mean = statistics,
                           .inv_std = statistics + tokens_});
  }
  void norm_backward(const void* dy, const void* x, std::int64_t offset, const float* statistics,
                     void* dx) {
    timed("layer norm", 0, bytes(5 * kHidden),
          LayerNormBackward{.tokens = tokens_,
                            .size = kHidden,
                            .dtype = dtype_,
                            .dy = dy,
                            .dy_stride = kHidden,
                            .x = x,
                            .x_stride = kHidden,
                            .weight = at(weights_, offset),
                            .mean = statistics,
                            .inv_std = statistics + tokens_,
                            .dx = dx,
                            .dx_stride = kHidden,
                            .dweight = gradient_ + offset,
                            .dbias = gradient_ + offset + kHidden});
  }
  void add(const void* a, const void* b, void* out) {
    timed("add", 0, bytes(3 * kHidden), Add{tokens_ * kHidden, dtype_, a, b, out});
  }
  AttentionShape attention_shape() const {
    return {.num_sequences = sequences_,
            .query_len = seq_len_,
            .key_len = seq_len_,
            .heads = kHeads,
            .kv_heads = kHeads,
            .head_size = static_cast<int>(kHidden / kHeads),
            .scale = 0.125F};
  }
  double attention_flop() const { return 2.0 * static_cast<double>(tokens_ * seq_len_ * kHidden); }

  // Offsets of a layer's parameters in the flat range.
  static std::int64_t qkv_at(std::int64_t layer) {
    return (kPaddedVocab + 1024 + 2) * kHidden + layer * kLayerParameters;
  }
  static std::int64_t projection_at(std::int64_t layer) {
    return qkv_at(layer) + 3 * kHidden * (kHidden + 1);
  }
  static std::int64_t up_at(std::int64_t layer) {
    return projection_at(layer) + kHidden * (kHidden + 1);
  }
  static std::int64_t down_at(std::int64_t layer) { return up_at(layer) + kFfn * (kHidden + 1); }
  static std::int64_t norms_at(std::int64_t layer) { return down_at(layer) + kHidden * (kFfn + 1); }
  static constexpr std::int64_t kPositions = kPaddedVocab * kHidden;
  static constexpr std::int64_t kFinalNorm = (kPaddedVocab + 1024) * kHidden;

  void forward() {
    timed("embedding", 0, bytes(2 * kHidden),
          EmbeddingForward{.tokens = tokens_,
                           .size = kHidden,
                           .vocab_end = kPaddedVocab,
                           .dtype = dtype_,
                           .ids = ids_,
                           .weight = weights_,
                           .out = layers_[0].x,
                           .out_stride = kHidden});
    timed("embedding", 0, bytes(3 * kHidden),
          PositionEmbeddingForward{.tokens = tokens_,
                                   .size = kHidden,
                                   .positions = {.seq_len = seq_len_},
                                   .dtype = dtype_,
                                   .x = layers_[0].x,
                                   .x_stride = kHidden,
                                   .weight = at(weights_, kPositions),
                                   .out = layers_[0].x,
                                   .out_stride = kHidden});
    for (std::int64_t i = 0; i < kLayers; ++i) {
      const Layer& layer = layers_[static_cast<std::size_t>(i)];
      norm(layer.x, norms_at(i), layer.norm1, layer.statistics1);
      linear(layer.norm1, kHidden, qkv_at(i), 3 * kHidden, layer.qkv);
      timed("attention forward", attention_flop(), 0,
            AttentionForward{.shape = attention_shape(),
                             .dtype = dtype_,
                             .q = layer.qkv,
                             .q_stride = 3 * kHidden,
                             .k = at(layer.qkv, kHidden),
                             .v = at(layer.qkv, 2 * kHidden),
                             .kv_stride = 3 * kHidden,
                             .o = layer.attention,
                             .o_stride = kHidden,
                             .lse = layer.lse});
      linear(layer.attention, kHidden, projection_at(i), kHidden, branch_);
      add(layer.x, branch_, layer.middle);
      norm(layer.middle, norms_at(i) + 2 * kHidden, layer.norm2, layer.statistics2);
      linear(layer.norm2, kHidden, up_at(i), kFfn, layer.wide);
      timed("activation", 0, bytes(2 * kFfn),
            ActivationForward{ActivationKind::GeluTanh, tokens_ * kFfn, dtype_, layer.wide,
                              layer.gelu});
      linear(layer.gelu, kFfn, down_at(i), kHidden, branch_);
      add(layer.middle, branch_,
          i + 1 < kLayers ? layers_[static_cast<std::size_t>(i + 1)].x : dx_);
    }
  }

  void head() {
    float* lse = statistics_ + 3 * tokens_;
    float* loss = lse + tokens_;
    float* norm_statistics = loss + tokens_;
    norm(dx_, kFinalNorm, x_, norm_statistics);
    linear(x_, kHidden, 0, kPaddedVocab, logits_, false);
    timed("cross entropy", 0, bytes(kPaddedVocab),
          CrossEntropyLocal{.tokens = tokens_,
                            .columns = kPaddedVocab,
                            .valid = kVocab,
                            .dtype = dtype_,
                            .logits = logits_,
                            .logits_stride = kPaddedVocab,
                            .targets = ids_,
                            .stats = statistics_});
    timed("cross entropy", 0, 0, CrossEntropyCombine{tokens_, 1, statistics_, ids_, loss, lse});
    timed("cross entropy", 0, 0, SumLoss{tokens_, loss, sum_, false});
    timed("cross entropy", 0, bytes(2 * kPaddedVocab),
          CrossEntropyBackward{.tokens = tokens_,
                               .columns = kPaddedVocab,
                               .valid = kVocab,
                               .dtype = dtype_,
                               .logits = logits_,
                               .dlogits = logits_,
                               .logits_stride = kPaddedVocab,
                               .targets = ids_,
                               .lse = lse,
                               .scale = scale_});
    linear_backward(logits_, kPaddedVocab, x_, kHidden, 0, branch_, false);
    norm_backward(branch_, dx_, kFinalNorm, norm_statistics, dx_ == x_ ? branch_ : x_);
    std::swap(dx_, x_);
  }

  void backward() {
    for (std::int64_t i = kLayers - 1; i >= 0; --i) {
      const Layer& layer = layers_[static_cast<std::size_t>(i)];
      linear_backward(dx_, kHidden, layer.gelu, kFfn, down_at(i), wide_);
      timed("activation", 0, bytes(3 * kFfn),
            ActivationBackward{ActivationKind::GeluTanh, tokens_ * kFfn, dtype_, wide_, layer.wide,
                               wide_});
      linear_backward(wide_, kFfn, layer.norm2, kHidden, up_at(i), branch_);
      norm_backward(branch_, layer.middle, norms_at(i) + 2 * kHidden, layer.statistics2, x_);
      add(dx_, x_, dx_);
      linear_backward(dx_, kHidden, layer.attention, kHidden, projection_at(i), branch_);
      timed("attention backward", 2.5 * attention_flop(), 0,
            AttentionBackward{.shape = attention_shape(),
                              .dtype = dtype_,
                              .q = layer.qkv,
                              .q_stride = 3 * kHidden,
                              .k = at(layer.qkv, kHidden),
                              .v = at(layer.qkv, 2 * kHidden),
                              .kv_stride = 3 * kHidden,
                              .o = layer.attention,
                              .o_stride = kHidden,
                              .output_grad = branch_,
                              .lse = layer.lse,
                              .dq = wide_,
                              .dq_stride = 3 * kHidden,
                              .dk = at(wide_, kHidden),
                              .dv = at(wide_, 2 * kHidden),
                              .dkv_stride = 3 * kHidden});
      linear_backward(wide_, 3 * kHidden, layer.norm1, kHidden, qkv_at(i), branch_);
      norm_backward(branch_, layer.x, norms_at(i), layer.statistics1, x_);
      add(dx_, x_, dx_);
    }
    timed("embedding", 0, bytes(3 * kHidden),
          EmbeddingBackward{.tokens = tokens_,
                            .size = kHidden,
                            .vocab_end = kPaddedVocab,
                            .dtype = dtype_,
                            .ids = ids_,
                            .dout = dx_,
                            .dout_stride = kHidden,
                            .dweight = gradient_});
  }

  void optimize(std::int64_t step) {
    timed("squared norm", 0, 4.0 * kParameters, SquaredNorm{kParameters, gradient_, sum_ + 1});
    timed("adam", 0, (28.0 + (dtype_ == DType::BF16 ? 2.0 : 0.0)) * kParameters,
          AdamStep{.count = kParameters,
                   .step = step,
                   .learning_rate = 0.0F,
                   .master = master_,
                   .m = m_,
                   .v = v_,
                   .gradient = gradient_,
                   .weight = dtype_ == DType::BF16 ? weights_ : nullptr,
                   .weight_dtype = dtype_});
  }

  std::unique_ptr<Backend> backend_;
  std::int64_t sequences_, seq_len_, tokens_;
  DType dtype_;
  std::vector<void*> owned_;
  std::vector<Layer> layers_;
  std::int64_t scratch_bytes_ = 0;
  void *weights_ = nullptr, *x_ = nullptr, *dx_ = nullptr, *branch_ = nullptr, *wide_ = nullptr,
       *logits_ = nullptr;
  float *master_ = nullptr, *m_ = nullptr, *v_ = nullptr, *gradient_ = nullptr;
  float *statistics_ = nullptr, *scale_ = nullptr;
  std::int32_t* ids_ = nullptr;
  double* sum_ = nullptr;
  std::map<std::string, Work> work_;
};

double total_cpu(const std::map<std::string, Work>& work) {
  double sum = 0;
  for (const auto& [kind, part] : work) sum += part.cpu_seconds;
  return sum;
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 1;
  const std::int64_t sequences = argc > 2 ? std::atoll(argv[2]) : 4;
  const std::int64_t seq_len = argc > 3 ? std::atoll(argv[3]) : 64;
  const DType dtype = argc > 4 ? parse_dtype(argv[4]) : DType::F32;
  const int steps = argc > 5 ? std::atoi(argv[5]) : 5;

  Step step(threads, sequences, seq_len, dtype);
  step.run(1);  // creates primitives and touches memory
  std::vector<double> seconds;
  std::map<std::string, Work> fastest;  // by CPU time, which other processes disturb least
  double least_cpu = std::numeric_limits<double>::max();
  for (int i = 0; i < steps; ++i) {
    step.work().clear();
    const auto begin = Clock::now();
    step.run(i + 2);
    seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
    const double cpu = total_cpu(step.work());
    if (cpu < least_cpu) fastest = step.work();
    least_cpu = std::min(least_cpu, cpu);
  }
  if (std::fabs(step.loss() - std::log(static_cast<double>(kVocab))) > 0.1) {
    std::fprintf(stderr, "the loss of small random weights is %.3f, not log(%ld)\n", step.loss(),
                 static_cast<long>(kVocab));
    return 1;
  }
  std::sort(seconds.begin(), seconds.end());
  const auto tokens = static_cast<double>(sequences * seq_len);
  std::printf("%s, GPT-2 124M, B %ld, T %ld, %s, %d steps: ", step.name().c_str(),
              static_cast<long>(sequences), static_cast<long>(seq_len),
              std::string(name_of(dtype)).c_str(), steps);
  std::printf("median %.3f s (%.0f tokens/s), fastest %.3f s (%.0f tokens/s), loss %.3f\n\n",
              seconds[seconds.size() / 2], tokens / seconds[seconds.size() / 2], seconds[0],
              tokens / seconds[0], step.loss());
  std::printf("%.3f CPU s a step (%.0f tokens a CPU s)\n\n", least_cpu, tokens / least_cpu);
  std::printf(
      "The step of least CPU time:\n\n| kind | ms | CPU ms | GFLOP/s | GB/s "
      "|\n|---|---|---|---|---|\n");
  for (const auto& [kind, work] : fastest)
    std::printf("| %s | %.1f | %.1f | %.0f | %.1f |\n", kind.c_str(), work.seconds * 1e3,
                work.cpu_seconds * 1e3, work.flop / work.seconds * 1e-9,
                work.bytes / work.seconds * 1e-9);
  return 0;
}
