#include "core/utf8.hpp"

#include <catch2/catch.hpp>
#include <string>

#include "core/json_text.hpp"

namespace meshplan {
namespace {

using namespace std::string_literals;

}  // namespace

TEST_CASE("The first byte that no text has is found", "[core][utf8]") {
  CHECK_FALSE(first_non_text(""));
  CHECK_FALSE(first_non_text("Schlüssel, ключ, 鍵, 🔑"));
  CHECK(first_non_text("caf\xe9") == 3);
  CHECK(first_non_text("nul\0byte"s) == 3);
  CHECK(first_non_text("\xc0\xaf") == 0);       // an overlong slash
  CHECK(first_non_text("ü\xed\xa0\x80") == 2);  // half of a character
  CHECK(first_non_text("cut \xe9\x8d") == 4);
  CHECK(first_non_text("\xf4\x90\x80\x80") == 0);  // beyond U+10FFFF
  CHECK(non_text_message("caf\xe9", 3) == "byte 0xe9 is not UTF-8");
}

TEST_CASE("JSON is written whatever foreign text holds", "[core][utf8]") {
  CHECK(json_text({{"name", "caf\xe9"}}, /*indent=*/-1) == "{\"name\":\"caf\xef\xbf\xbd\"}");
}

TEST_CASE("A quoted value ends with a whole character", "[core][utf8]") {
  for (int letters = 70; letters < 84; ++letters)
    CHECK_FALSE(first_non_text(
        quoted(Json(std::string(static_cast<std::size_t>(letters), 'x') + "鍵鍵鍵鍵鍵鍵"))));
}

}  // namespace meshplan
