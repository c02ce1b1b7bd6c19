// A step allocates nothing: operator new is counted where our code calls it. What oneDNN allocates
// inside its own library is not ours to change; MPI allocates by malloc, which is not counted.
#include <atomic>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <new>
#include <optional>

#include "comm/host_communicator.hpp"
#include "kernels/cpu_backend.hpp"
#include "mpi_test_session.hpp"
#include "program/lower/lower.hpp"
#include "runtime/first_ranks.hpp"
#include "runtime/parity/parity_support.hpp"
#include "train/trainer.hpp"

namespace {

// operator new takes no argument of ours.
std::atomic<std::int64_t> num_allocations{0};

std::atomic<bool> counting{false};

/// Counts a call of operator new that returns to `caller`, unless that is inside oneDNN.
void count(const void* caller) {
  if (!counting) return;
  Dl_info info{};
  const bool known = dladdr(caller, &info) != 0 && info.dli_fname != nullptr;
  if (!known || std::strstr(info.dli_fname, "libdnnl") == nullptr) ++num_allocations;
}

void* allocate(std::size_t bytes) {
  void* memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void* allocate(std::size_t bytes, std::align_val_t alignment) {
  const auto boundary = static_cast<std::size_t>(alignment);
  void* memory = std::aligned_alloc(boundary, (bytes + boundary - 1) / boundary * boundary);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t bytes) {
  count(__builtin_return_address(0));
  return allocate(bytes);
}
void* operator new[](std::size_t bytes) {
  count(__builtin_return_address(0));
  return allocate(bytes);
}
void* operator new(std::size_t bytes, std::align_val_t a) {
  count(__builtin_return_address(0));
  return allocate(bytes, a);
}
void* operator new[](std::size_t bytes, std::align_val_t a) {
  count(__builtin_return_address(0));
  return allocate(bytes, a);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete[](void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}

namespace meshplan::test {
namespace {

using program::ParallelConfig;
using program::Plan;

constexpr int kWarmupSteps = 3;

runtime::StepBatch make_batch(const Plan& plan) {
  const auto tokens = static_cast<std::size_t>(plan.num_microbatches()) *
                      static_cast<std::size_t>(plan.tokens_per_microbatch());
  runtime::StepBatch batch;
  for (std::size_t i = 0; i < tokens; ++i) {
    batch.ids.push_back(static_cast<std::int32_t>(i * 7 % 256));
    batch.targets.push_back(static_cast<std::int32_t>((i + 1) * 7 % 256));
  }
  return batch;
}

/// Allocations of this rank in a step after warm-up, and in an evaluation.
std::int64_t allocations_of_a_step(const Plan& plan, runtime::Communicator& group) {
  const auto backend = kernels::make_cpu_backend(1);
  runtime::HostDevice device(*backend);
  const int stage = runtime::stage_of(plan, group.rank());
  runtime::Trainer trainer(program::lower(plan, stage),
                           program::lower(plan, stage, program::Pass::ForwardOnly), group, device,
                           1, nullptr);
  const runtime::StepBatch batch = make_batch(plan);
  const auto step = [&](int t) {
    trainer.train_step(batch, {.optimizer_step = t, .learning_rate = 1e-3});
    trainer.evaluate(batch);
  };
  for (int t = 1; t <= kWarmupSteps; ++t) step(t);
  num_allocations = 0;
  counting = true;
  step(kWarmupSteps + 1);
  counting = false;
  return num_allocations;
}

Plan make_plan(const models::ModelSpec& model, const ParallelConfig& parallel) {
  Plan plan;
  plan.model = model;
  plan.workload.seq_len = 32;
  plan.workload.global_batch_size = 8;
  plan.parallel = parallel;
  return plan;
}

}  // namespace

TEST_CASE("a step of one rank allocates nothing", "[allocation]") {
  const auto world = runtime::make_host_world(mpi_session(), {});
  const int self = world->rank();
  const auto alone = world->create_group(std::span(&self, 1), "alone");
  for (const models::ModelSpec& model : {llama_style(), gpt2_style()})
    for (const DType precision : {DType::F32, DType::BF16}) {
      Plan plan = make_plan(model, {});
      plan.workload.precision = precision;
      INFO(model.name << " " << name_of(precision));
      CHECK(allocations_of_a_step(plan, *alone) == 0);
    }
}

TEST_CASE("a step of several ranks allocates nothing", "[allocation]") {
  const auto world = runtime::make_host_world(mpi_session(), {});
  for (const ParallelConfig& parallel :
       {ParallelConfig{.tp = 2}, ParallelConfig{.tp = 2, .sp = true}, ParallelConfig{.pp = 2},
        ParallelConfig{.dp = 2}, ParallelConfig{.tp = 2, .pp = 2}, ParallelConfig{.dp = 4},
        ParallelConfig{.pp = 2, .dp = 2}}) {
    if (parallel.world_size() > world->size()) continue;
    const auto group = first_ranks(*world, parallel.world_size());
    if (group == nullptr) continue;
    const Plan plan = make_plan(llama_style(), parallel);
    INFO(program::to_string(parallel) << " rank " << group->rank());
    CHECK(allocations_of_a_step(plan, *group) == 0);
  }
}

}  // namespace meshplan::test
