// The lessons of the classroom (classroom/lessons): what `meshplan lesson` runs of them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace meshplan::cli {

struct LessonRun {
  std::string name;
  std::vector<std::string> words;  // --model tiny-llama --gpus 2 ...
};

struct Lesson {
  int number = 0;  // from 1
  std::string title;
  int minutes = 0;
  std::string about;              // what is run
  std::vector<LessonRun> runs;    // the first is what the others are compared with
  std::vector<std::string> look;  // what to see in the figures
};

/// In their order.
std::vector<Lesson> lessons();
/// Their number, without reading them.
std::size_t lesson_count();

}  // namespace meshplan::cli
