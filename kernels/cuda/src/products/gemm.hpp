// Matrix products of one backend: GemmProblem in, work on a stream out. cublas_gemm.cpp implements
// it.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "device/context.hpp"
#include "products/gemm_choices.hpp"
#include "products/gemm_problem.hpp"

namespace meshplan::kernels::cuda {

/// Workspace of any product: what cuBLAS itself takes, 32 MiB from Hopper on, else 4 MiB (cuBLAS
/// library guide, section 2.1.8). A constant, so that a plan's memory does not depend on
/// heuristics.
std::int64_t gemm_workspace_bytes(const Context& context);

struct GemmOptions {
  bool allow_tf32 = false;  // fp32 inputs are rounded to 10 bits of mantissa
  /// Times the best candidates of a problem at its first run and keeps the fastest. A product with
  /// `accumulate` is not timed, since that would change its result. Two processes may then choose
  /// differently, and so give different bits: off where runs are to be repeated exactly.
  bool autotune = false;
  std::function<void(const std::string&)> log;  // one line of a kernel that failed; null = silent
};

/// What try_run does while kernels are chosen.
enum class GemmTuning {
  Off,   // runs the problem
  List,  // notes whether its kernel was chosen; nothing is enqueued
  Time,  // chooses it by its time, if it was not
};

class Gemm {
 public:
  explicit Gemm(const GemmOptions& options);
  ~Gemm();
  Gemm(const Gemm&) = delete;
  Gemm& operator=(const Gemm&) = delete;

  /// False: there is no kernel for this problem; nothing was enqueued, and the answer is kept. All
  /// kernels used sum in a fixed order. Heuristics are asked once per problem and alignment; a
  /// kernel that they offer and that then refuses the problem gives its place to the next one, for
  /// good.
  /// @param workspace  gemm_workspace_bytes(), aligned to 256 bytes
  bool try_run(const Context& context, const GemmProblem& problem, const GemmPointers& pointers,
               std::span<std::byte> workspace);

  /// @throws ConfigError if there is no kernel
  void run(const Context& context, const GemmProblem& problem, const GemmPointers& pointers,
           std::span<std::byte> workspace);

  void set_tuning(GemmTuning tuning);
  /// Was a problem listed since set_tuning(List) whose kernel is not chosen?
  bool misses_choices() const;
  /// Chosen by time, here or elsewhere; they come before what heuristics offer.
  const GemmChoices& choices() const;
  void adopt(const GemmChoices& choices);
  /// "cuBLASLt 130100"
  static std::string library();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace meshplan::kernels::cuda
