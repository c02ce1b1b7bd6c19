// Blocks of all sizes give the lines that the whole text has.
#include "core/text_blocks.hpp"

#include <catch2/catch.hpp>
#include <vector>

#include "core/error.hpp"
#include "support/blocks.hpp"

namespace meshplan {
namespace {

using Lines = std::vector<std::string>;

Lines lines_of(const TextBlocks& text) {
  Lines lines;
  for_each_line(text, "train.log", [&](std::string_view line, std::size_t number) {
    lines.emplace_back(line);
    CHECK(number == lines.size());
  });
  return lines;
}

}  // namespace

TEST_CASE("lines come out of blocks of any size", "[core][blocks]") {
  for (const std::size_t bytes : {1, 2, 3, 7, 100}) {
    CAPTURE(bytes);
    CHECK(lines_of(in_blocks("first\n\nthird\r\nlast", bytes)) ==
          Lines{"first", "", "third\r", "last"});
    CHECK(lines_of(in_blocks("ended\n", bytes)) == Lines{"ended"});
    CHECK(lines_of(in_blocks("\n", bytes)) == Lines{""});
  }
  CHECK(lines_of(one_block("")).empty());
}

TEST_CASE("a line without end is refused with its number", "[core][blocks]") {
  const std::string block(std::size_t{1} << 20, 'x');
  std::size_t blocks = 0;
  const TextBlocks endless = [&] {
    return ++blocks == 1 ? std::string_view("begin\n") : std::string_view(block);
  };
  CHECK_THROWS_WITH(lines_of(endless),
                    "train.log:2: the line has more than 67108864 bytes, the limit");
  CHECK(blocks < 70);
}

}  // namespace meshplan
