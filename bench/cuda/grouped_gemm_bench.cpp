// The products of experts (grouped linear layers), with as many rows for each expert and with rows
// that a router has spread unevenly, beside the fastest kernel that cuBLASLt offers for one dense
// product of all rows (its first 8 candidates, timed).
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <optional>

#include "support.hpp"

namespace meshplan::bench {

namespace {

using kernels::CudaBackend;
using kernels::GroupedLinearForward;
using kernels::GroupedLinearInputGrad;
using kernels::GroupedLinearShape;
using kernels::GroupedLinearWeightGrad;

/// Dense FLOP/s of bf16 on the GPUs that have wgmma (H100 and H200 SXM, data sheets).
constexpr double kDefaultPeakTflops = 989.4;

struct Experts {
  const char* name;
  GroupedLinearShape shape;
};
/// A micro-batch on one rank. Mixtral 8x7B (arXiv:2401.04088): 8,192 tokens, 2 of 8 experts, gate
/// and up in one product. DeepSeek-V3 (arXiv:2412.19437), 256 experts over 8 ranks: 4,096 tokens of
/// each, 8 experts a token.
constexpr std::array kExperts = {Experts{"Mixtral up", {8, 16384, 4096, 28672}},
                                 Experts{"Mixtral down", {8, 16384, 14336, 4096}},
                                 Experts{"DeepSeek up", {32, 32768, 7168, 4096}},
                                 Experts{"DeepSeek down", {32, 32768, 2048, 7168}}};

/// Where groups begin: of the same size, or of sizes that fall like 1 / (rank + 1), as routers
/// without balancing leave them.
std::vector<std::int32_t> offsets_of(const GroupedLinearShape& shape, bool skewed) {
  std::vector<double> weights;
  for (std::int64_t g = 0; g < shape.num_groups; ++g)
    weights.push_back(skewed ? 1.0 / static_cast<double>(g + 1) : 1.0);
  const double all = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<std::int32_t> offsets = {0};
  double before = 0;
  for (const double weight : weights) {
    before += weight;
    offsets.push_back(
        static_cast<std::int32_t>(std::lround(before / all * static_cast<double>(shape.max_rows))));
  }
  return offsets;
}

class GroupedBench {
 public:
  GroupedBench(CudaBackend& ours, CudaBackend& best, const Experts& experts, double peak)
      : ours_(ours),
        best_(best),
        experts_(experts),
        shape_(experts.shape),
        peak_(peak),
        x_(ours, shape_.max_rows * shape_.in_features),
        weight_(ours, shape_.num_groups * shape_.out_features * shape_.in_features),
        y_(ours, shape_.max_rows * shape_.out_features),
        dweight_(ours, shape_.num_groups * shape_.out_features * shape_.in_features * 4),
        offsets_(ours, (shape_.num_groups + 1) * 4) {}

  void run() {
    dense();
    for (const bool skewed : {false, true}) {
      const std::vector<std::int32_t> offsets = offsets_of(shape_, skewed);
      ours_.copy_to_device(offsets_.data(), offsets.data(),
                           static_cast<std::int64_t>(offsets.size()) * 4);
      ours_.synchronize();
      const char* rows = skewed ? "skewed" : "uniform";
      print(rows, "forward", seconds_of(ours_, forward()));
      print(rows, "input grad", seconds_of(ours_, input_grad()));
      for (const bool accumulate : {false, true})
        print(rows, accumulate ? "weight grad +=" : "weight grad",
              seconds_of(ours_, weight_grad(accumulate)));
    }
  }

 private:
  kernels::GroupOffsets offsets() const {
    return {.device = static_cast<const std::int32_t*>(offsets_.data())};
  }
  void dense() {
    print("dense", "forward",
          seconds_of(best_, kernels::LinearForward{
                                .shape = {shape_.max_rows, shape_.in_features, shape_.out_features},
                                .dtype = DType::BF16,
                                .x = x_.data(),
                                .x_stride = shape_.in_features,
                                .weight = weight_.data(),
                                .weight_stride = shape_.in_features,
                                .y = y_.data(),
                                .y_stride = shape_.out_features}));
  }
  GroupedLinearForward forward() const {
    return {.shape = shape_,
            .dtype = DType::BF16,
            .offsets = offsets(),
            .x = x_.data(),
            .x_stride = shape_.in_features,
            .weight = weight_.data(),
            .y = y_.data(),
            .y_stride = shape_.out_features};
  }
  GroupedLinearInputGrad input_grad() const {
    return {.shape = shape_,
            .dtype = DType::BF16,
            .offsets = offsets(),
            .dy = y_.data(),
            .dy_stride = shape_.out_features,
            .weight = weight_.data(),
            .dx = x_.data(),
            .dx_stride = shape_.in_features};
  }
  GroupedLinearWeightGrad weight_grad(bool accumulate) const {
    return {.shape = shape_,
            .dtype = DType::BF16,
            .offsets = offsets(),
            .dy = y_.data(),
            .dy_stride = shape_.out_features,
            .x = x_.data(),
            .x_stride = shape_.in_features,
            .dweight = static_cast<float*>(dweight_.data()),
            .accumulate = accumulate};
  }
  void print(const char* rows, const char* what, double seconds) const {
    const double flops = 2.0 * static_cast<double>(shape_.max_rows) *
                         static_cast<double>(shape_.in_features) *
                         static_cast<double>(shape_.out_features);
    const double rate = flops / seconds / 1e12;
    std::printf("%-14s %2lld groups, %5lld rows, %5lld x %5lld  %-8s %-15s", experts_.name,
                static_cast<long long>(shape_.num_groups), static_cast<long long>(shape_.max_rows),
                static_cast<long long>(shape_.in_features),
                static_cast<long long>(shape_.out_features), rows, what);
    std::printf(" %9.1f us  %6.1f TFLOP/s  %4.1f %% of peak\n", seconds * 1e6, rate,
                100 * rate / peak_);
  }

  CudaBackend& ours_;
  CudaBackend& best_;
  Experts experts_;
  GroupedLinearShape shape_;
  double peak_;
  RandomOperand x_, weight_, y_;
  Memory dweight_, offsets_;
};

/// Of the command line; none where it is not a number above 0.
std::optional<double> peak_of(int argc, char** argv) {
  if (argc < 2) return kDefaultPeakTflops;
  char* end = nullptr;
  const double peak = std::strtod(argv[1], &end);
  if (argc > 2 || *end != '\0' || !(peak > 0)) return std::nullopt;
  return peak;
}

}  // namespace

}  // namespace meshplan::bench

int main(int argc, char** argv) {
  using namespace meshplan;
  const std::optional<double> peak = bench::peak_of(argc, argv);
  if (!peak) {
    std::fprintf(
        stderr,
        "usage: cuda_grouped_gemm_bench [PEAK]\nPEAK: TFLOP/s that shares are of, a number "
        "above 0 (default: %.1f, an H100 SXM's in bf16)\n",
        bench::kDefaultPeakTflops);
    return 2;
  }
  if (!bench::has_gpu()) return 0;
  const auto ours = kernels::make_cuda_backend(0);
  const auto best =
      kernels::make_cuda_backend(0, {.stream = ours->stream(), .autotune_gemm = true});
  std::printf("%s, bf16; rows x in x out; shares of %.1f TFLOP/s\n", ours->name().c_str(), *peak);
  for (const bench::Experts& experts : bench::kExperts)
    bench::GroupedBench(*ours, *best, experts, *peak).run();
  return 0;
}
