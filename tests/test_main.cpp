#include "catch_runner.hpp"

int main(int argc, char** argv) {
  return meshplan::test::run_tests(argc, argv);
}
