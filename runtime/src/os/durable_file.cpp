#include "runtime/os/durable_file.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <linux/fs.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/error.hpp"
#include "core/input_file.hpp"
#include "core/paths.hpp"

namespace meshplan::runtime {
namespace {

[[noreturn]] void fail(const std::string& path, std::string_view what, int error) {
  throw IoError(fmt::format("{}: cannot be {}: {}", path, what, std::strerror(error)));
}

}  // namespace

DurableFile::DurableFile(const std::string& path)
    : path_(path),
      descriptor_(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)) {
  if (descriptor_ < 0) fail(path_, "written", errno);
}

DurableFile::~DurableFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void DurableFile::append(std::span<const std::byte> data) {
  while (!data.empty()) {
    const ssize_t written = ::write(descriptor_, data.data(), data.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) fail(path_, "written", errno);
    data = data.subspan(static_cast<std::size_t>(written));
  }
}

void DurableFile::finish() {
  if (::fsync(descriptor_) != 0) fail(path_, "written", errno);
  const int closed = ::close(descriptor_);
  descriptor_ = -1;
  if (closed != 0) fail(path_, "written", errno);
}

void write_durably(const std::string& path, std::string_view text) {
  const std::string temporary = path + ".part";
  DurableFile file(temporary);
  file.append(std::as_bytes(std::span(text.data(), text.size())));
  file.finish();
  if (std::rename(temporary.c_str(), path.c_str()) != 0) fail(path, "replaced", errno);
}

void sync_folder(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) fail(path, "opened", errno);
  const bool synced = ::fsync(descriptor) == 0;
  const int error = errno;
  ::close(descriptor);
  // Some file systems cannot do this for folders and say EINVAL.
  if (!synced && error != EINVAL) fail(path, "written", error);
}

void replace_folder(const std::string& from, const std::string& to) {
  const auto rename = [&](unsigned flags) {
    return ::syscall(SYS_renameat2, AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), flags) == 0;
  };
  const bool exchanged = rename(RENAME_EXCHANGE);
  if (!exchanged) {
    // Nothing to exchange with, or a file system that cannot.
    if (is_there(to)) {
      const std::string old = to + ".old.tmp";
      if (std::rename(to.c_str(), old.c_str()) != 0) fail(to, "renamed", errno);
    }
    if (std::rename(from.c_str(), to.c_str()) != 0) fail(to, "renamed", errno);
  }
  const std::filesystem::path parent = std::filesystem::path(to).parent_path();
  sync_folder(parent.empty() ? "." : parent.string());
  std::error_code ignored;
  std::filesystem::remove_all(exchanged ? from : to + ".old.tmp", ignored);
}

std::string read_text(const std::string& path) {
  constexpr std::size_t kMostBytes = std::size_t{1} << 28;
  return InputFile(path).read_all(kMostBytes);
}

MappedFile::MappedFile(const std::string& path) {
  const InputFile file(path);
  const auto size = static_cast<std::size_t>(file.bytes());
  void* memory = nullptr;
  if (size > 0) memory = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.descriptor(), 0);
  if (memory == MAP_FAILED) fail(path, "mapped", errno);
  bytes_ = {static_cast<const std::byte*>(memory), size};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace meshplan::runtime
