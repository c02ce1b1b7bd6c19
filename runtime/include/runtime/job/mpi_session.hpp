#pragma once

#include "runtime/comm/session.hpp"

namespace meshplan::runtime {

/// MPI from start to end. Errors of MPI come back as CommError. If it dies while an exception
/// unwinds, it ends the job: the peers would wait for this rank for ever.
class MpiSession final : public Session {
 public:
  /// @throws CommError if MPI does not start
  MpiSession(int& argc, char**& argv);
  ~MpiSession() override;

  /// Ends all ranks of the job.
  [[noreturn]] void abort(int exit_code) const override;
  std::unique_ptr<Channel> make_channel() const override;

 private:
  static void start(int& argc, char**& argv);
};

}  // namespace meshplan::runtime
