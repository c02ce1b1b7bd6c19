// The JSONL log of a run: one line per event, in the file when the call returns.
#pragma once

#include <string>
#include <string_view>

namespace meshplan::cli {

class RunLog {
 public:
  /// @param append  after what is there: a resumed run goes on. @throws IoError
  RunLog(std::string path, bool append);
  ~RunLog();
  RunLog(const RunLog&) = delete;
  RunLog& operator=(const RunLog&) = delete;

  /// Writes a whole line with one call, so that a reader or a crash sees lines or nothing.
  /// @param line  without its end. @throws IoError
  void write(std::string_view line);

 private:
  std::string path_;
  int file_ = -1;
};

}  // namespace meshplan::cli
