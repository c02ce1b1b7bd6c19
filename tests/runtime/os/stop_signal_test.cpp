#include "runtime/os/stop_signal.hpp"

#include <catch2/catch.hpp>
#include <chrono>
#include <pthread.h>
#include <thread>
#include <vector>

#include "kernels/cpu_backend.hpp"

namespace meshplan::runtime {
namespace {

constexpr std::int64_t kTokens = 64;
constexpr std::int64_t kInputs = 256;
constexpr std::int64_t kOutputs = 1536;

/// The product that a stopped run was in when its heap was overwritten.
class Product {
 public:
  void run() {
    backend_->run(kernels::LinearInputGrad{.shape = {kTokens, kInputs, kOutputs},
                                           .dy = dy_.data(),
                                           .dy_stride = kOutputs,
                                           .weight = weight_.data(),
                                           .weight_stride = kInputs,
                                           .dx = dx_.data(),
                                           .dx_stride = kInputs});
  }

 private:
  std::unique_ptr<kernels::Backend> backend_ = kernels::make_cpu_backend(1);
  std::vector<float> dy_ = std::vector<float>(kTokens * kOutputs, 1.0F);
  std::vector<float> weight_ = std::vector<float>(kOutputs * kInputs, 1.0F);
  std::vector<float> dx_ = std::vector<float>(kTokens * kInputs);
};

TEST_CASE("a stop signal during a matrix product leaves the heap alone") {
  Product product;
  product.run();
  const pthread_t main_thread = pthread_self();
  // A damaged heap ends the process in one of the products' own allocations.
  for (int round = 0; round < 300; ++round) {
    const StopSignal stop;
    std::thread sender([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(50 * (round % 8)));
      pthread_kill(main_thread, round % 2 == 0 ? SIGTERM : SIGUSR1);
    });
    while (!stop.requested()) product.run();
    sender.join();
  }
  SUCCEED("the heap held");
}

TEST_CASE("what a stop signal replaces is put back") {
  struct sigaction before {};
  struct sigaction after {};
  stack_t stack_before{};
  stack_t stack_after{};
  sigaction(SIGTERM, nullptr, &before);
  sigaltstack(nullptr, &stack_before);
  { const StopSignal stop; }
  sigaction(SIGTERM, nullptr, &after);
  sigaltstack(nullptr, &stack_after);
  CHECK(after.sa_handler == before.sa_handler);
  CHECK(stack_after.ss_flags == stack_before.ss_flags);
  CHECK(stack_after.ss_sp == stack_before.ss_sp);
}

}  // namespace
}  // namespace meshplan::runtime
