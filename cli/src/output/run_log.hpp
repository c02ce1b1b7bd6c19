// The JSONL log of a run: one line per event, in the file when the call returns. One run writes it.
#pragma once

#include <string>
#include <string_view>

namespace meshplan::cli {

class RunLog {
 public:
  /// Empties the file unless `append`, once it is sure that no other run writes it.
  /// @param append  after what is there: a resumed run goes on
  /// @throws ConfigError while another run writes it, or if it is a link to a file; IoError
  RunLog(const std::string& path, bool append);
  ~RunLog();
  /// The log of a run that is going on, for a process that is not its writer. @throws as above
  static RunLog beside_writer(const std::string& path);
  RunLog(const RunLog&) = delete;
  RunLog& operator=(const RunLog&) = delete;

  /// Writes a whole line with one call, so that a reader or a crash sees lines or nothing.
  /// @param line  without its end. @throws IoError
  void write(std::string_view line);

 private:
  RunLog(std::string path, int file);

  std::string path_;
  int file_;
};

/// Would RunLog begin? Asked before ranks are started; changes nothing that is there.
/// @throws as RunLog
void require_free_log(const std::string& path);

}  // namespace meshplan::cli
