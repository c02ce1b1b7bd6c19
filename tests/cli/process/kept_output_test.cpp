#include "process/kept_output.hpp"

#include <catch2/catch.hpp>

namespace meshplan::cli {

TEST_CASE("the first cause is the first error, not a warning", "[cli]") {
  CHECK(first_cause("\nmeshplan: warning: other processes used 30 %\nmeshplan: rank 1: no memory\n"
                    "meshplan: rank 0: lost rank 1\n") == "rank 1: no memory");
  CHECK(first_cause("[proxy] something\nmeshplan: the job ends: rank 0 died\n") ==
        "the job ends: rank 0 died");
  CHECK(first_cause("execvp error\n") == "execvp error");
  CHECK(first_cause("").empty());
}

}  // namespace meshplan::cli
