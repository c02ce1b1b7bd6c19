#include "products/matmul.hpp"

#include <algorithm>
#include <array>
#include <compare>
#include <fmt/format.h>
#include <map>
#include <omp.h>
#include <string>
#include <unordered_map>

#include "core/error.hpp"
#include "device/float_bits.hpp"
#include "device/threads.hpp"
#include "products/onednn_matmul.hpp"

namespace meshplan::kernels {

namespace {

using dnnl::memory;

/// One matrix product c (m, n) = a (m, k) b (k, n) [+ bias (n)] [+ c]; element (i, j) of a matrix
/// is at i * row_stride + j * column_stride.
struct Layout {
  std::int64_t row_stride = 0;
  std::int64_t column_stride = 1;
  auto operator<=>(const Layout&) const = default;
};
struct Problem {
  std::int64_t m = 0, n = 0, k = 0;
  Layout a, b, c;
  DType input = DType::F32;
  DType output = DType::F32;
  bool bias = false;
  bool accumulate = false;
  auto operator<=>(const Problem&) const = default;
};
struct Pointers {
  const void* a = nullptr;
  const void* b = nullptr;
  const void* bias = nullptr;
  void* c = nullptr;
};

Problem problem_of(const LinearForward& op) {
  return {.m = op.shape.tokens,
          .n = op.shape.out_features,
          .k = op.shape.in_features,
          .a = {op.x_stride, 1},
          .b = {1, op.weight_stride},
          .c = {op.y_stride, 1},
          .input = op.dtype,
          .output = op.dtype,
          .bias = op.bias != nullptr};
}
Problem problem_of(const LinearInputGrad& op) {
  return {.m = op.shape.tokens,
          .n = op.shape.in_features,
          .k = op.shape.out_features,
          .a = {op.dy_stride, 1},
          .b = {op.weight_stride, 1},
          .c = {op.dx_stride, 1},
          .input = op.dtype,
          .output = op.dtype};
}
Problem problem_of(const LinearWeightGrad& op) {
  return {.m = op.shape.out_features,
          .n = op.shape.in_features,
          .k = op.shape.tokens,
          .a = {1, op.dy_stride},
          .b = {op.x_stride, 1},
          .c = {op.dweight_stride, 1},
          .input = op.dtype,
          .output = DType::F32,
          .accumulate = op.accumulate};
}

/// A dense matrix in the order of the given one, which may be transposed.
Layout packed(std::int64_t rows, std::int64_t columns, const Layout& layout) {
  return layout.column_stride == 1 ? Layout{columns, 1} : Layout{1, rows};
}

/// The fp32 product that stands for a 16-bit one, and where its operands lie in the scratch.
struct WidenedProblem {
  Problem problem;
  std::int64_t a = 0, b = 0, bias = 0, c = 0;  // bytes; c only if it is rounded afterwards
  std::int64_t rest = 0;                       // what the product itself may use
};

WidenedProblem widened(const Problem& p) {
  constexpr std::int64_t kLine = 64;
  WidenedProblem wide{.problem = p};
  Problem& q = wide.problem;
  q.input = q.output = DType::F32;
  q.a = packed(p.m, p.k, p.a);
  q.b = packed(p.k, p.n, p.b);
  std::int64_t next = 0;
  const auto place = [&](std::int64_t elements) {
    const std::int64_t offset = next;
    next += (elements * size_of(DType::F32) + kLine - 1) / kLine * kLine;
    return offset;
  };
  wide.a = place(p.m * p.k);
  wide.b = place(p.k * p.n);
  wide.bias = place(p.bias ? p.n : 0);
  if (p.output != DType::F32) {
    q.c = {p.n, 1};
    wide.c = place(p.m * p.n);
  }
  wide.rest = next;
  return wide;
}

memory::data_type type_of(DType dtype) {
  require_invariant(dtype == DType::F32 || dtype == DType::BF16, "linear computes in fp32 or bf16");
  return dtype == DType::F32 ? memory::data_type::f32 : memory::data_type::bf16;
}

memory::desc describe(std::int64_t rows, std::int64_t columns, DType dtype, const Layout& layout) {
  return {{rows, columns}, type_of(dtype), {layout.row_stride, layout.column_stride}};
}

/// oneDNN sizes its work by the OpenMP thread count of the calling thread.
class ThreadCount {
 public:
  explicit ThreadCount(int count) : before_(omp_get_max_threads()) { omp_set_num_threads(count); }
  ~ThreadCount() { omp_set_num_threads(before_); }
  ThreadCount(const ThreadCount&) = delete;
  ThreadCount& operator=(const ThreadCount&) = delete;

