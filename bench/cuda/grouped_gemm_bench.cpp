// The products of experts (grouped linear layers), with as many rows for each expert and with rows
// that a router has spread unevenly, beside the fastest kernel that cuBLASLt offers for one dense
// product of all rows (its first 8 candidates, timed). First the three products are compared with
// cuBLASLt's, group by group.
#include <bit>
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
using kernels::LinearForward;
using kernels::LinearInputGrad;
using kernels::LinearWeightGrad;

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

/// Operands of one shape: x, its weights, and y, which is also what gradients come from.
class Operands {
 public:
  Operands(CudaBackend& backend, const GroupedLinearShape& shape)
      : shape_(shape),
        x_(backend, shape.max_rows * shape.in_features),
        weight_(backend, shape.num_groups * shape.out_features * shape.in_features),
        y_(backend, shape.max_rows * shape.out_features),
        offsets_(backend, (shape.num_groups + 1) * 4) {}

  void set_offsets(CudaBackend& backend, const std::vector<std::int32_t>& offsets) const {
    backend.copy_to_device(offsets_.data(), offsets.data(),
                           static_cast<std::int64_t>(offsets.size()) * 4);
    backend.synchronize();
  }
  void* x() const { return x_.data(); }
  void* y() const { return y_.data(); }

  GroupedLinearForward forward(void* y) const {
    return {.shape = shape_,
            .dtype = DType::BF16,
            .offsets = offsets(),
            .x = x_.data(),
            .x_stride = shape_.in_features,
            .weight = weight_.data(),
            .y = y,
            .y_stride = shape_.out_features};
  }
  GroupedLinearInputGrad input_grad(void* dx) const {
    return {.shape = shape_,
            .dtype = DType::BF16,
            .offsets = offsets(),
            .dy = y_.data(),
            .dy_stride = shape_.out_features,
            .weight = weight_.data(),
            .dx = dx,
            .dx_stride = shape_.in_features};
  }
  GroupedLinearWeightGrad weight_grad(void* dweight, bool accumulate) const {
    return {.shape = shape_,
            .dtype = DType::BF16,
            .offsets = offsets(),
            .dy = y_.data(),
            .dy_stride = shape_.out_features,
            .x = x_.data(),
            .x_stride = shape_.in_features,
            .dweight = static_cast<float*>(dweight),
            .accumulate = accumulate};
  }
  /// One product of `rows` rows from `begin` on with the weight of a group: cuBLASLt's.
  LinearForward dense_forward(std::int64_t begin, std::int64_t rows, std::int64_t group,
                              void* y) const {
    return {.shape = {rows, shape_.in_features, shape_.out_features},
            .dtype = DType::BF16,
            .x = halves(x_.data(), begin * shape_.in_features),
            .x_stride = shape_.in_features,
            .weight = weight_of(group),
            .weight_stride = shape_.in_features,
            .y = halves(y, begin * shape_.out_features),
            .y_stride = shape_.out_features};
  }
  LinearInputGrad dense_input_grad(std::int64_t begin, std::int64_t rows, std::int64_t group,
                                   void* dx) const {
    return {.shape = {rows, shape_.in_features, shape_.out_features},
            .dtype = DType::BF16,
            .dy = halves(y_.data(), begin * shape_.out_features),
            .dy_stride = shape_.out_features,
            .weight = weight_of(group),
            .weight_stride = shape_.in_features,
            .dx = halves(dx, begin * shape_.in_features),
            .dx_stride = shape_.in_features};
  }
  LinearWeightGrad dense_weight_grad(std::int64_t begin, std::int64_t rows, std::int64_t group,
                                     void* dweight) const {
    return {
        .shape = {rows, shape_.in_features, shape_.out_features},
        .dtype = DType::BF16,
        .dy = halves(y_.data(), begin * shape_.out_features),
        .dy_stride = shape_.out_features,
        .x = halves(x_.data(), begin * shape_.in_features),
        .x_stride = shape_.in_features,
        .dweight = static_cast<float*>(dweight) + group * shape_.out_features * shape_.in_features,
        .dweight_stride = shape_.in_features};
  }

 private:
  static void* halves(void* from, std::int64_t count) {
    return static_cast<char*>(from) + 2 * count;
  }
  void* weight_of(std::int64_t group) const {
    return halves(weight_.data(), group * shape_.out_features * shape_.in_features);
  }
  kernels::GroupOffsets offsets() const {
    return {.device = static_cast<const std::int32_t*>(offsets_.data())};
  }

  GroupedLinearShape shape_;
  RandomOperand x_, weight_, y_;
  Memory offsets_;
};

float value_of(std::uint16_t bits) {
  return widened(bits);
}
float value_of(float value) {
  return value;
}

