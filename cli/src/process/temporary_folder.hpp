#pragma once

#include <filesystem>
#include <string>

namespace meshplan::cli {

/// A folder of this process that goes away with the object, and in a signal handler by
/// remove_temporary_folder(). What a process that was killed left is removed by the next one. One
/// at a time.
class TemporaryFolder {
 public:
  /// @throws IoError
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  /// The path of a file in it.
  std::string file(const std::string& name);

 private:
  std::filesystem::path path_;
  int lock_ = -1;  // held while this process lives
};

/// Async-signal-safe.
void remove_temporary_folder() noexcept;

}  // namespace meshplan::cli
