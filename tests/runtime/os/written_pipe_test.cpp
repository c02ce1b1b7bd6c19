#include "os/written_pipe.hpp"

#include <array>
#include <catch2/catch.hpp>
#include <cstdio>
#include <sys/ioctl.h>
#include <thread>
#include <unistd.h>

namespace meshplan::runtime {
namespace {

constexpr std::chrono::milliseconds kLong{60'000};

int unread(int descriptor) {
  int count = -1;
  REQUIRE(::ioctl(descriptor, FIONREAD, &count) == 0);
  return count;
}

}  // namespace

TEST_CASE("What is in a pipe is waited for until it is read", "[runtime][os]") {
  std::array<int, 2> ends{};
  REQUIRE(::pipe(ends.data()) == 0);
  REQUIRE(::write(ends[1], "word", 4) == 4);
  std::array<char, 4> word{};
  ssize_t count = 0;
  std::thread reader([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    count = ::read(ends[0], word.data(), word.size());
  });
  wait_until_read(ends[1], kLong);
  const int left = unread(ends[1]);
  reader.join();
  CHECK(left == 0);
  CHECK(count == 4);
  wait_until_read(ends[1], kLong);  // an empty one is read

  REQUIRE(::write(ends[1], "word", 4) == 4);
  wait_until_read(ends[1], std::chrono::milliseconds(1));  // nobody reads: not for ever
  CHECK(unread(ends[1]) == 4);
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST_CASE("Where no pipe is, nothing is waited for", "[runtime][os]") {
  std::FILE* file = std::tmpfile();
  REQUIRE(file != nullptr);
  std::fputs("word", file);
  std::rewind(file);  // four bytes before its end
  wait_until_read(::fileno(file), kLong);
  wait_until_read(-1, kLong);
  std::fclose(file);
}

}  // namespace meshplan::runtime
