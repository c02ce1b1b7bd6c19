// A page says itself that it is at work.
#include "output/progress.hpp"

namespace meshplan::cli {

struct Progress::Line {};
Progress::Progress(std::string, const Terminal&) {}
Progress::~Progress() = default;
void Progress::update(std::size_t, std::size_t) {}

struct ElapsedTime::Watch {};
ElapsedTime::ElapsedTime(std::string, const Terminal&) {}
ElapsedTime::~ElapsedTime() = default;

}  // namespace meshplan::cli
