#include "process/folders.hpp"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/error.hpp"
#include "core/paths.hpp"

namespace meshplan::cli {
namespace {

namespace fs = std::filesystem;

// A signal handler can reach nothing but statics: the files and the folder that are not finished.
const std::string* unfinished_files = nullptr;
volatile std::sig_atomic_t num_unfinished_files = 0;
const char* unfinished_folder = nullptr;

[[noreturn]] void fail_to_make(const std::string& path, int error) {
  throw IoError(fmt::format("{}: cannot be written: {}", path, std::strerror(error)));
}

/// No signal ends the process between steps that belong together.
class SignalsHeld {
 public:
  SignalsHeld() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  SignalsHeld(const SignalsHeld&) = delete;
  SignalsHeld& operator=(const SignalsHeld&) = delete;
  ~SignalsHeld() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_{};
};

/// Files that go unless they are finished; so does their folder, if one is made for them.
class UnfinishedFiles {
 public:
  /// @param folder  to make; empty if the files lie in one that stays. @throws IoError
  UnfinishedFiles(std::vector<std::string> files, std::string folder)
      : files_(std::move(files)), folder_(std::move(folder)) {
    const SignalsHeld held;
    if (!folder_.empty() && mkdir(folder_.c_str(), 0755) != 0) fail_to_make(folder_, errno);
    unfinished_files = files_.data();
    unfinished_folder = folder_.empty() ? nullptr : folder_.c_str();
    num_unfinished_files = static_cast<std::sig_atomic_t>(files_.size());
  }
  UnfinishedFiles(const UnfinishedFiles&) = delete;
  UnfinishedFiles& operator=(const UnfinishedFiles&) = delete;
  ~UnfinishedFiles() {
    remove_unfinished_folder();
    finished();
  }

  const std::vector<std::string>& files() const { return files_; }
  static void finished() {
    num_unfinished_files = 0;
    unfinished_folder = nullptr;
  }

