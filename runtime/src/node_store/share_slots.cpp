#include "node_store/share_slots.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "core/error.hpp"
#include "core/fresh_pages.hpp"
#include "node_store/store_folder.hpp"
#include "runtime/weights/checkpoint.hpp"

namespace meshplan::runtime {
namespace {

namespace fs = std::filesystem;

constexpr const char* kUnfinishedFile = ".part";

[[noreturn]] void fail(const std::string& path, const char* what, int error) {
  throw IoError(fmt::format("{}: cannot be {}: {}", path, what, std::strerror(error)));
}

void rename_file(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) fail(to, "renamed", errno);
}

/// A new file of this size, all of whose memory is taken. @throws IoError, and leaves no file then
std::byte* allocate_file(const std::string& path, std::int64_t bytes) {
  const int descriptor =
      ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (descriptor < 0) fail(path, "created", errno);
  int error = ::posix_fallocate(descriptor, 0, bytes);
  void* memory = MAP_FAILED;
  if (error == 0) {
    memory = ::mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED,
                    descriptor, 0);
    if (memory == MAP_FAILED) error = errno;
  }
  ::close(descriptor);
  if (error == 0) {
    touch_pages(memory, static_cast<std::size_t>(bytes));
    return static_cast<std::byte*>(memory);
  }
  ::unlink(path.c_str());
  fail(path, "allocated", error);
}

void write_file(const std::string& path, const std::string& text) {
  const int descriptor =
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (descriptor < 0) fail(path, "created", errno);
  const ssize_t written = ::write(descriptor, text.data(), text.size());
  const int error = written < 0 ? errno : ENOSPC;
  ::close(descriptor);
  if (written != std::ssize(text)) fail(path, "written", error);
}

}  // namespace

ShareSlots::ShareSlots(std::string store, int rank, std::vector<std::byte> header,
                       std::int64_t data_bytes)
    : store_(std::move(store)), rank_(rank), header_(std::move(header)), data_bytes_(data_bytes) {
  allocate();
}

ShareSlots::ShareSlots(ShareSlots&& other) noexcept
    : store_(std::move(other.store_)),
      rank_(other.rank_),
      header_(std::move(other.header_)),
      data_bytes_(other.data_bytes_),
      slots_(std::exchange(other.slots_, {})),
      current_(other.current_),
      stays_mapped_(other.stays_mapped_) {}

ShareSlots::~ShareSlots() {
  for (const Slot& slot : slots_)
    if (!stays_mapped_) ::munmap(slot.memory, static_cast<std::size_t>(file_bytes()));
}

void ShareSlots::allocate() {
  if (allocated() == kSharesKept) return;
  Slot slot{.path = fmt::format("{}/rank-{:05d}-{}.spare", store_, rank_, allocated())};
  slot.memory = allocate_file(slot.path, file_bytes());
  std::ranges::copy(header_, slot.memory);
  slots_.push_back(std::move(slot));
}

ShareSlots::Slot& ShareSlots::oldest() {
  return *std::ranges::min_element(slots_, {},
                                   [](const Slot& slot) { return slot.step.value_or(-1); });
}

std::span<std::byte> ShareSlots::begin(std::int64_t step) {
  Slot& slot = oldest();
  const std::optional<std::int64_t> before = std::exchange(slot.step, step);
  if (before) ::unlink(stored_index(store_, *before, rank_).c_str());
  std::error_code ignored;  // the rename says it
  const std::string path = stored_share(store_, step, rank_) + kUnfinishedFile;
  fs::create_directory(fs::path(path).parent_path(), ignored);
  rename_file(slot.path, path);
  slot.path = path;
  if (before)  // the last rank to leave the folder removes it
    ::rmdir(fs::path(stored_share(store_, *before, rank_)).parent_path().c_str());
  current_ = static_cast<std::size_t>(&slot - slots_.data());
  return data();
}

std::span<std::byte> ShareSlots::data() const {
  return {slots_[current_].memory + header_.size(), static_cast<std::size_t>(data_bytes_)};
}

void ShareSlots::write_index(const std::string& text) const {
  write_file(stored_index(store_, *slots_[current_].step, rank_) + kUnfinishedFile, text);
}

void ShareSlots::complete() {
  Slot& slot = slots_[current_];
  const std::string share = stored_share(store_, *slot.step, rank_);
  const std::string index = stored_index(store_, *slot.step, rank_);
  rename_file(slot.path, share);
  slot.path = share;
  rename_file(index + kUnfinishedFile, index);
}

}  // namespace meshplan::runtime
