// Gemm on cuBLASLt.
#include <algorithm>
#include <array>
#include <bit>
#include <fmt/format.h>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "core/index.hpp"
#include "kernels/cuda/handles.hpp"
#include "library/library_checks.hpp"
#include "products/cublas_descriptors.hpp"
#include "products/gemm.hpp"

namespace meshplan::kernels::cuda {

namespace {

constexpr int kCandidates = 8;
constexpr int kAutotuneRepeats = 5;

template <class T>
void set(cublasLtMatmulPreferenceOpaque_t& preference, cublasLtMatmulPreferenceAttributes_t which,
         T value) {
  check(cublasLtMatmulPreferenceSetAttribute(&preference, which, &value, sizeof(value)),
        "cublasLtMatmulPreferenceSetAttribute");
}

/// cuBLASLt's C: what is read if the product is added to something, and must be named in any case.
const void* addend(const GemmProblem& problem, const GemmPointers& pointers) {
  return problem.adds_residual ? pointers.c : pointers.d;
}

cublasLtMatmulPreferenceOpaque_t preference_of(const Context& context, const GemmProblem& problem,
                                               const GemmPointers& pointers) {
  cublasLtMatmulPreferenceOpaque_t preference{};
  check(cublasLtMatmulPreferenceInit(&preference), "cublasLtMatmulPreferenceInit");
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
      static_cast<std::uint64_t>(gemm_workspace_bytes(context)));
  // Split-k may reduce through the workspace in fp32, in a step of its own; not in the output's
  // type, which would round in between.
  set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  const auto align = [&](cublasLtMatmulPreferenceAttributes_t which, const void* data,
                         const GemmMatrix& matrix) {
    set(preference, which,
        static_cast<std::uint32_t>(gemm_alignment(data, matrix.leading_dim, matrix.dtype)));
  };
  align(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, pointers.a, problem.a);
  align(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, pointers.b, problem.b);
  align(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, addend(problem, pointers), problem.d);
  align(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, pointers.d, problem.d);
  return preference;
}

/// Says a status that the kernel cannot do this, rather than that something is broken?
bool is_refusal(cublasStatus_t status) {
  return status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE ||
         status == CUBLAS_STATUS_ARCH_MISMATCH || status == CUBLAS_STATUS_INTERNAL_ERROR;
}

}  // namespace

class Gemm::Impl {
 public:
  explicit Impl(const GemmOptions& options) : options_(options) {}

  bool try_run(const Context& context, const GemmProblem& problem, const GemmPointers& pointers,
               std::span<std::byte> workspace) {
    if (tuning_ != GemmTuning::Off) return tune(context, problem, pointers, workspace);
    Choice& choice = choice_of(context, problem, pointers, workspace);
    while (!choice.algorithms.empty()) {
      if (enqueue(context, choice.descriptors, problem, pointers, choice.algorithms.front(),
                  workspace))
        return true;
      choice.algorithms.erase(choice.algorithms.begin());
    }
    return false;
  }

  void set_tuning(GemmTuning tuning) {
    tuning_ = tuning;
    if (tuning == GemmTuning::List) misses_choices_ = false;
  }
  bool misses_choices() const { return misses_choices_; }
  const GemmChoices& choices() const { return chosen_; }
  void adopt(const GemmChoices& choices) {
    chosen_.of_problem.insert(choices.of_problem.begin(), choices.of_problem.end());
    choices_.clear();  // and with them the orders that these decide
  }

 private:
  /// Alignment decides which kernels are possible; so it is part of what a choice is kept for.
  struct Key {
    GemmProblem problem;
    std::int64_t a_alignment, b_alignment, c_alignment, d_alignment, vector_alignment,
        aux_alignment;
    auto operator<=>(const Key&) const = default;
  };
  struct Choice {
    GemmDescriptors descriptors;
    std::vector<cublasLtMatmulAlgo_t> algorithms;  // best first; none: not supported
  };

  /// GemmTuning::List and Time. False: there is no kernel.
  bool tune(const Context& context, const GemmProblem& problem, const GemmPointers& pointers,
            std::span<std::byte> workspace);
  std::string words_of(const Key& key) const;
  Key key_of(const GemmProblem& problem, const GemmPointers& pointers) const;
  Choice& choice_of(const Context& context, const GemmProblem& problem,
                    const GemmPointers& pointers, std::span<std::byte> workspace);
  /// What cuBLASLt offers, its first choice first.
  std::vector<cublasLtMatmulAlgo_t> candidates(const Context& context, const GemmProblem& problem,
                                               const GemmPointers& pointers);
  /// Those that run, by their time.
  std::vector<cublasLtMatmulAlgo_t> timed(const Context& context, GemmDescriptors& descriptors,
                                          const GemmProblem& problem, const GemmPointers& pointers,
                                          const std::vector<cublasLtMatmulAlgo_t>& candidates,
                                          std::span<std::byte> workspace);
  /// False: the kernel refused.
  bool enqueue(const Context& context, GemmDescriptors& descriptors, const GemmProblem& problem,
               const GemmPointers& pointers, const cublasLtMatmulAlgo_t& algorithm,
               std::span<std::byte> workspace);
  cublasLtHandle_t handle();

