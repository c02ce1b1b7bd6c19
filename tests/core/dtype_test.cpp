#include "core/dtype.hpp"

#include <array>
#include <catch2/catch.hpp>
#include <string>

#include "core/error.hpp"

namespace meshplan {

TEST_CASE("Every dtype has a width, and a name that reads back as itself", "[core][dtype]") {
  struct Row {
    DType dtype;
    const char* name;
    int bytes;
  };
  constexpr std::array<Row, 8> kRows = {{{DType::F64, "fp64", 8},
                                         {DType::F32, "fp32", 4},
                                         {DType::F16, "fp16", 2},
                                         {DType::BF16, "bf16", 2},
                                         {DType::I64, "int64", 8},
                                         {DType::I32, "int32", 4},
                                         {DType::I8, "int8", 1},
                                         {DType::U8, "uint8", 1}}};
  for (const Row& row : kRows) {
    CAPTURE(row.name);
    CHECK(name_of(row.dtype) == row.name);
    CHECK(parse_dtype(row.name) == row.dtype);
    CHECK(size_of(row.dtype) == row.bytes);
  }
}

TEST_CASE("An unknown dtype is refused with the nearest known one", "[core][dtype]") {
  CHECK_THROWS_WITH(parse_dtype("bfp16"), Catch::Contains("unknown dtype 'bfp16'") &&
                                              Catch::Contains("did you mean 'bf16'?") &&
                                              Catch::Contains("fp64"));
  CHECK_THROWS_AS(parse_dtype(""), ConfigError);
}

}  // namespace meshplan
