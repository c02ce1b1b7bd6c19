#pragma once

#include <cstdint>
#include <string_view>

namespace meshplan {

enum class DType : std::uint8_t { F64, F32, F16, BF16, I64, I32, I8, U8 };

/// Bytes of one element.
constexpr std::int64_t size_of(DType dtype) {
  switch (dtype) {
    case DType::F64:
    case DType::I64:
      return 8;
    case DType::F32:
    case DType::I32:
      return 4;
    case DType::F16:
    case DType::BF16:
      return 2;
    case DType::I8:
    case DType::U8:
      return 1;
  }
  return 0;
}

std::string_view name_of(DType dtype);

/// The spelling used in files and flags: "fp32", "bf16", ... @throws ConfigError
DType parse_dtype(std::string_view name);

}  // namespace meshplan
