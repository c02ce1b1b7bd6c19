// Unix sockets under abstract names: nothing in the file system, gone with their last user.
#pragma once

#include <string>

namespace meshplan::runtime {

/// A listening stream socket; its connections tell who has died. @throws IoError
int listen_for_lifelines(const std::string& name);
/// @throws IoError
int connect_lifeline(const std::string& name);

/// A datagram socket for texts. @throws IoError
int listen_for_reports(const std::string& name);
/// False if nobody listens there.
bool send_report(const std::string& name, const std::string& text);

}  // namespace meshplan::runtime
