#include "process/folders.hpp"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fmt/format.h>
#include <unistd.h>

#include "core/error.hpp"
#include "process/files.hpp"

namespace meshplan::cli {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::Contains;

class Folder {
 public:
  Folder() : path_(fs::temp_directory_path() / fmt::format("meshplan-folders-{}", getpid())) {
    fs::create_directory(path_);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { fs::remove_all(path_); }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  std::ptrdiff_t entries() const {
    return std::distance(fs::directory_iterator(path_), fs::directory_iterator());
  }

 private:
  fs::path path_;
};

}  // namespace

TEST_CASE("files are replaced together or not at all", "[cli][folders]") {
  const Folder folder;
  write_file(folder / "a", "old a");
  write_file(folder / "b", "old b");
  write_file(folder / "c", "old c");
  write_file(folder / "new-a", "new a");
  write_file(folder / "new-d", "new d");
  const std::vector<Replacement> change{
      {folder / "new-a", folder / "a"}, {folder / "new-d", folder / "d"}, {"", folder / "b"}};
  std::vector<Replacement> fails = change;
  fails.push_back({folder / "missing", folder / "c"});

  CHECK_THROWS_AS(replace_together(fails), IoError);
  CHECK(read_file(folder / "a") == "old a");
  CHECK(read_file(folder / "b") == "old b");
  CHECK(read_file(folder / "c") == "old c");
  CHECK(read_file(folder / "new-a") == "new a");
  CHECK(folder.entries() == 5);

  replace_together(change);
  CHECK(read_file(folder / "a") == "new a");
  CHECK(read_file(folder / "d") == "new d");
  CHECK_FALSE(path_exists(folder / "b"));
  CHECK(folder.entries() == 3);
}

TEST_CASE("a folder takes more files than an interrupt handler once knew", "[cli][folders]") {
  const Folder folder;
  std::vector<FolderFile> files;
  for (int rank = 0; rank < 100; ++rank)
    files.push_back({.name = fmt::format("rank-{}.json.gz", rank), .text = "trace"});
  write_folder(folder / "traces", files);
  CHECK(read_file(folder / "traces/rank-99.json.gz") == "trace");
  CHECK(folder.entries() == 1);
}

}  // namespace meshplan::cli
