#include "launch/control_port.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <linux/filter.h>
#include <optional>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <vector>

#include "launch/launcher_watch.hpp"
#include "os/process_watch.hpp"
#include "os/tcp_socket.hpp"

namespace meshplan::runtime {
namespace {

std::optional<int> number_in(std::string_view text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole ? std::optional(number) : std::nullopt;
}

/// The port in `--control-port HOST:PORT` of the proxy that started this rank.
std::optional<int> port_that_proxy_called() {
  for (const int pid : ancestors_of(::getpid())) {
    if (name_of(pid) != kProxyName) continue;
    const std::vector<std::string> arguments = arguments_of_process(pid);
    const auto option = std::ranges::find(arguments, "--control-port");
    if (option == arguments.end() || option + 1 == arguments.end()) return std::nullopt;
    const std::string_view place = *(option + 1);
    return number_in(place.substr(place.rfind(':') + 1));
  }
  return std::nullopt;
}

bool listens_at(int descriptor, int port) {
  int listens = 0;
  socklen_t size = sizeof listens;
  if (::getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0) return false;
  Socket socket(descriptor);
  const bool found = listens != 0 && near_port(socket) == port;
  socket.release();
  return found;
}

}  // namespace

ControlPort::ControlPort() {
  const std::optional<int> port = port_that_proxy_called();
  if (!port) return;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", ignored)) {
    const auto descriptor = number_in(entry.path().filename().string());
    if (descriptor && listens_at(*descriptor, *port)) socket_ = *descriptor;
  }
}

ControlPort::~ControlPort() {
  if (socket_ >= 0) ::close(socket_);
}

void ControlPort::close_to_strangers() {
  if (socket_ < 0) return;
  sock_filter nothing = BPF_STMT(BPF_RET | BPF_K, 0);
  const sock_fprog filter{1, &nothing};
  ::setsockopt(socket_, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter);
  ::close(std::exchange(socket_, -1));
}

bool is_alone_under_proxy(const EnvironmentLookup& environment) {
  const auto number = [&](const char* name) {
    const char* text = environment(name);
    return text == nullptr ? std::nullopt : number_in(text);
  };
  const auto ranks = number("PMI_SIZE");
  return ranks && ranks == number("MPI_LOCALNRANKS");
}

}  // namespace meshplan::runtime
