#pragma once

#include <functional>
#include <stdexcept>

#include "runtime/job_layout.hpp"

namespace meshplan::runtime {

/// MPI from start to end. The first object in `main`; everything that uses MPI dies before it.
/// Errors of MPI come back as CommError. If it dies while an exception unwinds, it ends the job:
/// the peers would wait for this rank for ever.
class MpiSession {
 public:
  /// @throws CommError if MPI does not start
  MpiSession(int& argc, char**& argv);
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  int rank() const { return layout_.rank; }
  int size() const { return layout_.size(); }
  const JobLayout& layout() const { return layout_; }

  /// Ends all ranks of the job; does not return.
  [[noreturn]] void abort(int exit_code) const;

 private:
  JobLayout layout_;
};

/// An error that every rank of the job throws, with the same text: rank 0 reports it.
class SharedError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Runs a rank's work; an exception is printed with rank and host, then ends the whole job.
/// Exit codes: 2 for ConfigError, 3 for InfeasibleError, else 1.
int run_rank(const MpiSession& session, const std::function<int()>& work);

}  // namespace meshplan::runtime
