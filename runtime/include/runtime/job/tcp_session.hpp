#pragma once

#include <memory>

#include "core/units.hpp"
#include "runtime/comm/session.hpp"
#include "runtime/launch/rendezvous.hpp"

namespace meshplan::runtime {

class TcpMesh;

/// Ranks that torchrun, or anything that sets its variables, has started: they meet at rank 0 and
/// then hold a connection with each other. Nobody else ends the job: if a rank fails, its guardian
/// (Watchdog) ends the others of its machine and has the other machines do the same.
class TcpSession final : public Session {
 public:
  /// Returns or throws within `timeout`. Warns on standard error if anybody may join.
  /// @throws ConfigError if the ranks were started for different jobs
  /// @throws IoError if they do not come, or two cannot reach each other
  TcpSession(const Rendezvous& place, Seconds timeout);
  ~TcpSession() override;

  [[noreturn]] void abort(int exit_code) const override;
  std::unique_ptr<Channel> make_channel() const override;

 private:
  std::shared_ptr<TcpMesh> mesh_;
};

}  // namespace meshplan::runtime
