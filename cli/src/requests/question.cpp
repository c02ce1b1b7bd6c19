#include "requests/question.hpp"

namespace meshplan::cli {

std::string ask(const Question& question, std::vector<std::string> words) {
  CommandLine line(kSilent);
  Command command = line.add(question.name, question.summary);
  question.declare(command);
  std::string json;
  command.on_run([&] {
    json = question.answer(command);
    return 0;
  });
  words.insert(words.begin(), question.name);
  line.call(words);
  return json;
}

std::vector<OptionInfo> options_of(const Question& question) {
  CommandLine line(kSilent);
  Command command = line.add(question.name, question.summary);
  question.declare(command);
  return command.options();
}

}  // namespace meshplan::cli
