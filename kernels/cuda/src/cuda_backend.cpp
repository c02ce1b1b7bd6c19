#include "cuda_backend.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <functional>
#include <vector>

#include "attention/operators.hpp"
#include "device/row_ranges.hpp"
#include "elementwise/operators.hpp"
#include "embeddings/operators.hpp"
#include "experts/operators.hpp"
#include "mixers/operators.hpp"
#include "norms/operators.hpp"
#include "products/operators.hpp"
#include "training/operators.hpp"

namespace meshplan::kernels {

namespace cuda {

namespace {

constexpr std::size_t kPage = 4096;

int attribute(cudaDeviceAttr which, int device) {
  int value = 0;
  check(cudaDeviceGetAttribute(&value, which, device), "cudaDeviceGetAttribute");
  return value;
}

void* allocate_bytes(std::size_t bytes) {
  void* memory = nullptr;
  const cudaError_t status = cudaMalloc(&memory, bytes);
  if (status != cudaSuccess) check(status, fmt::format("cudaMalloc of {} bytes", bytes).c_str());
  return memory;
}

}  // namespace

void require_scratch(const Context& context, std::int64_t bytes) {
  if (static_cast<std::int64_t>(context.scratch.size()) >= bytes) return;
  throw InvariantError(fmt::format("the operation needs {} bytes of scratch, set_scratch gave {}",
                                   bytes, context.scratch.size()));
}

/// Runs the products' operations while their Gemm only lists or times them.
class StreamBackend::Tuning final : public ProductTuning {
 public:
  explicit Tuning(StreamBackend& backend) : backend_(backend) {}

  void note(std::function<void()> product) { products_.push_back(std::move(product)); }

  std::string subject() const override {
    return fmt::format("{}, {} SMs, {}", backend_.name(), backend_.context_.num_sms,
                       Gemm::library());
  }
  bool misses_choices() override {
    run_all(GemmTuning::List);
    return gemm().misses_choices();
  }
  void time_products() override { run_all(GemmTuning::Time); }
  std::string choices() const override {
    GemmChoices all = gemm().choices();
    all.subject = subject();
    return to_text(all);
  }
  std::string adopt(const std::string& choices) override {
    GemmChoices found;
    std::string error = parse_gemm_choices(choices, subject(), found);
    if (error.empty()) gemm().adopt(found);
    return error;
  }

 private:
  Gemm& gemm() const { return backend_.linear_.gemm(); }
  void run_all(GemmTuning tuning) {
    gemm().set_tuning(tuning);
    for (const std::function<void()>& product : products_) product();
    backend_.synchronize();
    gemm().set_tuning(GemmTuning::Off);
  }

  StreamBackend& backend_;
  std::vector<std::function<void()>> products_;
};

ProductTuning* StreamBackend::product_tuning() {
  return tuning_.get();
}

template <class Op>
void StreamBackend::note_product(const Op& op) {
  if (tuning_ != nullptr) tuning_->note([this, op] { linear_.run(context_, op); });
}

StreamBackend::StreamBackend(int device_index, const CudaBackendOptions& options)
    : linear_({.allow_tf32 = options.allow_tf32,
               .autotune = options.autotune_gemm,
               .log = options.log}),
      attention_(options.attention, options.log) {
  context_.device = device_index;
  use_device();
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device_index), "cudaGetDeviceProperties");
  device_name_ = properties.name;
  context_.num_sms = properties.multiProcessorCount;
  context_.compute_capability = 10 * properties.major + properties.minor;
  context_.max_shared_bytes = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, device_index);
  if (options.tune_products) tuning_ = std::make_unique<Tuning>(*this);
  if (options.stream == nullptr) own_stream_ = make_stream();
  context_.stream = options.stream != nullptr ? options.stream : own_stream_.get();
  constexpr std::size_t kTicketBytes = kTickets * sizeof(unsigned);
  tickets_.reset(static_cast<unsigned*>(allocate_bytes(kTicketBytes)));
  context_.tickets = tickets_.get();
  check(cudaMemsetAsync(context_.tickets, 0, kTicketBytes, context_.stream), "cudaMemsetAsync");
}

void StreamBackend::FreeMemory::operator()(unsigned* memory) const noexcept {
  cudaFree(memory);
}

StreamBackend::~StreamBackend() {
  for (const auto& [aligned, base] : allocations_) cudaFree(base);
}

