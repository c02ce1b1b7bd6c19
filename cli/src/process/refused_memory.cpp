// operator new, but that the exception for a refused allocation says how much was asked for. An
// out-of-memory error without that number helps nobody.
#include <array>
#include <cstddef>
#include <cstdlib>
#include <fmt/format.h>
#include <new>

// The sanitizers replace operator new themselves.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

namespace {

class RefusedMemory : public std::bad_alloc {
 public:
  explicit RefusedMemory(std::size_t bytes) {
    const auto end = fmt::format_to_n(text_.data(), text_.size() - 1,
                                      "an allocation of {} bytes ({:.2f} GiB) was refused", bytes,
                                      static_cast<double>(bytes) / (1U << 30U));
    *end.out = '\0';
  }
  const char* what() const noexcept override { return text_.data(); }

 private:
  std::array<char, 96> text_{};
};

void* checked(void* memory, std::size_t bytes) {
  if (memory == nullptr) throw RefusedMemory(bytes);
  return memory;
}

void* aligned(std::size_t bytes, std::align_val_t alignment) {
  const auto boundary = static_cast<std::size_t>(alignment);
  const std::size_t rounded = (bytes + boundary - 1) / boundary * boundary;
  return checked(rounded < bytes ? nullptr : std::aligned_alloc(boundary, rounded), bytes);
}

}  // namespace

void* operator new(std::size_t bytes) {
  return checked(std::malloc(bytes == 0 ? 1 : bytes), bytes);
}
void* operator new[](std::size_t bytes) {
  return checked(std::malloc(bytes == 0 ? 1 : bytes), bytes);
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return aligned(bytes == 0 ? 1 : bytes, alignment);
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return aligned(bytes == 0 ? 1 : bytes, alignment);
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

#endif
