// What a job prints, on its way to where this process prints.
#pragma once

#include <optional>
#include <poll.h>
#include <string>
#include <string_view>
#include <vector>

namespace meshplan::runtime {

/// A pipe for a child's output, and the stream of this process that it goes to. A stream that takes
/// nothing for a while makes nobody wait: the text is held (kMostHeld bytes at most, then the child
/// waits). A stream that fails (a reader that has left, a full disk, a closed descriptor) is given
/// up: the pipe is read on and the text dropped. SIGPIPE must be ignored.
class OutputRelay {
 public:
  static constexpr std::size_t kMostHeld = std::size_t{64} << 20;

  /// @throws IoError without a pipe
  explicit OutputRelay(int stream);
  ~OutputRelay();
  OutputRelay(const OutputRelay&) = delete;
  OutputRelay& operator=(const OutputRelay&) = delete;

  /// The child's end, until it is closed here.
  int child_end() const { return write_end_; }
  void close_child_end();

  /// Text of this process's own.
  void say(std::string_view text) { held_ += text; }
  void add_to(std::vector<pollfd>& fds) const;
  /// Takes what has come and passes on what the stream takes now.
  void pass_on();
  bool holds_text() const { return !held_.empty(); }
  /// Why the stream was given up; empty as long as it was not.
  const std::string& loss() const { return loss_; }

 private:
  void take();
  void give();

  int stream_;
  int read_end_ = -1;
  int write_end_ = -1;
  std::string held_;
  std::string loss_;
};

}  // namespace meshplan::runtime
