// Numbers of any dtype where a communicator reads and writes them: in the host's memory or in a
// device's, which the host sees through copies alone.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "core/dtype.hpp"
#include "runtime/comm/communicator.hpp"

namespace meshplan::runtime::contract {

class MemorySpace {
 public:
  MemorySpace() = default;
  virtual ~MemorySpace() = default;
  MemorySpace(const MemorySpace&) = delete;
  MemorySpace& operator=(const MemorySpace&) = delete;
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void free(void* memory) noexcept = 0;
  virtual void write(void* to, const void* from_host, std::size_t bytes) = 0;
  virtual void read(void* to_host, const void* from, std::size_t bytes) = 0;
};

class HostSpace final : public MemorySpace {
 public:
  void* allocate(std::size_t bytes) override { return ::operator new(bytes); }
  void free(void* memory) noexcept override { ::operator delete(memory); }
  void write(void* to, const void* from_host, std::size_t bytes) override {
    if (bytes > 0) std::memcpy(to, from_host, bytes);
  }
  void read(void* to_host, const void* from, std::size_t bytes) override {
    if (bytes > 0) std::memcpy(to_host, from, bytes);
  }
};

/// Where elements that are made from now on lie.
inline MemorySpace*& memory_space() {
  static HostSpace host;
  static MemorySpace* space = &host;
  return space;
}

inline void encode(std::byte* to, DType dtype, double value) {
  const auto store = [&](auto number) { std::memcpy(to, &number, sizeof number); };
  switch (dtype) {
    case DType::F64:
      return store(value);
    case DType::F32:
      return store(static_cast<float>(value));
    case DType::F16:
      return store(static_cast<_Float16>(value));
    case DType::BF16:
      return store(static_cast<std::uint16_t>(
          std::bit_cast<std::uint32_t>(static_cast<float>(value)) >> 16));
    case DType::I64:
      return store(static_cast<std::int64_t>(value));
    case DType::I32:
      return store(static_cast<std::int32_t>(value));
    case DType::I8:
      return store(static_cast<std::int8_t>(value));
    case DType::U8:
      return store(static_cast<std::uint8_t>(value));
  }
}

inline double decode(const std::byte* from, DType dtype) {
  const auto load = [&](auto number) {
    std::memcpy(&number, from, sizeof number);
    return number;
  };
  switch (dtype) {
    case DType::F64:
      return load(double{});
    case DType::F32:
      return static_cast<double>(load(float{}));
    case DType::F16:
      return static_cast<double>(load(_Float16{}));
    case DType::BF16:
      return static_cast<double>(
          std::bit_cast<float>(static_cast<std::uint32_t>(load(std::uint16_t{})) << 16));
    case DType::I64:
      return static_cast<double>(load(std::int64_t{}));
    case DType::I32:
      return static_cast<double>(load(std::int32_t{}));
    case DType::I8:
      return static_cast<double>(load(std::int8_t{}));
    case DType::U8:
      return static_cast<double>(load(std::uint8_t{}));
  }
  return 0;
}

/// Elements of one dtype, set and read as double. Zero at first.
class Elements {
 public:
  Elements(DType dtype, std::int64_t count)
      : Elements(dtype, std::vector<std::byte>(static_cast<std::size_t>(count * size_of(dtype)))) {}
  Elements(DType dtype, const std::vector<std::byte>& bytes)
      : dtype_(dtype),
        count_(static_cast<std::int64_t>(bytes.size()) / size_of(dtype)),
        memory_(memory_space()->allocate(bytes.size()), {memory_space()}) {
    space().write(memory_.get(), bytes.data(), bytes.size());
  }
  Elements(const Elements& other) : Elements(other.dtype_, other.bytes()) {}
  Elements(Elements&&) = default;
  Elements& operator=(const Elements& other) { return *this = Elements(other); }
  Elements& operator=(Elements&&) = default;
  ~Elements() = default;

  DType dtype() const { return dtype_; }
  std::int64_t count() const { return count_; }
  ConstBuffer buffer() const { return {memory_.get(), count_, dtype_}; }
  MutableBuffer buffer() { return {memory_.get(), count_, dtype_}; }
  MutableBuffer part(std::int64_t first, std::int64_t count) { return {at(first), count, dtype_}; }

  /// A copy for the host.
  std::vector<std::byte> bytes() const { return bytes(0, count_); }
  std::vector<std::byte> bytes(std::int64_t first, std::int64_t count) const {
    std::vector<std::byte> copy(static_cast<std::size_t>(count * size_of(dtype_)));
    space().read(copy.data(), at(first), copy.size());
    return copy;
  }
  void set(std::int64_t i, double value) {
    std::byte element[8];
    encode(element, dtype_, value);
    space().write(at(i), element, static_cast<std::size_t>(size_of(dtype_)));
  }
  double get(std::int64_t i) const { return decode(bytes(i, 1).data(), dtype_); }

 private:
  struct Free {
    MemorySpace* space = nullptr;
    void operator()(void* memory) const noexcept { space->free(memory); }
  };
  MemorySpace& space() const { return *memory_.get_deleter().space; }
  std::byte* at(std::int64_t i) const {
    return static_cast<std::byte*>(memory_.get()) + i * size_of(dtype_);
  }

  DType dtype_;
  std::int64_t count_;
  std::unique_ptr<void, Free> memory_;
};

template <class Value>
Elements filled(DType dtype, std::int64_t count, const Value& value) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(count * size_of(dtype)));
  for (std::int64_t i = 0; i < count; ++i)
    encode(bytes.data() + i * size_of(dtype), dtype, static_cast<double>(value(i)));
  return Elements(dtype, bytes);
}

/// First index whose value is not the expected one; -1 if all are right. (One assertion an array.)
template <class Value>
std::int64_t first_wrong(const Elements& elements, const Value& expected) {
  const DType dtype = elements.dtype();
  const std::vector<std::byte> bytes = elements.bytes();
  for (std::int64_t i = 0; i < elements.count(); ++i)
    if (decode(bytes.data() + i * size_of(dtype), dtype) != static_cast<double>(expected(i)))
      return i;
  return -1;
}

}  // namespace meshplan::runtime::contract