/// Norm of the difference of two results of `count` numbers over the norm; NaN, where one is.
template <class T>
double difference(CudaBackend& backend, const Memory& a, const Memory& b, std::int64_t count) {
  std::array<std::vector<T>, 2> host;
  for (const auto side : {0, 1}) {
    std::vector<T>& to = host.at(static_cast<std::size_t>(side));
    to.resize(static_cast<std::size_t>(count));
    backend.copy_to_host(to.data(), (side == 0 ? a : b).data(),
                         count * static_cast<std::int64_t>(sizeof(T)));
  }
  backend.synchronize();
  double error = 0, norm = 0;
  for (std::size_t i = 0; i < host[0].size(); ++i) {
    const double value = value_of(host[1][i]);
    error += std::pow(value_of(host[0][i]) - value, 2);
    norm += value * value;
  }
  return std::sqrt(error / norm);
}

/// Blocks do several tiles each, the largest groups have more rows than tiles are walked side by
/// side, the smallest fewer than a tile.
constexpr GroupedLinearShape kChecked = {32, 16384, 1024, 2048};

/// The three products against cuBLASLt's, group by group. Both sides round results to bf16, by 2^-9
/// at most each, and sum in fp32. One wrong tile of some 1,000 would be 3e-2.
bool agree(CudaBackend& backend) {
  constexpr double kBound = 4e-3, kFp32Bound = 1e-4;
  const Operands operands(backend, kChecked);
  const std::vector<std::int32_t> offsets = offsets_of(kChecked, true);
  operands.set_offsets(backend, offsets);
  const std::int64_t y = kChecked.max_rows * kChecked.out_features;
  const std::int64_t dx = kChecked.max_rows * kChecked.in_features;
  const std::int64_t dweight = kChecked.num_groups * kChecked.out_features * kChecked.in_features;
  const Memory our_y(backend, 2 * y), y_of_groups(backend, 2 * y);
  const Memory our_dx(backend, 2 * dx), dx_of_groups(backend, 2 * dx);
  const Memory our_dweight(backend, 4 * dweight), dweight_of_groups(backend, 4 * dweight);
  run_once(backend, operands.forward(our_y.data()));
  run_once(backend, operands.input_grad(our_dx.data()));
  run_once(backend, operands.weight_grad(our_dweight.data(), false));
  for (std::int64_t g = 0; g < kChecked.num_groups; ++g) {
    const std::int64_t begin = offsets[static_cast<std::size_t>(g)];
    const std::int64_t rows = offsets[static_cast<std::size_t>(g) + 1] - begin;
    run_once(backend, operands.dense_forward(begin, rows, g, y_of_groups.data()));
    run_once(backend, operands.dense_input_grad(begin, rows, g, dx_of_groups.data()));
    run_once(backend, operands.dense_weight_grad(begin, rows, g, dweight_of_groups.data()));
  }
  const double of_y = difference<std::uint16_t>(backend, our_y, y_of_groups, y);
  const double of_dx = difference<std::uint16_t>(backend, our_dx, dx_of_groups, dx);
  const double of_dweight = difference<float>(backend, our_dweight, dweight_of_groups, dweight);
  std::printf("own against cuBLASLt: y %.1e, dx %.1e of %.0e, dweight %.1e of %.0e\n", of_y, of_dx,
              kBound, of_dweight, kFp32Bound);
  return of_y <= kBound && of_dx <= kBound && of_dweight <= kFp32Bound;
}

class GroupedBench {
 public:
  GroupedBench(CudaBackend& ours, CudaBackend& best, const Experts& experts, double peak)
      : ours_(ours),
        best_(best),
        experts_(experts),
        shape_(experts.shape),
        peak_(peak),
        operands_(ours, shape_),
        dweight_(ours, shape_.num_groups * shape_.out_features * shape_.in_features * 4) {}

  void run() {
    print("dense", "forward",
          seconds_of(best_, operands_.dense_forward(0, shape_.max_rows, 0, operands_.y())));
    for (const bool skewed : {false, true}) {
      operands_.set_offsets(ours_, offsets_of(shape_, skewed));
      const char* rows = skewed ? "skewed" : "uniform";
      print(rows, "forward", seconds_of(ours_, operands_.forward(operands_.y())));
      print(rows, "input grad", seconds_of(ours_, operands_.input_grad(operands_.x())));
      for (const bool accumulate : {false, true})
        print(rows, accumulate ? "weight grad +=" : "weight grad",
              seconds_of(ours_, operands_.weight_grad(dweight_.data(), accumulate)));
    }
  }

 private:
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
  Operands operands_;
  Memory dweight_;
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
  if (!bench::has_gpu()) return bench::kSkipped;
  const auto ours = kernels::make_cuda_backend(0);
  const auto best =
      kernels::make_cuda_backend(0, {.stream = ours->stream(), .autotune_gemm = true});
  std::printf("%s, bf16; rows x in x out; shares of %.1f TFLOP/s\n", ours->name().c_str(), *peak);
  const bool agree = bench::agree(*ours);
  for (const bench::Experts& experts : bench::kExperts)
    bench::GroupedBench(*ours, *best, experts, *peak).run();
  return agree ? 0 : 1;
}