  struct HandleTraits {
    using Handle = cublasLtHandle_t;
    static Handle null() noexcept { return nullptr; }
    static void destroy(Handle handle) noexcept { cublasLtDestroy(handle); }
  };
  GemmOptions options_;
  UniqueHandle<HandleTraits> handle_;  // made at the first product
  std::map<Key, Choice> choices_;
  GemmTuning tuning_ = GemmTuning::Off;
  bool misses_choices_ = false;
  GemmChoices chosen_;
};

static_assert(sizeof(GemmAlgorithm) == sizeof(cublasLtMatmulAlgo_t));

cublasLtHandle_t Gemm::Impl::handle() {
  if (handle_.get() == nullptr) {
    cublasLtHandle_t handle = nullptr;
    check(cublasLtCreate(&handle), "cublasLtCreate");
    handle_ = UniqueHandle<HandleTraits>(handle);
  }
  return handle_.get();
}

std::vector<cublasLtMatmulAlgo_t> Gemm::Impl::candidates(const Context& context,
                                                         const GemmProblem& problem,
                                                         const GemmPointers& pointers) {
  GemmDescriptors descriptors = describe(problem, options_.allow_tf32);
  set_pointers(descriptors, problem, pointers);
  auto preference = preference_of(context, problem, pointers);
  std::array<cublasLtMatmulHeuristicResult_t, kCandidates> results{};
  int count = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      handle(), &descriptors.operation, &descriptors.a, &descriptors.b, &descriptors.d,
      &descriptors.d, &preference, kCandidates, results.data(), &count);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) return {};
  check(status, ("cublasLtMatmulAlgoGetHeuristic for " + describe_in_words(problem)).c_str());
  std::vector<cublasLtMatmulAlgo_t> algorithms;
  for (const auto& result : std::span(results).first(at(count)))
    if (result.state == CUBLAS_STATUS_SUCCESS) algorithms.push_back(result.algo);
  return algorithms;
}

bool Gemm::Impl::enqueue(const Context& context, GemmDescriptors& descriptors,
                         const GemmProblem& problem, const GemmPointers& pointers,
                         const cublasLtMatmulAlgo_t& algorithm, std::span<std::byte> workspace) {
  const float alpha = 1.0F;
  const float beta = reads_addend(problem) ? 1.0F : 0.0F;
  set_pointers(descriptors, problem, pointers);
  const cublasStatus_t status = cublasLtMatmul(
      handle(), &descriptors.operation, &alpha, pointers.a, &descriptors.a, pointers.b,
      &descriptors.b, &beta, addend(problem, pointers), &descriptors.d, pointers.d, &descriptors.d,
      &algorithm, workspace.data(), workspace.size(), context.stream);
  if (is_refusal(status)) {
    if (options_.log)
      options_.log(fmt::format("a kernel that cuBLASLt offers for {} fails: {}",
                               describe_in_words(problem), cublasLtGetStatusName(status)));
    return false;
  }
  check(status, ("cublasLtMatmul of " + describe_in_words(problem)).c_str());
  return true;
}

std::vector<cublasLtMatmulAlgo_t> Gemm::Impl::timed(
    const Context& context, GemmDescriptors& descriptors, const GemmProblem& problem,
    const GemmPointers& pointers, const std::vector<cublasLtMatmulAlgo_t>& candidates,
    std::span<std::byte> workspace) {
  const Event begin = make_event(EventTiming::On);
  const Event end = make_event(EventTiming::On);
  std::vector<std::pair<float, const cublasLtMatmulAlgo_t*>> medians;
  for (const cublasLtMatmulAlgo_t& candidate : candidates) {
    if (!enqueue(context, descriptors, problem, pointers, candidate, workspace)) continue;
    std::array<float, kAutotuneRepeats> times{};
    for (float& ms : times) {
      check(cudaEventRecord(begin.get(), context.stream), "cudaEventRecord");
      enqueue(context, descriptors, problem, pointers, candidate, workspace);
      check(cudaEventRecord(end.get(), context.stream), "cudaEventRecord");
      check(cudaEventSynchronize(end.get()), "cudaEventSynchronize");
      check(cudaEventElapsedTime(&ms, begin.get(), end.get()), "cudaEventElapsedTime");
    }
    std::ranges::sort(times);
    medians.emplace_back(times.at(kAutotuneRepeats / 2), &candidate);
  }
  std::ranges::stable_sort(medians, {}, [](const auto& one) { return one.first; });
  std::vector<cublasLtMatmulAlgo_t> sorted;
  for (const auto& [ms, candidate] : medians) sorted.push_back(*candidate);
  return sorted;
}