 private:
  int before_;
};

/// Both gradients in fp32: sgemm is 5 % faster there than the matmul primitive, which reads their
/// second operand unpacked; forward, whose weight is transposed, it packs anyway.
bool uses_sgemm(const Problem& p) {
  return p.input == DType::F32 && !p.bias && p.b.column_stride == 1 && p.b.row_stride >= p.n;
}

void run_sgemm(const Problem& p, const Pointers& pointers) {
  // A matrix of one row has rows that are no further apart than their elements: read it transposed.
  const bool a_is_plain = p.a.column_stride == 1 && p.a.row_stride >= p.k;
  const auto status = dnnl::sgemm(
      a_is_plain ? 'N' : 'T', 'N', p.m, p.n, p.k, 1.0F, static_cast<const float*>(pointers.a),
      a_is_plain ? p.a.row_stride : p.a.column_stride, static_cast<const float*>(pointers.b),
      p.b.row_stride, p.accumulate ? 1.0F : 0.0F, static_cast<float*>(pointers.c), p.c.row_stride);
  require_invariant(status == dnnl::status::success, "sgemm accepts the sizes and strides");
}

/// The result's only column, or the first operand's only row, with elements that lie apart: oneDNN
/// 3.7.2 takes them for dense.
bool has_strided_line(const Problem& p) {
  return (p.n == 1 && p.c.row_stride > 1) || (p.m == 1 && p.a.column_stride > 1);
}

/// Element by element: a result of one line is little work.
void run_line(int num_threads, const Problem& p, const Pointers& pointers) {
  const auto multiply = [&](auto input, auto output) {
    const auto* a = static_cast<const decltype(input)*>(pointers.a);
    const auto* b = static_cast<const decltype(input)*>(pointers.b);
    const auto* bias = static_cast<const decltype(input)*>(pointers.bias);
    auto* c = static_cast<decltype(output)*>(pointers.c);
    parallel_for(num_threads, p.m * p.n, kRowGrain, [&](Range elements, int /*thread*/) {
      for (std::int64_t at = elements.begin; at < elements.end; ++at) {
        const std::int64_t i = at / p.n, j = at % p.n;
        double sum = p.bias ? to_float(bias[j]) : 0.0F;
        for (std::int64_t k = 0; k < p.k; ++k)
          sum += static_cast<double>(to_float(a[i * p.a.row_stride + k * p.a.column_stride])) *
                 static_cast<double>(to_float(b[k * p.b.row_stride + j * p.b.column_stride]));
        auto& element = c[i * p.c.row_stride + j];
        if (p.accumulate) sum += static_cast<double>(to_float(element));
        set(element, static_cast<float>(sum));
      }
    });
  };
  with_float_bits(p.input, [&](auto input) {
    with_float_bits(p.output, [&](auto output) { multiply(input, output); });
  });
}

/// oneDNN takes inputs as mutable pointers and does not write to them.
void* mutable_handle(const void* pointer) {
  return const_cast<void*>(pointer);
}

}  // namespace

class Matmul::Impl {
 public:
  Impl(int num_threads, const KernelTable& table)
      : num_threads_(num_threads),
        table_(table),
        engine_(dnnl::engine::kind::cpu, 0),
        stream_(engine_),
        multiplies_bf16_(has_bf16()) {}

  std::int64_t scratch_bytes(const Problem& problem) {
    if (!is_widened(problem)) return own_scratch_bytes(problem);
    const WidenedProblem wide = widened(problem);
    return wide.rest + own_scratch_bytes(wide.problem);
  }

