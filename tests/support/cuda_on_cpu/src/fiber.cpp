#include "fiber.hpp"

#include <cstdint>
#include <new>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

// Saves the callee-saved registers of the System V ABI on the old stack and loads those of the new
// one: a few ns, where swapcontext makes two system calls.
extern "C" void cuda_on_cpu_switch(void** old_stack_pointer, void* new_stack_pointer);
asm(R"(
.text
.globl cuda_on_cpu_switch
.type cuda_on_cpu_switch, @function
cuda_on_cpu_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size cuda_on_cpu_switch, .-cuda_on_cpu_switch
)");

namespace cuda_on_cpu {

namespace {

constexpr std::size_t kGuardBytes = 4096;
#if defined(__SANITIZE_ADDRESS__)
constexpr std::size_t kStackBytes = 256 << 10;  // redzones around every local
#else
constexpr std::size_t kStackBytes = 64 << 10;
#endif

void* scheduler_stack_pointer = nullptr;

#if defined(__SANITIZE_ADDRESS__)
// AddressSanitizer must know which stack is in use.
const void* scheduler_stack = nullptr;
std::size_t scheduler_stack_bytes = 0;
void entering_fiber(const std::byte* stack) {
  __sanitizer_start_switch_fiber(nullptr, stack, kStackBytes);
}
void in_fiber() {
  __sanitizer_finish_switch_fiber(nullptr, &scheduler_stack, &scheduler_stack_bytes);
}
void leaving_fiber() {
  __sanitizer_start_switch_fiber(nullptr, scheduler_stack, scheduler_stack_bytes);
}
void in_scheduler() {
  __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
}
void forget(std::byte* stack) {
  __asan_unpoison_memory_region(stack, kStackBytes);
}
#else
void entering_fiber(const std::byte* /*stack*/) {}
void in_fiber() {}
void leaving_fiber() {}
void in_scheduler() {}
void forget(std::byte* /*stack*/) {}
#endif

void (*starting_entry)() = nullptr;
void start() {
  in_fiber();
  starting_entry();
  __builtin_trap();  // an entry never returns
}

}  // namespace

Fiber::Fiber(void (*entry)()) : entry_(entry) {
  void* memory = mmap(nullptr, kGuardBytes + kStackBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  mapping_ = static_cast<std::byte*>(memory);
  mprotect(mapping_, kGuardBytes, PROT_NONE);
  reset();
}

Fiber::~Fiber() {
  munmap(mapping_, kGuardBytes + kStackBytes);
}

void Fiber::reset() {
  forget(mapping_ + kGuardBytes);
  // Six registers, then the address to return to; the ABI wants the stack pointer at 16 n + 8 when
  // a function starts.
  auto* top = reinterpret_cast<std::uintptr_t*>(mapping_ + kGuardBytes + kStackBytes) - 1;
  *--top = reinterpret_cast<std::uintptr_t>(&start);
  for (int i = 0; i < 6; ++i) *--top = 0;
  stack_pointer_ = top;
}

void Fiber::resume() {
  starting_entry = entry_;
  entering_fiber(mapping_ + kGuardBytes);
  cuda_on_cpu_switch(&scheduler_stack_pointer, stack_pointer_);
  in_scheduler();
}

void Fiber::suspend() {
  leaving_fiber();
  cuda_on_cpu_switch(&stack_pointer_, scheduler_stack_pointer);
  in_fiber();
}

}  // namespace cuda_on_cpu
