#pragma once

#include <functional>
#include <thread>

namespace meshplan::runtime {

/// A thread beside a rank's own that gets no signals: the handlers expect the rank's stack.
std::thread start_without_signals(std::function<void()> work);

}  // namespace meshplan::runtime
