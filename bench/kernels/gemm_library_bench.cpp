// Which library multiplies fp32 matrices faster at training shapes? One table row per product and
// shape: GFLOP/s (median) of OpenBLAS sgemm, oneDNN sgemm, oneDNN matmul on plain layouts, and
// oneDNN matmul on packed weights with the packing counted. Results are checked against each other
// first, caches are flushed before every run. Usage: gemm_library_bench [threads] [seconds per
// case]
#include <algorithm>
#include <cblas.h>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <omp.h>
#include <string>
#include <unordered_map>
#include <vector>

#include "products/onednn_matmul.hpp"

namespace {

using Clock = std::chrono::steady_clock;
using dnnl::memory;

enum class Product { Forward, InputGrad, WeightGrad };

/// C (m, n) = A (m, k) B (k, n), row-major; a transposed operand is stored the other way round.
struct Gemm {
  std::int64_t m, n, k;
  bool a_transposed, b_transposed;
};

Gemm gemm_of(Product product, std::int64_t tokens, std::int64_t in, std::int64_t out) {
  switch (product) {
    case Product::Forward:
      return {tokens, out, in, false, true};
    case Product::InputGrad:
      return {tokens, in, out, false, false};
    case Product::WeightGrad:
      return {out, in, tokens, true, false};
  }
  std::abort();
}

const char* name_of(Product product) {
  switch (product) {
    case Product::Forward:
      return "forward";
    case Product::InputGrad:
      return "input grad";
    case Product::WeightGrad:
      return "weight grad";
  }
  std::abort();
}

memory::desc plain(std::int64_t rows, std::int64_t columns, bool transposed) {
  return {{rows, columns},
          memory::data_type::f32,
          transposed ? memory::dims{1, rows} : memory::dims{columns, 1}};
}

struct Operands {
  std::vector<float> a, b, c;
};

class OneDnnMatmul {
 public:
  OneDnnMatmul(const Gemm& g, Operands& operands, bool packed)
      : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_), packed_(packed) {
    const auto a = plain(g.m, g.k, g.a_transposed);
    const auto b = plain(g.k, g.n, g.b_transposed);
    const auto c = plain(g.m, g.n, false);
    const auto any = memory::desc({g.k, g.n}, memory::data_type::f32, memory::format_tag::any);
    dnnl::primitive_attr attr;
    attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    const auto desc =
        meshplan::kernels::describe_matmul(engine_, a, packed ? any : b, nullptr, c, attr);
    primitive_ = dnnl::matmul(desc);
    implementation_ = desc.impl_info_str();
    plain_b_ = memory(b, engine_, operands.b.data());
    packed_b_ = packed ? memory(desc.weights_desc(), engine_) : plain_b_;
    if (packed) reorder_ = dnnl::reorder(plain_b_, packed_b_);
    arguments_ = {{DNNL_ARG_SRC, memory(a, engine_, operands.a.data())},
                  {DNNL_ARG_WEIGHTS, packed_b_},
                  {DNNL_ARG_DST, memory(c, engine_, operands.c.data())},
                  {DNNL_ARG_SCRATCHPAD, memory(desc.scratchpad_desc(), engine_)}};
  }

  void operator()() {
    if (packed_) reorder_.execute(stream_, plain_b_, packed_b_);
    primitive_.execute(stream_, arguments_);
    stream_.wait();
  }
  const std::string& implementation() const { return implementation_; }

 private:
  dnnl::engine engine_;
  dnnl::stream stream_;
  bool packed_;
  dnnl::matmul primitive_;
  dnnl::reorder reorder_;
  memory plain_b_, packed_b_;
  std::unordered_map<int, memory> arguments_;
  std::string implementation_;
};

void flush_caches(std::vector<float>& large) {
  for (std::size_t i = 0; i < large.size(); i += 16) large[i] += 1.0F;
}

double median_gflops(const Gemm& g, double seconds, std::vector<float>& large,
                     const std::function<void()>& run) {
  run();
  std::vector<double> times;
  const auto start = Clock::now();
  do {
    flush_caches(large);
    const auto begin = Clock::now();
    run();
    times.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
  } while (times.size() < 5 ||
           std::chrono::duration<double>(Clock::now() - start).count() < seconds);
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2),
                   times.end());
  return 2e-9 * static_cast<double>(g.m * g.n * g.k) / times[times.size() / 2];
}

