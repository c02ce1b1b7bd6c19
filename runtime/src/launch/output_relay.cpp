#include "launch/output_relay.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>
#include <utility>

#include "core/error.hpp"

namespace meshplan::runtime {

OutputRelay::OutputRelay(int stream) : stream_(stream) {
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0)
    throw IoError(
        fmt::format("cannot make a pipe for the ranks' output: {}", std::strerror(errno)));
  read_end_ = ends[0];
  write_end_ = ends[1];
  ::fcntl(read_end_, F_SETFL, O_NONBLOCK);
}

OutputRelay::~OutputRelay() {
  close_child_end();
  if (read_end_ >= 0) ::close(read_end_);
}

void OutputRelay::close_child_end() {
  if (write_end_ >= 0) ::close(std::exchange(write_end_, -1));
}

void OutputRelay::add_to(std::vector<pollfd>& fds) const {
  fds.push_back({held_.size() < kMostHeld ? read_end_ : -1, POLLIN, 0});
  fds.push_back({held_.empty() ? -1 : stream_, POLLOUT, 0});
}

void OutputRelay::pass_on() {
  take();
  give();
}

void OutputRelay::take() {
  std::array<char, 65536> bytes{};
  while (read_end_ >= 0 && held_.size() < kMostHeld) {
    const ssize_t length = ::read(read_end_, bytes.data(), bytes.size());
    if (length < 0 && errno == EINTR) continue;
    if (length < 0 && errno == EAGAIN) return;
    if (length <= 0) {
      ::close(std::exchange(read_end_, -1));
      return;
    }
    if (loss_.empty()) held_.append(bytes.data(), static_cast<std::size_t>(length));
  }
}

/// The stream's description is shared with other processes, so it is not made non-blocking: what
/// poll finds writable takes a page of a pipe at once.
void OutputRelay::give() {
  constexpr std::size_t kAtOnce = 4096;
  std::size_t done = 0;
  while (done < held_.size() && loss_.empty()) {
    pollfd ready{stream_, POLLOUT, 0};
    if (::poll(&ready, 1, 0) <= 0) break;
    const ssize_t length =
        ::write(stream_, held_.data() + done, std::min(kAtOnce, held_.size() - done));
    if (length >= 0)
      done += static_cast<std::size_t>(length);
    else if (errno == EAGAIN)
      break;
    else if (errno != EINTR)
      loss_ = std::strerror(errno);
  }
  held_.erase(0, loss_.empty() ? done : held_.size());
}

}  // namespace meshplan::runtime