 private:
  std::vector<std::string> files_;
  std::string folder_;
};

/// Refuses what is there already, links included.
void write_new_file(const std::string& path, const FolderFile& file) {
  std::FILE* out = std::fopen(path.c_str(), "wbx");
  if (out == nullptr) fail_to_make(path, errno);
  const bool written = std::fwrite(file.text.data(), 1, file.text.size(), out) == file.text.size();
  const bool flushed = std::fflush(out) == 0 && fsync(fileno(out)) == 0;
  const int error = errno;
  if (std::fclose(out) != 0 || !written || !flushed) fail_to_make(path, error);
  if (file.executable && chmod(path.c_str(), 0755) != 0) fail_to_make(path, errno);
}

bool is_empty_folder(const fs::path& path) {
  std::error_code unreadable;
  return is_folder(path) && fs::is_empty(path, unreadable) && !unreadable;
}

/// The one name of what a path will name: "a/../b/" is b, a link is what it leads to.
std::string true_path(const std::string& given) {
  if (given.empty()) throw IoError("an empty path cannot be written");
  std::error_code error;
  fs::path path = fs::weakly_canonical(given, error);
  if (error) throw IoError(fmt::format("{}: cannot be written: {}", given, error.message()));
  if (!path.has_filename() && path != path.root_path()) path = path.parent_path();
  if (!is_there(path) && fs::is_symlink(fs::symlink_status(path, error)))
    throw ConfigError(fmt::format("{}: is a link to {}, which is not there; name a folder", given,
                                  fs::read_symlink(path, error).string()));
  return path.string();
}

std::vector<std::string> paths_of(const std::string& folder, const std::vector<FolderFile>& files) {
  std::vector<std::string> paths;
  for (const FolderFile& file : files) paths.push_back(folder + "/" + file.name);
  return paths;
}

void write_new_folder(const std::string& path, const std::vector<FolderFile>& files) {
  const std::string temporary = fmt::format("{}.{}.tmp", path, getpid());
  const UnfinishedFiles unfinished(paths_of(temporary, files), temporary);
  for (std::size_t i = 0; i < files.size(); ++i) write_new_file(unfinished.files()[i], files[i]);
  const SignalsHeld held;
  // It replaces nothing but an empty folder made meanwhile.
  if (std::rename(temporary.c_str(), path.c_str()) != 0) fail_to_make(path, errno);
  UnfinishedFiles::finished();
}

bool is_named(const fs::path& path) {
  std::error_code unreadable;
  return fs::exists(fs::symlink_status(path, unreadable));
}

void write_into_folder(const std::string& path, const FolderChange& change) {
  std::vector<std::string> temporaries;
  for (const FolderFile& file : change.written)
    temporaries.push_back(fmt::format("{}/.{}.{}.tmp", path, file.name, getpid()));
  for (const std::string& temporary : temporaries)
    if (is_named(temporary)) fail_to_make(temporary, EEXIST);
  const UnfinishedFiles unfinished(temporaries, "");
  std::vector<Replacement> replacements;
  for (std::size_t i = 0; i < temporaries.size(); ++i) {
    write_new_file(temporaries[i], change.written[i]);
    replacements.push_back({temporaries[i], path + "/" + change.written[i].name});
  }
  for (const std::string& name : change.removed) replacements.push_back({"", path + "/" + name});
  const SignalsHeld held;
  replace_together(replacements);
  UnfinishedFiles::finished();
}

void write_change(const std::string& path, const FolderChange& change) {
  if (is_folder(path))
    write_into_folder(path, change);
  else
    write_new_folder(path, change.written);
}

}  // namespace

void require_free_folder(const std::string& given, bool adds) {
  const std::string path = true_path(given);
  if (is_there(path) && !is_folder(path))
    throw ConfigError(fmt::format("{}: is a file; name a folder", given));
  if (is_folder(path)) {
    if (!is_empty_folder(path) && !adds)
      throw ConfigError(fmt::format(
          "{}: holds files already; name another folder, or replace an earlier export in it with "
          "--force",
          given));
    if (access(path.c_str(), W_OK | X_OK) != 0) fail_to_make(given, errno);
    return;
  }
  const std::string parent = fs::path(path).parent_path().string();
  const std::string folder = parent.empty() ? "." : parent;
  if (!is_folder(folder))
    throw IoError(fmt::format("{}: cannot be written: there is no folder {}", given,
                              fs::path(given).parent_path().string()));
  if (access(folder.c_str(), W_OK | X_OK) != 0) fail_to_make(given, errno);
}

void write_folder(const std::string& path, const std::vector<FolderFile>& files) {
  require_free_folder(path, /*adds=*/false);
  write_change(true_path(path), {.written = files});
}

void write_recorded_folder(const std::string& given, const std::vector<FolderFile>& files,
                           bool adds) {
  require_free_folder(given, adds);
  const std::string path = true_path(given);
  write_change(path, change_of(path, files));
}

void replace_together(const std::vector<Replacement>& replacements) {
  struct Done {
    const Replacement& replacement;
    std::string aside;  // where the old one is; empty if there was none
  };
  std::vector<Done> done;
  const auto fail = [&](const std::string& path, int error) {
    for (auto last = done.rbegin(); last != done.rend(); ++last) {
      const auto& [from, to] = last->replacement;
      if (!from.empty() && is_named(to)) std::rename(to.c_str(), from.c_str());
      if (!last->aside.empty()) std::rename(last->aside.c_str(), to.c_str());
    }
    fail_to_make(path, error);
  };
  for (const Replacement& replacement : replacements) {
    const auto& [from, to] = replacement;
    const fs::path place(to);
    const std::string aside =
        (place.parent_path() / fmt::format(".{}.{}.old", place.filename().string(), getpid()))
            .string();
    if (!from.empty() && !is_named(from)) fail(to, ENOENT);
    const bool replaces = is_named(to);
    if (replaces && is_named(aside)) fail(aside, EEXIST);
    if (replaces && std::rename(to.c_str(), aside.c_str()) != 0) fail(to, errno);
    done.push_back({replacement, replaces ? aside : ""});
    if (!from.empty() && std::rename(from.c_str(), to.c_str()) != 0) fail(to, errno);
  }
  for (const Done& each : done)
    if (!each.aside.empty()) unlink(each.aside.c_str());
}

void remove_unfinished_folder() noexcept {
  for (std::size_t i = 0; i < static_cast<std::size_t>(num_unfinished_files); ++i)
    unlink(unfinished_files[i].c_str());
  if (num_unfinished_files > 0 && unfinished_folder != nullptr) rmdir(unfinished_folder);
}

}  // namespace meshplan::cli
