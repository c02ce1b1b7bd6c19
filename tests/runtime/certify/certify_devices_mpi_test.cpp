// Twins on a GPU beside one rank on processor cores, the GPU being kernels/cuda under the emulator:
// the kernels agree tensor by tensor, and a GPU whose attention is destroyed does not.
#include <algorithm>
#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <iostream>

#include "certify/certify_twin.hpp"
#include "comm/staging_communicator.hpp"
#include "kernels/cuda_backend.hpp"
#include "runtime/certify/certify.hpp"
#include "runtime/certify/faulty_attention.hpp"
#include "runtime/certify/faulty_communicator.hpp"
#include "runtime/parity/parity_job.hpp"

namespace meshplan::test::certify_devices {
namespace {

using program::Compared;
using program::TwinPrecision;
using program::TwinResult;

/// A preset's plan in bf16: twins of TwinPrecision::Exact are in fp32 all the same.
Plan plan_of(const std::string& preset, const ParallelConfig& parallel = {}) {
  Plan plan = parity_plan(models::load_preset(preset), parallel);
  plan.workload.precision = DType::BF16;
  plan.workload.seq_len = 64;
  return plan;
}

/// Copies within the memory of the emulated GPU, which is the host's, when they are asked for.
class PromptStaging final : public runtime::StagingMemory {
 public:
  explicit PromptStaging(kernels::Backend& backend) : backend_(backend) {}
  void* allocate_host(std::int64_t bytes) override {
    return ::operator new(static_cast<std::size_t>(bytes));
  }
  void free_host(void* memory) noexcept override { ::operator delete(memory); }
  void copy_to_host(void* to, const void* from, std::int64_t bytes, void* /*queue*/) override {
    backend_.copy_to_host(to, from, bytes);
  }
  void copy_to_device(void* to, const void* from, std::int64_t bytes, void* /*queue*/) override {
    backend_.copy_to_device(to, from, bytes);
    backend_.synchronize();
  }
  int mark(void* /*queue*/) override { return 0; }
  bool reached(int /*mark*/) override { return true; }

 private:
  kernels::Backend& backend_;
};

/// A GPU without queues, whose ranks communicate through the host as with --comm mpi.
class EmulatedGpu final : public runtime::Device {
 public:
  explicit EmulatedGpu(AttentionFault fault = AttentionFault::None)
      : backend_(with_faulty_attention(*cuda_, fault)), device_(*backend_) {}

  kernels::Backend& backend() override { return *backend_; }
  runtime::IssueRules rules() const override { return device_.rules(); }
  std::unique_ptr<runtime::Communicator> make_world(runtime::Communicator& host_world) override {
    if (host_world.size() == 1) return nullptr;
    return runtime::make_staging_world(host_world, std::make_shared<PromptStaging>(*backend_));
  }
  void* queue(program::Lane lane) override { return device_.queue(lane); }
  void set_mark(int mark, program::Lane lane) override { device_.set_mark(mark, lane); }
  void wait_mark(int mark, program::Lane lane) override { device_.wait_mark(mark, lane); }
  void upload(void* to, const void* from, std::int64_t bytes, program::Lane lane) override {
    device_.upload(to, from, bytes, lane);
  }
  void begin_capture() override { device_.begin_capture(); }
  std::unique_ptr<runtime::CapturedGraph> end_capture() override { return device_.end_capture(); }
  void synchronize() override { device_.synchronize(); }
  void stamp(int number, program::Lane lane) override { device_.stamp(number, lane); }
  double stamp_seconds(int number) const override { return device_.stamp_seconds(number); }

 private:
  std::unique_ptr<kernels::CudaBackend> cuda_ = kernels::make_cuda_backend(0);
  std::unique_ptr<kernels::Backend> backend_;
  runtime::HostDevice device_;
};

struct DeviceJob : ParityJob {
  DeviceJob() : ParityJob{.steps = 0} {}

