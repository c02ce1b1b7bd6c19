#include "runtime/certify/faulty_attention.hpp"

#include <variant>

namespace meshplan::test {
namespace {

constexpr float kTinyScale = 1e-4F;

class FaultyAttention final : public kernels::Backend {
 public:
  FaultyAttention(kernels::Backend& inner, AttentionFault fault) : inner_(inner), fault_(fault) {}
  ~FaultyAttention() override {
    if (zeros_ != nullptr) inner_.free(zeros_);
  }

  std::string name() const override { return inner_.name(); }
  int num_threads() const override { return inner_.num_threads(); }
  void* allocate(std::int64_t bytes) override { return inner_.allocate(bytes); }
  void free(void* memory) noexcept override { inner_.free(memory); }
  void copy(void* to, const void* from, std::int64_t bytes) override {
    inner_.copy(to, from, bytes);
  }
  void copy_to_device(void* to, const void* from_host, std::int64_t bytes) override {
    inner_.copy_to_device(to, from_host, bytes);
  }
  void copy_to_host(void* to_host, const void* from, std::int64_t bytes) override {
    inner_.copy_to_host(to_host, from, bytes);
  }
  void zero(void* memory, std::int64_t bytes) override { inner_.zero(memory, bytes); }
  void synchronize() override { inner_.synchronize(); }
  bool reads_group_offsets() const override { return inner_.reads_group_offsets(); }
  std::int64_t scratch_bytes(const kernels::Operation& op) override {
    return inner_.scratch_bytes(op);
  }
  void set_scratch(void* memory, std::int64_t bytes) override { inner_.set_scratch(memory, bytes); }

  void run(const kernels::Operation& op) override {
    kernels::Operation wrong = op;
    if (auto* forward = std::get_if<kernels::AttentionForward>(&wrong)) spoil(*forward);
    if (auto* backward = std::get_if<kernels::AttentionBackward>(&wrong)) spoil(*backward);
    inner_.run(wrong);
  }

 private:
  void spoil(kernels::AttentionForward& forward) const {
    if (fault_ == AttentionFault::TinyScale) forward.shape.scale *= kTinyScale;
  }
  void spoil(kernels::AttentionBackward& backward) {
    if (fault_ == AttentionFault::TinyScale) backward.shape.scale *= kTinyScale;
    if (fault_ == AttentionFault::LostOutputGrad) backward.output_grad = zeros_like(backward);
  }
  /// As many as the output has, with its stride.
  const void* zeros_like(const kernels::AttentionBackward& backward) {
    const kernels::AttentionShape& shape = backward.shape;
    const std::int64_t bytes =
        shape.num_sequences * shape.query_len * backward.o_stride * size_of(backward.dtype);
    if (bytes > bytes_) {
      if (zeros_ != nullptr) inner_.free(zeros_);
      zeros_ = inner_.allocate(bytes);
      bytes_ = bytes;
    }
    return zeros_;
  }

  kernels::Backend& inner_;
  AttentionFault fault_;
  void* zeros_ = nullptr;
  std::int64_t bytes_ = 0;
};

}  // namespace

std::unique_ptr<kernels::Backend> with_faulty_attention(kernels::Backend& inner,
                                                        AttentionFault fault) {
  return std::make_unique<FaultyAttention>(inner, fault);
}

}  // namespace meshplan::test
