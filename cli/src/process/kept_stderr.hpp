#pragma once

#include <string>

namespace meshplan::cli {

/// While it lives, what this process and those that it starts write to stderr goes into a file, for
/// it to be told in another way. One at a time.
class KeptStderr {
 public:
  /// @param file  is replaced. @throws IoError
  explicit KeptStderr(std::string file);
  ~KeptStderr();
  KeptStderr(const KeptStderr&) = delete;
  KeptStderr& operator=(const KeptStderr&) = delete;

  /// What was written so far. @throws IoError
  std::string text() const;

 private:
  std::string file_;
  int before_ = -1;
};

/// The first error among the lines of a job's stderr, without "meshplan: "; warnings are none.
/// Empty if there is no line.
std::string first_cause(const std::string& text);

}  // namespace meshplan::cli
