// A process as one rank of a job, however the ranks were started and find each other.
#pragma once

#include <memory>

#include "runtime/comm/job_layout.hpp"

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
  /// A channel of all ranks; messages of two channels never meet. Called by all ranks at once.
  virtual std::unique_ptr<Channel> make_channel() const = 0;

 protected:
  JobLayout layout_;
};

}  // namespace meshplan::runtime
