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
  std::int64_t scratch_bytes(const kernels::LinearForward& /*op*/) override { return 0; }
  std::int64_t scratch_bytes(const kernels::LinearInputGrad& /*op*/) override { return 0; }
  std::int64_t scratch_bytes(const kernels::LinearWeightGrad& /*op*/) override { return 0; }
  std::int64_t scratch_bytes(const kernels::AttentionForward& /*op*/) override { return 0; }
  std::int64_t scratch_bytes(const kernels::AttentionBackward& /*op*/) override { return 0; }
  std::int64_t scratch_bytes(const kernels::SquaredNorm& /*op*/) override { return 0; }
  void set_scratch(void* /*memory*/, std::int64_t /*bytes*/) override {}

  void run(const kernels::LinearForward& op) override {
    const double flops = 2.0 * static_cast<double>(op.shape.tokens) *
                         static_cast<double>(op.shape.in_features) *
                         static_cast<double>(op.shape.out_features);
    gpu_.spend(gpu_.launch() + gpu_.costs().seconds_per_flop * flops);
  }
  void run(const kernels::LinearInputGrad& /*op*/) override { gpu_.spend(gpu_.launch()); }
  void run(const kernels::LinearWeightGrad& /*op*/) override { gpu_.spend(gpu_.launch()); }
  void run(const kernels::GroupedLinearForward& /*op*/) override { gpu_.spend(gpu_.launch()); }
  void run(const kernels::GroupedLinearInputGrad& /*op*/) override { gpu_.spend(gpu_.launch()); }
  void run(const kernels::GroupedLinearWeightGrad& /*op*/) override { gpu_.spend(gpu_.launch()); }
  void run(const kernels::HeadRmsNormForward& /*op*/) override { gpu_.spend(gpu_.launch()); }
  void run(const kernels::HeadRmsNormBackward& /*op*/) override { gpu_.spend(gpu_.launch()); }
  void run(const kernels::CopyRows& /*op*/) override { gpu_.spend(gpu_.launch()); }
  void run(const kernels::AttentionForward& /*op*/) override { gpu_.spend(gpu_.launch()); }
  void run(const kernels::AttentionBackward& /*op*/) override { gpu_.spend(gpu_.launch()); }
  void run(const kernels::RmsNormForward& /*op*/) override { gpu_.spend(gpu_.launch()); }
  void run(const kernels::RmsNormBackward& /*op*/) override { gpu_.spend(gpu_.launch()); }
  void run(const kernels::LayerNormForward& /*op*/) override { gpu_.spend(gpu_.launch()); }
  void run(const kernels::LayerNormBackward& /*op*/) override { gpu_.spend(gpu_.launch()); }
  void run(const kernels::Rope& /*op*/) override { gpu_.spend(gpu_.launch()); }
  void run(const kernels::ActivationForward& /*op*/) override { gpu_.spend(gpu_.launch()); }
  void run(const kernels::ActivationBackward& /*op*/) override { gpu_.spend(gpu_.launch()); }
  void run(const kernels::GatedActivationForward& /*op*/) override { gpu_.spend(gpu_.launch()); }
  void run(const kernels::GatedActivationBackward& /*op*/) override { gpu_.spend(gpu_.launch()); }
  void run(const kernels::Add& /*op*/) override { gpu_.spend(gpu_.launch()); }
  void run(const kernels::Accumulate& /*op*/) override { gpu_.spend(gpu_.launch()); }
  void run(const kernels::Scale& /*op*/) override { gpu_.spend(gpu_.launch()); }
  void run(const kernels::Fill& /*op*/) override { gpu_.spend(gpu_.launch()); }
  void run(const kernels::Convert& /*op*/) override { gpu_.spend(gpu_.launch()); }
  void run(const kernels::EmbeddingForward& /*op*/) override { gpu_.spend(gpu_.launch()); }
  void run(const kernels::EmbeddingBackward& /*op*/) override { gpu_.spend(gpu_.launch()); }
  void run(const kernels::PositionEmbeddingForward& /*op*/) override { gpu_.spend(gpu_.launch()); }
  void run(const kernels::PositionEmbeddingBackward& /*op*/) override { gpu_.spend(gpu_.launch()); }
  void run(const kernels::CrossEntropyLocal& /*op*/) override { gpu_.spend(gpu_.launch()); }
  void run(const kernels::CrossEntropyCombine& /*op*/) override { gpu_.spend(gpu_.launch()); }
  void run(const kernels::CrossEntropyBackward& /*op*/) override { gpu_.spend(gpu_.launch()); }
  void run(const kernels::SumLoss& /*op*/) override { gpu_.spend(gpu_.launch()); }
  void run(const kernels::AdamStep& /*op*/) override { gpu_.spend(gpu_.launch()); }
  void run(const kernels::SgdStep& /*op*/) override { gpu_.spend(gpu_.launch()); }
  void run(const kernels::SquaredNorm& /*op*/) override { gpu_.spend(gpu_.launch()); }
  void run(const kernels::ClipCoefficient& /*op*/) override { gpu_.spend(gpu_.launch()); }
  void run(const kernels::RandomNormal& /*op*/) override { gpu_.spend(gpu_.launch()); }
  void run(const kernels::RouterForward& /*op*/) override { gpu_.spend(gpu_.launch()); }
  void run(const kernels::RouterBackward& /*op*/) override { gpu_.spend(gpu_.launch()); }
  void run(const kernels::DispatchPlan& /*op*/) override { gpu_.spend(gpu_.launch()); }
  void run(const kernels::DispatchForward& /*op*/) override { gpu_.spend(gpu_.launch()); }
  void run(const kernels::DispatchBackward& /*op*/) override { gpu_.spend(gpu_.launch()); }
  void run(const kernels::CombineForward& /*op*/) override { gpu_.spend(gpu_.launch()); }
  void run(const kernels::CombineBackward& /*op*/) override { gpu_.spend(gpu_.launch()); }
  void run(const kernels::ExpertCounts& /*op*/) override { gpu_.spend(gpu_.launch()); }
  void run(const kernels::ExchangeSizes& /*op*/) override { gpu_.spend(gpu_.launch()); }
  void run(const kernels::RegroupRows& /*op*/) override { gpu_.spend(gpu_.launch()); }
  void run(const kernels::AttentionSinksGrad& /*op*/) override { gpu_.spend(gpu_.launch()); }
  void run(const kernels::AttentionMerge& /*op*/) override { gpu_.spend(gpu_.launch()); }
  void run(const kernels::QuantizeInt8& /*op*/) override { gpu_.spend(gpu_.launch()); }
  void run(const kernels::DequantizeInt8& /*op*/) override { gpu_.spend(gpu_.launch()); }
  void run(const kernels::TopKSelect& /*op*/) override { gpu_.spend(gpu_.launch()); }
  void run(const kernels::TopKScatterAdd& /*op*/) override { gpu_.spend(gpu_.launch()); }
  void run(const kernels::SettleErrors& /*op*/) override { gpu_.spend(gpu_.launch()); }
  void run(const kernels::QuantizeFloat8& /*op*/) override { gpu_.spend(gpu_.launch()); }
  void run(const kernels::ScaledProduct& /*op*/) override { gpu_.spend(gpu_.launch()); }

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
