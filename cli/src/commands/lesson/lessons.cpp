#include "commands/lesson/lessons.hpp"

#include "core/embedded_file.hpp"
#include "core/json_fields.hpp"

namespace meshplan::cli {

std::span<const EmbeddedFile> lesson_presets();

namespace {

std::vector<std::string> words_of_settings(const Json& settings) {
  std::vector<std::string> words;
  for (const auto& [name, value] : settings.items()) {
    if (value == false) continue;
    words.push_back("--" + name);
    if (value == true) continue;
    words.push_back(value.is_string() ? value.get<std::string>() : value.dump());
  }
  return words;
}

/// Each run is the first with some settings changed, as each plan of the page's lessons is.
std::vector<LessonRun> runs_of(const Json& written) {
  std::vector<LessonRun> runs;
  for (const Json& run : written) {
    Json settings = written.front().at("plan");
    settings.update(run.at("plan"));
    runs.push_back({run.at("name").get<std::string>(), words_of_settings(settings)});
  }
  return runs;
}

}  // namespace

std::vector<Lesson> lessons() {
  std::vector<Lesson> all;
  for (const EmbeddedFile& file : lesson_presets()) {
    const Json lesson = parse_json(file.text, file.name);
    const Json& laptop = lesson.at("laptop");
    all.push_back({.number = static_cast<int>(all.size()) + 1,
                   .title = lesson.at("title").get<std::string>(),
                   .minutes = lesson.at("minutes").get<int>(),
                   .about = laptop.at("about").get<std::string>(),
                   .runs = runs_of(laptop.at("runs")),
                   .look = laptop.at("look").get<std::vector<std::string>>()});
  }
  return all;
}

std::size_t lesson_count() {
  return lesson_presets().size();
}

}  // namespace meshplan::cli
