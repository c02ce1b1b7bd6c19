#include "runtime/measure/measure_storage.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <fmt/format.h>
#include <random>
#include <span>
#include <unistd.h>
#include <vector>

#include "runtime/os/durable_file.hpp"

namespace meshplan::runtime {
namespace {

/// What a file system cannot compress.
std::vector<std::byte> random_block(std::size_t bytes) {
  std::vector<std::byte> block(bytes);
  std::mt19937_64 random(1);
  for (std::byte& byte : block) byte = static_cast<std::byte>(random() & 0xff);
  return block;
}

/// A file that is removed, whatever happens.
class RemovedFile {
 public:
  explicit RemovedFile(std::string path) : path_(std::move(path)) {}
  ~RemovedFile() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  RemovedFile(const RemovedFile&) = delete;
  RemovedFile& operator=(const RemovedFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

double write_seconds(const std::string& path, std::int64_t bytes,
                     std::span<const std::byte> block) {
  const RemovedFile removed(path);
  const auto begin = std::chrono::steady_clock::now();
  DurableFile file(removed.path());
  for (std::int64_t left = bytes; left > 0; left -= std::ssize(block))
    file.append(block.first(static_cast<std::size_t>(std::min(left, std::ssize(block)))));
  file.finish();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

double measure_storage(const std::string& folder, std::int64_t bytes) {
  constexpr std::size_t kBlockBytes = std::size_t{4} << 20;
  const std::vector<std::byte> block = random_block(kBlockBytes);
  const std::string path = fmt::format("{}/meshplan-storage-{}.tmp", folder, ::getpid());
  std::array<double, 3> seconds{};
  for (double& one : seconds) one = write_seconds(path, bytes, block);
  std::ranges::sort(seconds);
  return static_cast<double>(bytes) / seconds[1];
}

}  // namespace meshplan::runtime
