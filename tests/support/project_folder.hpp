#pragma once

#include <filesystem>

namespace meshplan::test {

/// Folder of the sources from which this test was built. Only one small file that holds it differs
/// between two clones, so a compiler's cache serves both.
std::filesystem::path project_folder();

}  // namespace meshplan::test
