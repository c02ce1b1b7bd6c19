#pragma once
// Catch2 3 (Debian 13, Ubuntu 24.04) under the header and the names of Catch2 2.13 (Debian 12), in
// which the tests are written. On the include path only where version 3 is installed. Only what the
// tests use: all of version 3 costs twice the time to compile.
#include <catch2/catch_approx.hpp>
#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/catch_tostring.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <catch2/matchers/catch_matchers_vector.hpp>
#ifdef CATCH_CONFIG_RUNNER
#include <catch2/catch_session.hpp>
#include <catch2/catch_test_case_info.hpp>
#include <catch2/reporters/catch_reporter_event_listener.hpp>
#include <catch2/reporters/catch_reporter_registrars.hpp>
#endif

using Catch::Approx;

namespace Catch {

namespace Matchers {
/// Matches a string that has this part. (Version 3's Contains, about ranges, is not included.)
inline StringContainsMatcher Contains(const std::string& part) {
  return ContainsSubstring(part);
}
}  // namespace Matchers

using namespace Matchers;  // as in version 2
#ifdef CATCH_CONFIG_RUNNER
struct TestEventListenerBase : EventListenerBase {
  using EventListenerBase::EventListenerBase;
};
#endif

}  // namespace Catch
