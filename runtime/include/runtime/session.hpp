// A process as one rank of a job, however the ranks were started and find each other.
#pragma once

#include <functional>
#include <memory>
#include <stdexcept>

#include "runtime/job_layout.hpp"

namespace meshplan::runtime {

class Channel;

/// From the start of a rank to its end: the first object in `main`; everything that communicates
/// dies before it.
class Session {
 public:
  Session() = default;
  virtual ~Session() = default;
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  int rank() const { return layout_.rank; }
  int size() const { return layout_.size(); }
  const JobLayout& layout() const { return layout_; }

  /// Ends this process, and with it the job; does not return.
  [[noreturn]] virtual void abort(int exit_code) const = 0;
  /// Of all ranks; messages of two channels never meet. Called by all ranks at once.
  virtual std::unique_ptr<Channel> make_channel() const = 0;

 protected:
  JobLayout layout_;
};

/// An error that every rank of the job throws, with the same text: rank 0 reports it.
class SharedError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Runs a rank's work; an exception is printed with rank and host, then ends the whole job.
/// Exit codes: 2 for ConfigError, 3 for InfeasibleError, else 1.
int run_rank(const Session& session, const std::function<int()>& work);

}  // namespace meshplan::runtime