Gemm::Impl::Key Gemm::Impl::key_of(const GemmProblem& problem, const GemmPointers& pointers) const {
  const auto aligned = [](const void* data, const GemmMatrix& matrix) {
    return gemm_alignment(data, matrix.leading_dim, matrix.dtype);
  };
  const GemmMatrix aux{.leading_dim = problem.aux_leading_dim, .dtype = problem.d.dtype};
  return {.problem = problem,
          .a_alignment = aligned(pointers.a, problem.a),
          .b_alignment = aligned(pointers.b, problem.b),
          .c_alignment = problem.adds_residual ? aligned(pointers.c, problem.d) : 0,
          .d_alignment = aligned(pointers.d, problem.d),
          .vector_alignment = has_vector(problem.epilogue)
                                  ? aligned(pointers.vector, {.dtype = problem.d.dtype})
                                  : 0,
          .aux_alignment = has_aux(problem.epilogue) ? aligned(pointers.aux, aux) : 0};
}

std::string Gemm::Impl::words_of(const Key& key) const {
  const GemmProblem& p = key.problem;
  return fmt::format("{}{} ld {} {} {} {} align {} {} {} {} {} {}", describe_in_words(p),
                     options_.allow_tf32 ? " tf32" : "", p.a.leading_dim, p.b.leading_dim,
                     p.d.leading_dim, p.aux_leading_dim, key.a_alignment, key.b_alignment,
                     key.c_alignment, key.d_alignment, key.vector_alignment, key.aux_alignment);
}

Gemm::Impl::Choice& Gemm::Impl::choice_of(const Context& context, const GemmProblem& problem,
                                          const GemmPointers& pointers,
                                          std::span<std::byte> workspace) {
  const Key key = key_of(problem, pointers);
  const auto found = choices_.find(key);
  if (found != choices_.end()) return found->second;
  Choice choice{.descriptors = describe(problem, options_.allow_tf32),
                .algorithms = candidates(context, problem, pointers)};
  const bool repeats = !problem.accumulate && addend(problem, pointers) != pointers.d;
  if (options_.autotune && (repeats || !reads_addend(problem)))
    choice.algorithms =
        timed(context, choice.descriptors, problem, pointers, choice.algorithms, workspace);
  const auto chosen = chosen_.of_problem.find(words_of(key));
  if (chosen != chosen_.of_problem.end())
    choice.algorithms.insert(choice.algorithms.begin(),
                             std::bit_cast<cublasLtMatmulAlgo_t>(chosen->second));
  return choices_.emplace(key, std::move(choice)).first->second;
}

bool Gemm::Impl::tune(const Context& context, const GemmProblem& problem,
                      const GemmPointers& pointers, std::span<std::byte> workspace) {
  const std::string words = words_of(key_of(problem, pointers));
  if (chosen_.of_problem.contains(words)) return true;
  Choice& choice = choice_of(context, problem, pointers, workspace);
  if (choice.algorithms.empty()) return false;
  if (tuning_ == GemmTuning::List) {
    misses_choices_ = true;
    return true;
  }
  choice.algorithms =
      timed(context, choice.descriptors, problem, pointers, choice.algorithms, workspace);
  if (choice.algorithms.empty()) return false;
  chosen_.of_problem.emplace(words, std::bit_cast<GemmAlgorithm>(choice.algorithms.front()));
  return true;
}

std::int64_t gemm_workspace_bytes(const Context& context) {
  return std::int64_t{context.compute_capability >= 90 ? 32 : 4} << 20;
}

Gemm::Gemm(const GemmOptions& options) : impl_(std::make_unique<Impl>(options)) {}
Gemm::~Gemm() = default;

bool Gemm::try_run(const Context& context, const GemmProblem& problem, const GemmPointers& pointers,
                   std::span<std::byte> workspace) {
  return impl_->try_run(context, problem, pointers, workspace);
}

void Gemm::set_tuning(GemmTuning tuning) {
  impl_->set_tuning(tuning);
}
bool Gemm::misses_choices() const {
  return impl_->misses_choices();
}
const GemmChoices& Gemm::choices() const {
  return impl_->choices();
}
void Gemm::adopt(const GemmChoices& choices) {
  impl_->adopt(choices);
}
std::string Gemm::library() {
  return fmt::format("cuBLASLt {}", cublasLtGetVersion());
}

void Gemm::run(const Context& context, const GemmProblem& problem, const GemmPointers& pointers,
               std::span<std::byte> workspace) {
  if (!try_run(context, problem, pointers, workspace))
    throw ConfigError(fmt::format("cuBLASLt has no kernel on sm_{} for {}",
                                  context.compute_capability, describe_in_words(problem)));
}

}  // namespace meshplan::kernels::cuda
