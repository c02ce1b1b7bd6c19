#pragma once

#include <functional>
#include <stdexcept>

#include "core/error.hpp"
#include "runtime/comm/session.hpp"

namespace meshplan::runtime {

/// An error that every rank of the job throws, with the same text: rank 0 reports it.
class SharedError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The same for bad input.
class SharedConfigError : public ConfigError {
  using ConfigError::ConfigError;
};

/// Runs a rank's work; an exception is printed with rank and host, then ends the whole job.
/// Exit codes: 2 for ConfigError, 3 for InfeasibleError, else 1.
int run_rank(const Session& session, const std::function<int()>& work);

}  // namespace meshplan::runtime
