#pragma once

namespace meshplan::test {

/// Runs the test cases that the command line names, as Catch's own main does.
/// @param failed  is called after each one that fails; null: nothing is
/// @returns the exit code
int run_tests(int argc, char** argv, void (*failed)() = nullptr);

}  // namespace meshplan::test
