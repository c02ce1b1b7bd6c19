// Sockets between processes of one user on one machine, by abstract names: no file, no clean-up.
#pragma once

#include <optional>
#include <string>

namespace meshplan::runtime {

/// Any process of the machine may connect to an abstract name, so both ends ask the kernel who the
/// other is (SO_PEERCRED) and accept only this process's own user.
struct LocalPeer {
  int socket = -1;
  int pid = 0;  // of the process that connected
};

/// Listens for connections that keep the borders of messages. @throws IoError
int listen_locally(const std::string& name);
/// @throws IoError also if another user's process listens there
int connect_locally(const std::string& name);
/// The next connection of this user's processes; others are closed. Nothing if none waits.
std::optional<LocalPeer> accept_own_user(int listener);

}  // namespace meshplan::runtime