  void run(const Problem& problem, const Pointers& pointers, std::span<std::byte> scratch) {
    if (is_widened(problem)) {
      run_widened(problem, pointers, scratch);
      return;
    }
    if (uses_sgemm(problem)) {
      const ThreadCount threads(num_threads_);
      run_sgemm(problem, pointers);
      return;
    }
    if (has_strided_line(problem)) {
      run_line(num_threads_, problem, pointers);
      return;
    }
    Primitive& primitive = primitive_of(problem);
    require_invariant(static_cast<std::int64_t>(scratch.size()) >= primitive.scratch_bytes,
                      "set_scratch covers the matrix product's workspace");
    const ThreadCount threads(num_threads_);
    auto& arguments = primitive.arguments;
    arguments.at(DNNL_ARG_SRC).set_data_handle(mutable_handle(pointers.a));
    arguments.at(DNNL_ARG_WEIGHTS).set_data_handle(mutable_handle(pointers.b));
    arguments.at(DNNL_ARG_DST).set_data_handle(pointers.c);
    if (problem.bias) arguments.at(DNNL_ARG_BIAS).set_data_handle(mutable_handle(pointers.bias));
    arguments.at(DNNL_ARG_SCRATCHPAD).set_data_handle(scratch.data());
    execute(primitive);
    stream_.wait();
  }

 private:
  struct Primitive {
    dnnl::matmul matmul;
    std::unordered_map<int, memory> arguments;  // kept: making them allocates
    std::int64_t scratch_bytes = 0;
  };

  /// oneDNN has products in bf16 on processors with AVX-512.
  bool has_bf16() const {
    const auto matrix = describe(1, 1, DType::BF16, {1, 1});
    try {
      describe_matmul(engine_, matrix, matrix, nullptr, matrix, {});
      return true;
    } catch (const dnnl::error&) {
      return false;
    }
  }

  /// Does the product run on operands that are converted to fp32? In fp16 oneDNN has none.
  bool is_widened(const Problem& p) const {
    return p.input == DType::F16 || (p.input == DType::BF16 && !multiplies_bf16_);
  }

  std::int64_t own_scratch_bytes(const Problem& problem) {
    return has_strided_line(problem) ? 0 : primitive_of(problem).scratch_bytes;
  }

  void run_widened(const Problem& p, const Pointers& pointers, std::span<std::byte> scratch) {
    const WidenedProblem wide = widened(p);
    require_invariant(static_cast<std::int64_t>(scratch.size()) >= wide.rest,
                      "set_scratch covers the operands of a 16-bit product");
    auto* a = reinterpret_cast<float*>(scratch.data() + wide.a);
    auto* b = reinterpret_cast<float*>(scratch.data() + wide.b);
    auto* bias = reinterpret_cast<float*>(scratch.data() + wide.bias);
    widen(p.input, p.m, p.k, p.a, pointers.a, a);
    widen(p.input, p.k, p.n, p.b, pointers.b, b);
    if (p.bias) widen(p.input, 1, p.n, {p.n, 1}, pointers.bias, bias);
    const bool rounds = p.output != DType::F32;
    auto* c = rounds ? reinterpret_cast<float*>(scratch.data() + wide.c)
                     : static_cast<float*>(pointers.c);
    run(wide.problem, {a, b, bias, c}, scratch.subspan(static_cast<std::size_t>(wide.rest)));
    if (!rounds) return;
    auto* out = static_cast<std::uint16_t*>(pointers.c);
    for_lines(p.m, p.n, [&](std::int64_t row, Range columns) {
      table_.convert({.count = p.n,
                      .from_dtype = DType::F32,
                      .from = c + row * p.n,
                      .to_dtype = p.output,
                      .to = out + row * p.c.row_stride},
                     columns);
    });
  }

  /// to = the matrix in fp32, packed().
  void widen(DType dtype, std::int64_t rows, std::int64_t columns, const Layout& layout,
             const void* from, float* to) const {
    const bool by_rows = layout.column_stride == 1;
    const std::int64_t lines = by_rows ? rows : columns;
    const std::int64_t length = by_rows ? columns : rows;
    const std::int64_t stride = by_rows ? layout.row_stride : layout.column_stride;
    const auto* source = static_cast<const std::uint16_t*>(from);
    for_lines(lines, length, [&](std::int64_t line, Range part) {
      table_.convert({.count = length,
                      .from_dtype = dtype,
                      .from = source + line * stride,
                      .to_dtype = DType::F32,
                      .to = to + line * length},
                     part);
    });
  }