  /// All twins of the plan; on rank 0.
  std::vector<TwinResult> certify(const Plan& plan, TwinPrecision precision,
                                  runtime::Device& gpu) const {
    return certify(plan, precision, gpu, *world);
  }
  std::vector<TwinResult> certify(const Plan& plan, TwinPrecision precision, runtime::Device& gpu,
                                  runtime::Communicator& ranks) const {
    return runtime::certify(program::twins_of(plan, precision).twins,
                            {.world = ranks, .device = gpu, .reference = *backend},
                            [](std::size_t) {});
  }
};

/// Prints the furthest gradient: how far a right and a wrong device are from the tolerance.
void print(const std::string& what, const std::vector<TwinResult>& twins) {
  const auto [twin, gradient] = program::furthest_gradient(twins);
  REQUIRE(gradient != nullptr);
  std::cout << fmt::format("{:<44} {:<5} {:<40} {:.1e}, tolerance {:.1e}\n", what,
                           program::precision_name(twins[twin].plan.workload), gradient->name,
                           gradient->difference, gradient->tolerance);
}

/// Does the gradient of a layer's attention, or of the norm before it, differ?
bool blames_attention(const TwinResult& twin) {
  return std::ranges::any_of(twin.compared, [](const Compared& one) {
    return one.what == program::kGradient && !one.agrees() &&
           (one.name.find("self_attn") != std::string::npos ||
            one.name.find("input_layernorm") != std::string::npos);
  });
}

}  // namespace

TEST_CASE("a GPU agrees with a processor tensor by tensor, and not if its attention is destroyed",
          "[certify][one_rank]") {
  const std::pair<AttentionFault, const char*> kFaults[] = {
      {AttentionFault::TinyScale, "attention's scale at 1e-4"},
      {AttentionFault::LostOutputGrad, "attention's output gradient lost"}};
  DeviceJob job;
  REQUIRE(job.world->size() == 1);
  for (const std::string preset : {"tiny-llama", "tiny-gpt2", "tiny-moe"})
    for (const TwinPrecision precision : {TwinPrecision::Exact, TwinPrecision::Own}) {
      EmulatedGpu gpu;
      const std::vector<TwinResult> right = job.certify(plan_of(preset), precision, gpu);
      print(preset, right);
      REQUIRE(right.size() == 1);
      INFO(program::to_json(right));
      CHECK(right.front().agrees());
      CHECK(right.front().device == gpu.backend().name());
      CHECK(right.front().reference == job.backend->name());
      CHECK(right.front().reference_precision == "fp32");
      if (precision == TwinPrecision::Exact)
        CHECK(program::furthest_gradient(right).compared->tolerance <= 1e-5);
      for (const auto& [fault, name] : kFaults) {
        EmulatedGpu faulty(fault);
        const std::vector<TwinResult> wrong = job.certify(plan_of(preset), precision, faulty);
        print(preset + ", " + name, wrong);
        INFO(name);
        CHECK_FALSE(wrong.front().agrees());
        CHECK(blames_attention(wrong.front()));
      }
    }
}

TEST_CASE("what GPUs exchange through the host is checked as it is between processors",
          "[certify][two_ranks]") {
  DeviceJob job;
  REQUIRE(job.world->size() == 2);
  const Plan plan = plan_of("tiny-llama", {.tp = 2, .sp = true});
  FaultState state;
  const auto world = make_faulty_world(*job.world, state);
  EmulatedGpu gpu;
  const std::vector<TwinResult> right = job.certify(plan, TwinPrecision::Exact, gpu, *world);
  const auto call = std::ranges::find_if(state.calls, [](const GroupCall& one) {
    return one.group.starts_with("tp ") && one.operation == CommOp::AllGather;
  });
  REQUIRE(call != state.calls.end());
  state.restart(job.world->rank() == 1 ? std::optional(Fault{.group = call->group,
                                                             .operation = call->operation,
                                                             .change = Fault::Change::Ulp})
                                       : std::nullopt);
  const std::vector<TwinResult> wrong = job.certify(plan, TwinPrecision::Exact, gpu, *world);
  CHECK(state.hits == (job.world->rank() == 1 ? 1 : 0));
  if (job.world->rank() != 0) return;
  INFO(program::to_json(right));
  CHECK(right.front().agrees());
  std::int64_t messages = 0;
  for (const Compared& one : right.front().compared)
    if (one.what == program::kMessage) messages += one.checked;
  CHECK(messages > 100);
  CHECK_FALSE(wrong.front().agrees());
  CHECK(std::ranges::any_of(wrong.front().compared, [](const Compared& one) {
    return one.what == program::kMessage && !one.agrees() && one.name == "all_gather of tp";
  }));
}

}  // namespace meshplan::test::certify_devices
