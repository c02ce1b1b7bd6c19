#include "process/gzip.hpp"

#include <catch2/catch.hpp>
#include <string>

#include "core/error.hpp"

namespace meshplan::cli {
namespace {

using Catch::Matchers::Contains;

std::string refusal_of(std::string_view packed, std::size_t most_bytes = kMostUnpackedBytes) {
  try {
    gunzip(packed, "trace.json.gz", most_bytes);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no ConfigError";
}

std::string varied_text(std::size_t bytes) {
  std::string text;
  for (std::uint32_t state = 1; text.size() < bytes; state = state * 1664525 + 1013904223)
    text += static_cast<char>('a' + (state >> 24) % 26);
  return text;
}

}  // namespace

TEST_CASE("what is packed comes back as it was", "[cli][gzip]") {
  for (const std::size_t bytes : {0, 1, 1000, 262144, 262145, 3000000}) {
    const std::string text = varied_text(bytes);
    const std::string packed = gzip(text);
    CHECK(is_gzip(packed));
    CHECK((gunzip(packed, "file") == text));
    CHECK((gzip(text) == packed));
    CHECK((gunzip(packed + packed, "file") == text + text));  // as `cat a.gz b.gz` makes
  }
  CHECK_FALSE(is_gzip("{\"traceEvents\": []}"));
}

TEST_CASE("a damaged or cut file is refused with its name", "[cli][gzip]") {
  const std::string packed = gzip(varied_text(100000));
  CHECK_THAT(refusal_of(packed.substr(0, packed.size() / 2)),
             Contains("trace.json.gz: gzip: ends after"));
  CHECK_THAT(refusal_of(packed.substr(0, 5)), Contains("trace.json.gz: gzip: ends after 5 bytes"));
  CHECK_THAT(refusal_of("\x1f\x8b of something else"), Contains("trace.json.gz: gzip: "));
  CHECK_THAT(refusal_of(packed + "rest"), Contains("trace.json.gz: gzip: "));
  std::string wrong = packed;
  wrong[packed.size() - 6] = static_cast<char>(~wrong[packed.size() - 6]);  // of the checksum
  CHECK_THAT(refusal_of(wrong), Contains("incorrect data check"));
}

TEST_CASE("a small file that holds a large one is refused in time", "[cli][gzip]") {
  const std::string packed = gzip(std::string(50000000, '0'));
  CHECK(packed.size() < 100000);
  CHECK_THAT(refusal_of(packed, 1000000), Contains("unpacks to more than 1000000 bytes"));
}

}  // namespace meshplan::cli
