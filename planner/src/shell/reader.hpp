// Walks over the tokens of a script as a shell would run them.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "shell/conditions.hpp"
#include "shell/script.hpp"

namespace meshplan::planner::shell {

class ScriptReader {
 public:
  ScriptReader(const std::map<std::string, std::string>& files,
               const std::map<std::string, std::string>& environment);

  Script run(const std::string& main);

 private:
  struct Exit {};  // thrown where the script ends itself
  /// What becomes of the commands that are read.
  enum class Mode {
    Run,
    Skip,   // a branch that is not taken, a function's body
    Taint,  // a loop: what it sets is unknown
  };
  struct Function {
    const Tokens* tokens;
    std::string file;
    std::size_t begin;  // its body
  };
  struct Assignment {
    std::string name;
    std::string subscript;  // "A[i]=x"
    bool has_subscript = false;
    bool appends = false;
    std::string word;       // of a scalar
    bool is_array = false;  // the next tokens are its items
    std::size_t items_begin = 0;
    std::size_t items_end = 0;
  };

  const Token& token() const { return (*tokens_).all[at_]; }
  bool is_operator(std::string_view text) const {
    return token().kind == Token::Kind::Operator && token().text == text;
  }
  bool is_word(std::string_view text) const {
    return token().kind == Token::Kind::Word && token().text == text;
  }
  void expect_word(std::string_view text);
  void skip_newlines();

  void file(const std::string& name, const std::string& text);
  /// Commands up to one of the words that end a list here ("fi", "done", "}"), or ")".
  Status list();
  bool ends_list() const;
  Status and_or();
  Status pipeline();
  Status command();
  Status if_command();
  Status case_command();
  void case_branch(const Value& value, bool& taken);
  Status loop();
  Status function_definition(const std::string& name);
  Status bracket_test(std::string_view close);
  Status arithmetic_command();
  Status simple_command();
  bool read_assignment(Assignment& assignment);
  void redirection();

  void assign(const Assignment& assignment);
  void set(const std::string& name, Variable variable);
  void taint(const std::string& name);
  Status execute(std::vector<Value> words, int line);
  Status call(const Function& function);
  void source(const std::vector<Value>& words);
  void declare(const std::vector<Value>& words);

  /// A list that is read in another mode; tells whether it would have set anything.
  bool list_in(Mode mode, Status* status = nullptr);
  void assume(int line, std::string what);
  void note_taken_as_empty(int line);

  const std::map<std::string, std::string>& files_;
  Script script_;
  Budget budget_;
  Expander expander_;
  const Tokens* tokens_ = nullptr;
  std::size_t at_ = 0;
  std::string file_;
  Mode mode_ = Mode::Run;
  int branches_ = 0;         // around what is read
  int skipped_effects_ = 0;  // assignments and programs that were not read
  int parsing_depth_ = 0;
  std::map<std::string, Function> functions_;
  std::map<std::string, Tokens> read_files_;
  std::set<std::string> noted_;
};

}  // namespace meshplan::planner::shell
