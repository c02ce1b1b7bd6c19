#include "core/dtype.hpp"

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "core/error.hpp"

namespace meshplan {
namespace {

constexpr std::array<std::pair<DType, std::string_view>, 8> kNames = {{{DType::F64, "fp64"},
                                                                       {DType::F32, "fp32"},
                                                                       {DType::F16, "fp16"},
                                                                       {DType::BF16, "bf16"},
                                                                       {DType::I64, "int64"},
                                                                       {DType::I32, "int32"},
                                                                       {DType::I8, "int8"},
                                                                       {DType::U8, "uint8"}}};

}  // namespace

std::string_view name_of(DType dtype) {
  for (const auto& [value, name] : kNames)
    if (value == dtype) return name;
  throw InvariantError("dtype without a name");
}

DType parse_dtype(std::string_view name) {
  std::vector<std::string> known;
  for (const auto& [value, candidate] : kNames) {
    if (candidate == name) return value;
    known.emplace_back(candidate);
  }
  throw ConfigError(unknown_name_message("dtype", name, std::move(known)));
}

}  // namespace meshplan
