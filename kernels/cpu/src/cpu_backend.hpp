#pragma once

#include <string>

#include "device/context.hpp"
#include "device/cpu_isa.hpp"
#include "kernels/cpu_backend.hpp"
#include "products/matmul.hpp"

namespace meshplan::kernels {

class CpuBackend : public Backend {
 public:
  CpuBackend(int num_threads, CpuIsa isa)
      : isa_(isa),
        matmul_(num_threads, table_of(isa)),
        context_{.num_threads = num_threads, .table = table_of(isa), .matmul = matmul_} {}

  std::string name() const override;
  int num_threads() const override { return context_.num_threads; }

  void* allocate(std::int64_t bytes) override;
  void free(void* memory) noexcept override;
  void copy(void* to, const void* from, std::int64_t bytes) override;
  void copy_to_device(void* to, const void* from_host, std::int64_t bytes) override;
  void copy_to_host(void* to_host, const void* from, std::int64_t bytes) override;
  void zero(void* memory, std::int64_t bytes) override;
  void synchronize() override {}

  std::int64_t scratch_bytes(const Operation& operation) override;
  void set_scratch(void* memory, std::int64_t bytes) override;
  void run(const Operation& operation) override;

 private:
  CpuIsa isa_;
  Matmul matmul_;
  cpu::Context context_;
};

}  // namespace meshplan::kernels