void check_equal(const std::vector<float>& c, const std::vector<float>& expected, const char* who) {
  for (std::size_t i = 0; i < c.size(); ++i) {
    if (std::fabs(c[i] - expected[i]) > 1e-3F) {
      std::fprintf(stderr, "%s: wrong result\n", who);
      std::exit(1);
    }
  }
}

Operands make_operands(const Gemm& g) {
  Operands result;
  result.a.resize(static_cast<std::size_t>(g.m * g.k));
  result.b.resize(static_cast<std::size_t>(g.k * g.n));
  result.c.resize(static_cast<std::size_t>(g.m * g.n));
  std::uint32_t state = 1;
  const auto next = [&state] {
    state = state * 1664525U + 1013904223U;
    return static_cast<float>(state >> 8) * (0.125F / 16777216.0F) - 0.0625F;
  };
  std::generate(result.a.begin(), result.a.end(), next);
  std::generate(result.b.begin(), result.b.end(), next);
  return result;
}

void bench(Product product, std::int64_t tokens, std::int64_t in, std::int64_t out, double seconds,
           std::vector<float>& large) {
  const Gemm g = gemm_of(product, tokens, in, out);
  Operands operands = make_operands(g);
  const std::int64_t lda = g.a_transposed ? g.m : g.k;
  const std::int64_t ldb = g.b_transposed ? g.k : g.n;

  const auto openblas = [&] {
    cblas_sgemm(CblasRowMajor, g.a_transposed ? CblasTrans : CblasNoTrans,
                g.b_transposed ? CblasTrans : CblasNoTrans, static_cast<int>(g.m),
                static_cast<int>(g.n), static_cast<int>(g.k), 1.0F, operands.a.data(),
                static_cast<int>(lda), operands.b.data(), static_cast<int>(ldb), 0.0F,
                operands.c.data(), static_cast<int>(g.n));
  };
  const auto onednn_sgemm = [&] {
    dnnl::sgemm(g.a_transposed ? 'T' : 'N', g.b_transposed ? 'T' : 'N', g.m, g.n, g.k, 1.0F,
                operands.a.data(), lda, operands.b.data(), ldb, 0.0F, operands.c.data(), g.n);
  };
  OneDnnMatmul matmul(g, operands, false);
  OneDnnMatmul packed(g, operands, true);

  openblas();
  const std::vector<float> expected = operands.c;
  onednn_sgemm();
  check_equal(operands.c, expected, "oneDNN sgemm");
  matmul();
  check_equal(operands.c, expected, "oneDNN matmul");
  packed();
  check_equal(operands.c, expected, "oneDNN matmul, packed");

  std::printf("| %s | %ld | %ld | %ld |", name_of(product), static_cast<long>(tokens),
              static_cast<long>(in), static_cast<long>(out));
  std::printf(" %.0f |", median_gflops(g, seconds, large, openblas));
  std::printf(" %.0f |", median_gflops(g, seconds, large, onednn_sgemm));
  std::printf(" %.0f |", median_gflops(g, seconds, large, std::ref(matmul)));
  std::printf(" %.0f | %s |\n", median_gflops(g, seconds, large, std::ref(packed)),
              matmul.implementation().c_str());
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 1;
  const double seconds = argc > 2 ? std::atof(argv[2]) : 0.15;
  omp_set_num_threads(threads);
  openblas_set_num_threads(threads);
  std::vector<float> large(std::size_t{16} << 20);

  struct Layer {
    std::int64_t tokens, in, out;
  };
  const std::vector<Layer> layers = {
      {256, 256, 1024},   {256, 768, 2304},   {256, 768, 3072}, {256, 3072, 768},
      {256, 768, 50304},  {1024, 384, 1536},  {1024, 768, 768}, {1024, 768, 3072},
      {2048, 1024, 4096}, {1024, 4096, 4096},
  };
  std::printf("%d thread(s), OpenBLAS core %s\n\n", threads, openblas_get_corename());
  std::printf(
      "| product | T | in | out | OpenBLAS | oneDNN sgemm | oneDNN matmul | packed | "
      "implementation |\n");
  std::printf("|---|---|---|---|---|---|---|---|---|\n");
  for (const auto& [tokens, in, out] : layers)
    for (const Product product : {Product::Forward, Product::InputGrad, Product::WeightGrad})
      bench(product, tokens, in, out, seconds, large);
  return 0;
}
