#include "runtime/execute/virtual_gpu.hpp"

#include <cstdlib>
#include <cstring>

#include "comm/staging_communicator.hpp"

namespace meshplan::test {

class VirtualBackend final : public kernels::Backend {
 public:
  explicit VirtualBackend(VirtualGpu& gpu) : gpu_(gpu) {}

  std::string name() const override { return "virtual"; }
  int num_threads() const override { return 1; }
  void* allocate(std::int64_t bytes) override {
    return std::aligned_alloc(4096, static_cast<std::size_t>((bytes + 4095) / 4096 * 4096));
  }
  void free(void* memory) noexcept override { std::free(memory); }
  void copy(void* /*to*/, const void* /*from*/, std::int64_t bytes) override {
    gpu_.spend(gpu_.launch() + gpu_.costs().seconds_per_copied_byte * static_cast<double>(bytes));
  }
  void copy_to_device(void* /*to*/, const void* /*from*/, std::int64_t /*bytes*/) override {}
  void copy_to_host(void* /*to*/, const void* /*from*/, std::int64_t /*bytes*/) override {}
  void zero(void* /*memory*/, std::int64_t /*bytes*/) override {}
  void synchronize() override {}
  std::int64_t scratch_bytes(const kernels::Operation& /*op*/) override { return 0; }
  void set_scratch(void* /*memory*/, std::int64_t /*bytes*/) override {}

  /// A launch, and the arithmetic of a layer's forward product.
  void run(const kernels::Operation& operation) override {
    double flops = 0;
    if (const auto* linear = std::get_if<kernels::LinearForward>(&operation))
      flops = 2.0 * static_cast<double>(linear->shape.tokens) *
              static_cast<double>(linear->shape.in_features) *
              static_cast<double>(linear->shape.out_features);
    gpu_.spend(gpu_.launch() + gpu_.costs().seconds_per_flop * flops);
  }

 private:
  VirtualGpu& gpu_;
};

namespace {

/// Pinned memory whose copies only take time.
class VirtualStaging final : public runtime::StagingMemory {
 public:
  explicit VirtualStaging(VirtualGpu& gpu) : gpu_(gpu) {}
  void* allocate_host(std::int64_t bytes) override {
    return std::malloc(static_cast<std::size_t>(bytes));
  }
  void free_host(void* memory) noexcept override { std::free(memory); }
  void copy_to_host(void* /*to*/, const void* /*from*/, std::int64_t bytes,
                    void* /*queue*/) override {
    spend(bytes);
  }
  void copy_to_device(void* /*to*/, const void* /*from*/, std::int64_t bytes,
                      void* /*queue*/) override {
    spend(bytes);
  }
  int mark(void* /*queue*/) override { return 0; }
  bool reached(int /*mark*/) override { return true; }

 private:
  void spend(std::int64_t bytes) {
    gpu_.spend(gpu_.launch() + gpu_.costs().seconds_per_host_byte * static_cast<double>(bytes));
  }
  VirtualGpu& gpu_;
};

class VirtualGraph final : public runtime::CapturedGraph {
 public:
  VirtualGraph(VirtualGpu& gpu, double seconds) : gpu_(gpu), seconds_(seconds) {}
  void replay() override { gpu_.replay(seconds_); }

 private:
  VirtualGpu& gpu_;
  double seconds_;
};

}  // namespace

VirtualGpu::VirtualGpu(const VirtualCosts& costs, bool capture)
    : costs_(costs), capture_(capture), backend_(std::make_unique<VirtualBackend>(*this)) {}
VirtualGpu::~VirtualGpu() = default;

kernels::Backend& VirtualGpu::backend() {
  return *backend_;
}
std::shared_ptr<runtime::StagingMemory> VirtualGpu::make_staging() {
  return std::make_shared<VirtualStaging>(*this);
}
void VirtualGpu::spend(double seconds) {
  (capturing_ ? captured_ : now_) += seconds;
}
void VirtualGpu::begin_capture() {
  capturing_ = true;
  captured_ = 0;
}
std::unique_ptr<runtime::CapturedGraph> VirtualGpu::end_capture() {
  capturing_ = false;
  auto graph = std::make_unique<VirtualGraph>(*this, captured_);
  graph->replay();
  return graph;
}
void VirtualGpu::replay(double captured) {
  ++replayed_;
  now_ += captured;
}
void VirtualGpu::stamp(int number, program::Lane /*lane*/) {
  const auto index = static_cast<std::size_t>(number);
  if (index >= stamps_.size()) stamps_.resize(index + 1);
  stamps_[index] = now_;
}
double VirtualGpu::stamp_seconds(int number) const {
  return stamps_[static_cast<std::size_t>(number)];
}

}  // namespace meshplan::test