void StreamBackend::use_device() const {
  check(cudaSetDevice(context_.device), "cudaSetDevice");
}

std::string StreamBackend::name() const {
  return fmt::format("cuda {} sm_{}", device_name_, context_.compute_capability);
}

void* StreamBackend::allocate(std::int64_t bytes) {
  use_device();
  const auto size = static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1));
  void* base = allocate_bytes(size);
  void* memory = base;
  // cudaMalloc promises 256 bytes; in practice a MiB and more is aligned to 2 MiB.
  if (reinterpret_cast<std::uintptr_t>(base) % kPage != 0) {
    check(cudaFree(base), "cudaFree");
    base = allocate_bytes(size + kPage);
    const auto address = reinterpret_cast<std::uintptr_t>(base);
    memory = reinterpret_cast<void*>((address + kPage - 1) / kPage * kPage);
  }
  allocations_.emplace(memory, base);
  zero(memory, bytes);
  return memory;
}

void StreamBackend::free(void* memory) noexcept {
  const auto found = allocations_.find(memory);
  if (found == allocations_.end()) return;  // null
  cudaFree(found->second);
  allocations_.erase(found);
}

// Either side may be pinned memory of the host (Device::allocate_host): unified addresses tell.
void StreamBackend::copy(void* to, const void* from, std::int64_t bytes) {
  use_device();
  check(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDefault,
                        context_.stream),
        "cudaMemcpyAsync");
}

void StreamBackend::copy_to_device(void* to, const void* from_host, std::int64_t bytes) {
  use_device();
  check(cudaMemcpyAsync(to, from_host, static_cast<std::size_t>(bytes), cudaMemcpyDefault,
                        context_.stream),
        "cudaMemcpyAsync to the device");
}

void StreamBackend::copy_to_host(void* to_host, const void* from, std::int64_t bytes) {
  use_device();
  check(cudaMemcpyAsync(to_host, from, static_cast<std::size_t>(bytes), cudaMemcpyDefault,
                        context_.stream),
        "cudaMemcpyAsync to the host");
  synchronize();
}

void StreamBackend::zero(void* memory, std::int64_t bytes) {
  use_device();
  check(cudaMemsetAsync(memory, 0, static_cast<std::size_t>(bytes), context_.stream),
        "cudaMemsetAsync");
}

void StreamBackend::synchronize() {
  check(cudaStreamSynchronize(context_.stream), "cudaStreamSynchronize");
}

void StreamBackend::set_scratch(void* memory, std::int64_t bytes) {
  require_invariant(reinterpret_cast<std::uintptr_t>(memory) % 64 == 0,
                    "scratch is aligned to 64 bytes");
  context_.scratch = {static_cast<std::byte*>(memory), static_cast<std::size_t>(bytes)};
}

std::int64_t StreamBackend::scratch_bytes(const Operation& operation) {
  use_device();
  return std::visit(
      [this]<class Op>(const Op& op) -> std::int64_t {
        if constexpr (requires { linear_.scratch_bytes(context_, op); }) {
          note_product(op);
          return linear_.scratch_bytes(context_, op);
        } else if constexpr (requires { attention_.scratch_bytes(context_, op); }) {
          return attention_.scratch_bytes(context_, op);
        } else if constexpr (requires { cuda::scratch_bytes(op); }) {
          return cuda::scratch_bytes(op);
        } else {
          return 0;
        }
      },
      operation);
}

void StreamBackend::run(const Operation& operation) {
  use_device();
  std::visit(
      [this]<class Op>(const Op& op) {
        if constexpr (requires { linear_.run(context_, op); })
          linear_.run(context_, op);
        else if constexpr (requires { attention_.run(context_, op); })
          attention_.run(context_, op);
        else
          enqueue(context_, op);
      },
      operation);
}

}  // namespace cuda

std::unique_ptr<CudaBackend> make_cuda_backend(int device_index,
                                               const CudaBackendOptions& options) {
  const CudaDevices devices = cuda_devices();
  if (devices.count == 0) throw ConfigError("no CUDA device: " + devices.reason);
  if (device_index < 0 || device_index >= devices.count)
    throw ConfigError(fmt::format("CUDA device {}: this machine has devices 0 to {}", device_index,
                                  devices.count - 1));
  return std::make_unique<cuda::StreamBackend>(device_index, options);
}

}  // namespace meshplan::kernels
