#include "core/line.hpp"

#include <catch2/catch.hpp>

#include "core/printable.hpp"
#include "support/hostile_strings.hpp"

namespace meshplan {
namespace {

TEST_CASE("A name is one printable line of bounded length", "[core][line]") {
  CHECK(line_fault("Schl\xc3\xbcssel \xe9\x8d\xb5 \xf0\x9f\x94\x91 'x' $(y) \\", 100).empty());
  CHECK(line_fault("x\ny", 100) == "U+000A at byte 2");
  CHECK(line_fault("tab\there", 100) == "U+0009 at byte 4");
  CHECK(line_fault(std::string("a\0b", 3), 100) == "U+0000 at byte 2");
  CHECK(line_fault("a\xc2\x85", 100) == "U+0085 at byte 2");
  CHECK(line_fault("a\xe2\x80\xa8", 100) == "U+2028 at byte 2");
  CHECK(line_fault("a\xe2\x80\xae", 100) == "U+202E at byte 2");
  CHECK(line_fault("a\xe2\x80\x8b", 100) == "U+200B at byte 2");
  CHECK(line_fault("\xef\xbb\xbf", 100) == "U+FEFF at byte 1");
  CHECK(line_fault("\xf3\xa0\x81\x81", 100) == "U+E0041 at byte 1");
  CHECK(line_fault("a\x7f", 100) == "U+007F at byte 2");
  CHECK(line_fault("ab\xff", 100) == "byte 0xff at 3 is not UTF-8");
  CHECK(line_fault("abcd", 3) == "4 bytes");
}

TEST_CASE("A refused line is shown on one, with the nearest", "[core][line]") {
  const auto message = [](const std::string& text, std::size_t most) -> std::string {
    try {
      require_line(text, "plan.json: model: name", most);
    } catch (const std::exception& error) {
      return error.what();
    }
    return "";
  };
  CHECK(message("x", 512).empty());
  CHECK(message("x\ntouch PWNED #", 512) ==
        "plan.json: model: name: expected one printable line of at most 512 bytes of UTF-8, got "
        "'x\\ntouch PWNED #' (U+000A at byte 2); nearest: 'x touch PWNED #'");
  const std::string cut = message("\xc3\xbc\xc3\xbc\xc3\xbc", 5);
  CHECK(cut.ends_with("(6 bytes); nearest: '\xc3\xbc\xc3\xbc'"));
  CHECK(message(std::string(100000, 'a'), 512).size() < 400);
  for (const std::string& text : test::hostile_strings()) {
    const std::string shown = message(text, 512);
    CHECK(printable_line(shown) == shown);
  }
}

}  // namespace
}  // namespace meshplan
