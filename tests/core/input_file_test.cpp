#include "core/input_file.hpp"

#include <catch2/catch.hpp>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

namespace meshplan {
namespace {

using namespace std::chrono_literals;
using Catch::Matchers::Contains;

constexpr PipeTimes kShort{.silent = 100ms, .without_writer = 100ms};
constexpr std::size_t kMostBytes = 1 << 20;

class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "input-file-XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string fifo() const {
    const std::string path = path_ / "fifo";
    REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
    return path;
  }
  std::string file(const std::string& text) const {
    const std::string path = path_ / "file";
    std::ofstream(path) << text;
    return path;
  }
  std::string path() const { return path_; }

 private:
  std::filesystem::path path_;
};

std::string text_of(const std::string& path, Readable readable = Readable::FilesAndPipes,
                    std::size_t most_bytes = kMostBytes) {
  return InputFile(path, readable, kShort).read_all(most_bytes);
}

std::string refusal_of(const std::string& path, Readable readable = Readable::FilesAndPipes,
                       std::size_t most_bytes = kMostBytes) {
  try {
    text_of(path, readable, most_bytes);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no ConfigError";
}

/// Writes all of it, if somebody reads, and goes.
std::thread writer(const std::string& path, const std::string& text,
                   std::chrono::milliseconds stays = 0ms) {
  std::signal(SIGPIPE, SIG_IGN);
  return std::thread([=] {
    const int out = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
    for (std::size_t done = 0; done < text.size();) {
      const ssize_t count = ::write(out, text.data() + done, text.size() - done);
      if (count <= 0) break;
      done += static_cast<std::size_t>(count);
    }
    std::this_thread::sleep_for(stays);
    ::close(out);
  });
}

}  // namespace

TEST_CASE("a file is read to its end", "[core][input_file]") {
  const Folder folder;
  for (const std::size_t size : {0, 1, 65535, 65536, 300000}) {
    const std::string text(size, 'x');
    CHECK((text_of(folder.file(text)) == text));
    CHECK((text_of(folder.path() + "/file", Readable::Files) == text));
    CHECK((text_of(folder.path() + "/file", Readable::Files, size) == text));
  }
  CHECK(text_of("/proc/self/comm").size() > 1);  // whose size is said to be 0
  CHECK_THAT(refusal_of(folder.path() + "/file", Readable::Files, 299999),
             Contains("file: holds 300000 bytes, more than the limit of 299999"));
}

TEST_CASE("what is no file is refused by name, and nothing waits", "[core][input_file]") {
  const Folder folder;
  const std::string fifo = folder.fifo();
  CHECK_THAT(refusal_of(fifo), Contains(fifo + ": is a FIFO (named pipe) that nobody writes to, "
                                               "expected a regular file"));
  CHECK_THAT(refusal_of(fifo, Readable::Files),
             Contains(fifo + ": is a FIFO (named pipe), expected a regular file"));
  CHECK_THAT(refusal_of("/dev/zero"), Contains("/dev/zero: is a device, expected a regular file"));
  CHECK_THAT(refusal_of("/dev/null"), Contains("is a device"));
  CHECK_THAT(refusal_of(folder.path()), Contains("is a folder, not a file"));
  CHECK_THAT(refusal_of(folder.path() + "/none"), Contains("no such file"));
}

TEST_CASE("a pipe with a writer is read until it is closed", "[core][input_file]") {
  const Folder folder;
  const std::string fifo = folder.fifo();
  const std::string text(300000, 'y');
  std::thread gives = writer(fifo, text);
  CHECK((text_of(fifo) == text));
  gives.join();
  gives = writer(fifo, "one line", 300ms);
  CHECK_THAT(refusal_of(fifo), Contains("nothing came through the pipe for 0.1 s"));
  gives.join();
  gives = writer(fifo, std::string(3000000, 'z'));
  CHECK_THAT(refusal_of(fifo), Contains("or more, more than the limit of 1048576"));
  gives.join();
}

}  // namespace meshplan
