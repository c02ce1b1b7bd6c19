// A secret for ranks of one machine that have none: its kernel says who is of which user.
#pragma once

#include <string>

#include "meet/secret.hpp"
#include "os/tcp_socket.hpp"

namespace meshplan::runtime {

/// Gives the secret to processes of this user, through a local socket.
class SecretForSameUser {
 public:
  /// @throws IoError if the name is taken
  SecretForSameUser(const std::string& name, const Secret& secret);
  /// Readable when somebody asks; then call answer(), which does not block.
  int descriptor() const { return listener_.get(); }
  void answer() const;

 private:
  Socket listener_;
  Secret secret_;
};

/// @throws IoError if nobody of this user gives it before the deadline
Secret secret_of_same_user(const std::string& name, const Deadline& deadline);

}  // namespace meshplan::runtime