  template <class Body>
  void for_lines(std::int64_t lines, std::int64_t length, const Body& body) const {
    constexpr std::int64_t kGrain = 16384;  // elements below which a second thread costs more
    parallel_for(num_threads_, lines, kGrain / std::max<std::int64_t>(length, 1) + 1,
                 [&](Range range, int /*thread*/) {
                   for (std::int64_t line = range.begin; line < range.end; ++line)
                     body(line, Range{0, length});
                 });
  }

  /// Not primitive::execute, which puts its arguments into a new vector at every call.
  void execute(Primitive& primitive) {
    constexpr std::size_t kMostArguments = 5;
    std::array<dnnl_exec_arg_t, kMostArguments> list{};
    std::size_t count = 0;
    for (const auto& [name, argument] : primitive.arguments)
      list.at(count++) = {name, argument.get()};
    dnnl::error::wrap_c_api(dnnl_primitive_execute(primitive.matmul.get(), stream_.get(),
                                                   static_cast<int>(count), list.data()),
                            "oneDNN could not run a matrix product");
  }

  Primitive& primitive_of(const Problem& problem) {
    const auto found = primitives_.find(problem);
    return found != primitives_.end() ? found->second
                                      : primitives_.emplace(problem, create(problem)).first->second;
  }

  Primitive create(const Problem& p) {
    const ThreadCount threads(num_threads_);
    const auto a = describe(p.m, p.k, p.input, p.a);
    const auto b = describe(p.k, p.n, p.input, p.b);
    const auto c = describe(p.m, p.n, p.output, p.c);
    const auto bias = describe(1, p.n, p.input, {p.n, 1});
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (p.accumulate) {
      dnnl::post_ops sum;
      sum.append_sum(1.0F);
      attributes.set_post_ops(sum);
    }
    try {
      const auto description =
          describe_matmul(engine_, a, b, p.bias ? &bias : nullptr, c, attributes);
      Primitive result;
      result.matmul = dnnl::matmul(description);
      result.scratch_bytes = static_cast<std::int64_t>(description.scratchpad_desc().get_size());
      const auto add = [&](int name, const memory::desc& desc) {
        result.arguments.emplace(name, memory(desc, engine_, nullptr));
      };
      add(DNNL_ARG_SRC, a);
      add(DNNL_ARG_WEIGHTS, b);
      add(DNNL_ARG_DST, c);
      if (p.bias) add(DNNL_ARG_BIAS, bias);
      add(DNNL_ARG_SCRATCHPAD, description.scratchpad_desc());
      return result;
    } catch (const dnnl::error& error) {
      throw ConfigError(fmt::format(
          "this CPU cannot multiply {} matrices ({} x {} x {}): oneDNN says '{}'; check sizes and "
          "strides",
          name_of(p.input), p.m, p.n, p.k, error.message));
    }
  }

  int num_threads_;
  const KernelTable& table_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  bool multiplies_bf16_;
  std::map<Problem, Primitive> primitives_;
};

Matmul::Matmul(int num_threads, const KernelTable& table)
    : impl_(std::make_unique<Impl>(num_threads, table)) {}
Matmul::~Matmul() = default;

std::int64_t Matmul::scratch_bytes(const LinearForward& op) {
  return impl_->scratch_bytes(problem_of(op));
}
std::int64_t Matmul::scratch_bytes(const LinearInputGrad& op) {
  return impl_->scratch_bytes(problem_of(op));
}
std::int64_t Matmul::scratch_bytes(const LinearWeightGrad& op) {
  return op.dweight != nullptr ? impl_->scratch_bytes(problem_of(op)) : 0;
}

void Matmul::run(const LinearForward& op, std::span<std::byte> scratch) {
  impl_->run(problem_of(op), {op.x, op.weight, op.bias, op.y}, scratch);
}
void Matmul::run(const LinearInputGrad& op, std::span<std::byte> scratch) {
  impl_->run(problem_of(op), {op.dy, op.weight, nullptr, op.dx}, scratch);
}
void Matmul::run(const LinearWeightGrad& op, std::span<std::byte> scratch) {
  impl_->run(problem_of(op), {op.dy, op.x, nullptr, op.dweight}, scratch);
}

}  // namespace meshplan::kernels
