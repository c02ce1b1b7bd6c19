#pragma once

#include <string>

namespace meshplan::cli {

/// While it lives, what this process and those that it starts write to stdout and stderr goes into
/// a file, for it to be told in another way: mpiexec prints on stdout how a job ended. One at a
/// time.
class KeptOutput {
 public:
  /// @param file  is replaced. @throws IoError
  explicit KeptOutput(std::string file);
  ~KeptOutput();
  KeptOutput(const KeptOutput&) = delete;
  KeptOutput& operator=(const KeptOutput&) = delete;

  /// What was written so far. @throws IoError
  std::string text() const;

 private:
  std::string file_;
  int stdout_before_ = -1;
  int stderr_before_ = -1;
};

/// The first error among the lines of a job's output, without "meshplan: "; warnings are none.
/// Empty if there is no line.
std::string first_cause(const std::string& text);

}  // namespace meshplan::cli
