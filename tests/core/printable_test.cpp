#include "core/printable.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <string>

namespace meshplan {
namespace {

using namespace std::string_literals;

TEST_CASE("Foreign text cannot move the cursor, colour or reorder a terminal", "[core]") {
  CHECK(printable("\x1b[2J\x1b]0;title\x07") == "\\u001b[2J\\u001b]0;title\\u0007");
  CHECK(printable("a\rb\x7f") == "a\\u000db\\u007f");
  CHECK(printable("\xc2\x9b"
                  "31m") == "\\u009b31m");  // the one-character CSI
  CHECK(printable("\xe2\x80\xae"
                  "gpj.exe") == "\\u202egpj.exe");  // right to left from here
  CHECK(printable("na\xe2\x80\x8bme\xef\xbb\xbf\xf3\xa0\x81\x81") ==
        "na\\u200bme\\ufeff\\udb40\\udc41");  // without width
  CHECK(printable("nul\0byte"s) == "nul\\u0000byte");
  CHECK(printable("two\nlines\tand a tab") == "two\nlines\tand a tab");
  CHECK(printable_line("two\nlines") == "two\\nlines");
}

TEST_CASE("Text of any language stays as it is; what is no UTF-8 shows its bytes", "[core]") {
  const std::string text = "Schlüssel, ключ, 鍵, 🔑";
  CHECK(printable(text) == text);
  CHECK(printable("\xff\xfe") == "\\xff\\xfe");
  CHECK(printable("\xc0\x9b") == "\\xc0\\x9b");           // an overlong escape
  CHECK(printable("\xe0\x82\x9b") == "\\xe0\\x82\\x9b");  // another, of three bytes
  CHECK(printable("\xed\xa0\x80") == "\\xed\\xa0\\x80");  // a surrogate
  CHECK(printable("cut \xe9\x8d") == "cut \\xe9\\x8d");
}

TEST_CASE("JSON stays the same JSON", "[core]") {
  const nlohmann::json value = {{"name", "\x1b[31m\x7f\xe2\x80\xae \xc2\x85 ü \n"}};
  CHECK(nlohmann::json::parse(printable(value.dump(2))) == value);
}

TEST_CASE("No byte string comes out with a byte that a terminal obeys", "[core]") {
  std::string text;
  for (int a = 0; a < 256; ++a)
    for (int b = 0; b < 256; ++b) {
      text = {static_cast<char>(a), static_cast<char>(b)};
      for (const char shown : printable_line(text)) {
        const auto byte = static_cast<unsigned char>(shown);
        REQUIRE((byte >= 0x20 || byte == '\t'));
        REQUIRE(byte != 0x7f);
      }
      REQUIRE(printable_line(text).find("\xc2\x9b") == std::string::npos);
    }
}

}  // namespace
}  // namespace meshplan
