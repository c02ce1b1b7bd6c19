#include "guard/peer_link.hpp"

#include <cerrno>
#include <cstring>
#include <sys/socket.h>

namespace meshplan::runtime {

void PeerLink::send(const Frame& frame) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&frame);
  outgoing_.insert(outgoing_.end(), bytes, bytes + sizeof(Frame));
  flush();
}

void PeerLink::flush() {
  while (open_ && !outgoing_.empty()) {
    const auto sent = ::send(socket_.get(), outgoing_.data(), outgoing_.size(), MSG_NOSIGNAL);
    if (sent > 0)
      outgoing_.erase(outgoing_.begin(), outgoing_.begin() + sent);
    else if (sent < 0 && (errno == EAGAIN || errno == EINTR))
      return;
    else
      open_ = false;
  }
}

std::vector<Frame> PeerLink::receive() {
  flush();
  std::byte buffer[16 * sizeof(Frame)];
  while (open_) {
    const auto got = ::recv(socket_.get(), buffer, sizeof(buffer), 0);
    if (got > 0)
      incoming_.insert(incoming_.end(), buffer, buffer + got);
    else if (got < 0 && errno == EINTR)
      continue;
    else if (got < 0 && errno == EAGAIN)
      break;
    else
      open_ = false;
  }
  std::vector<Frame> frames(incoming_.size() / sizeof(Frame));
  if (!frames.empty()) {
    const std::size_t whole = frames.size() * sizeof(Frame);
    std::memcpy(static_cast<void*>(frames.data()), incoming_.data(), whole);
    incoming_.erase(incoming_.begin(), incoming_.begin() + static_cast<std::ptrdiff_t>(whole));
  }
  for (Frame& frame : frames) frame.text[sizeof(frame.text) - 1] = '\0';
  return frames;
}

}  // namespace meshplan::runtime
