#include "runtime/measure/measure_storage.hpp"

#include <catch2/catch.hpp>
#include <filesystem>

#include "core/error.hpp"
#include "runtime/temporary_folder.hpp"

namespace meshplan::runtime {

TEST_CASE("measuring a file system leaves nothing there", "[runtime][measure]") {
  const test::TemporaryFolder folder;
  CHECK(measure_storage(folder.path(), 1 << 20) > 0);
  CHECK(std::filesystem::is_empty(folder.path()));
  CHECK_THROWS_AS(measure_storage(folder.path() + "/missing", 1 << 20), IoError);
}

}  // namespace meshplan::runtime
