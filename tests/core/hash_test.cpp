#include "core/hash.hpp"

#include <array>
#include <catch2/catch.hpp>

namespace meshplan {

TEST_CASE("The hash gives the published test vectors of 64-bit FNV-1a", "[core][hash]") {
  // Landon Curt Noll's test suite (draft-eastlake-fnv, appendix C).
  CHECK(content_hash("") == 0xcbf29ce484222325ULL);
  CHECK(content_hash("a") == 0xaf63dc4c8601ec8cULL);
  CHECK(content_hash("b") == 0xaf63df4c8601f1a5ULL);
  CHECK(content_hash("foobar") == 0x85944171f73967e8ULL);
}

TEST_CASE("Hashing in two parts equals hashing at once", "[core][hash]") {
  const std::array<std::byte, 3> tail = {std::byte{'b'}, std::byte{'a'}, std::byte{'r'}};
  CHECK(content_hash(tail, content_hash("foo")) == content_hash("foobar"));
}

TEST_CASE("A zero byte changes the hash", "[core][hash]") {
  using namespace std::string_view_literals;
  CHECK(content_hash("a\0"sv) != content_hash("a"sv));
}

TEST_CASE("A hash is written as sixteen hexadecimal digits", "[core][hash]") {
  CHECK(hex(0xcbf29ce484222325ULL) == "cbf29ce484222325");
  CHECK(hex(0xAF) == "00000000000000af");
}

}  // namespace meshplan
