// Walks over the tokens of a script as a shell would run them.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "shell/conditions.hpp"
#include "shell/script.hpp"

namespace meshplan::planner::shell {

class ScriptReader {
 public:
  ScriptReader(const std::map<std::string, std::string>& files,
               const std::map<std::string, std::string>& environment, const OpenFile& open);

  Script run(const std::string& main);

 private:
  struct Exit {};   // thrown where the script ends itself
  struct Break {};  // out of a loop's body
  struct Continue {};
  /// What becomes of the commands that are read.
  enum class Mode {
    Run,
    Skip,   // a branch that is not taken, a function's body
    Taint,  // a loop or a branch that may be taken: what it sets is unknown
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

  /// Where a command's input comes from, and its output goes.
  struct Redirected {
    std::string here;    // text of its here-document, expanded
    std::string output;  // name of the file
  };

  const Token& token() const { return (*tokens_).all[at_]; }
  int line() const { return line_of_text_.value_or(token().line); }
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
  bool begins_test() const;
  Status pipeline();
  Status command();
  Status if_command();
  Status case_command();
  void case_branch(const Value& value, bool& taken);
  Status loop();
  Status for_loop();
  Status while_loop();
  /// @returns false where the loop ends
  bool loop_body(std::size_t begin);
  /// In an order of lists where a condition is not known: what is set depends on what it needs.
  void list_tainted(const std::set<std::string>& needs);
  Status function_definition(const std::string& name);
  Status bracket_test(std::string_view close);
  Status arithmetic_command();
  Status simple_command();
  bool read_assignment(Assignment& assignment);
  void redirection(Redirected* redirected = nullptr);

  void assign(const Assignment& assignment);
  void set(const std::string& name, Variable variable);
  void taint(const std::string& name);
  void taint_branch(const Assignment& assignment);
  void note_argument(const std::string& name, const Value& value);
  Status execute(std::vector<Value> words, int line, const Redirected& redirected);
  /// Builtins that change the reader's own state. @returns none for other programs
  std::optional<Status> builtin(const std::vector<Value>& words);
  Status call(const Function& function, const std::vector<Value>& words);
  void start(std::vector<Value> words, int line, const std::string& here);
  /// A script in a string, as behind eval and bash -c. @returns false where it is none
  bool run_text(const std::string& text, int line, std::vector<Value> launcher);
  /// Another script that is started, with what stands behind its name.
  bool run_script(const std::vector<Value>& words, std::size_t at);
  void set_arguments(const std::vector<Value>& words, std::size_t first);
  void shift(const std::vector<Value>& words);
  void source(const std::vector<Value>& words);
  /// The file that a path names: as it is, beside the script, or by its last part.
  const std::string* file_of(const Value& path, std::string& name);
  void declare(const std::vector<Value>& words);

  /// A list that is read in another mode; tells whether it would have set anything.
  bool list_in(Mode mode, Status* status = nullptr);
  void assume(int line, std::string what);
  void note_taken_as_empty(int line);

  const std::map<std::string, std::string>& files_;
  const OpenFile& open_;
  std::string main_;
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
  std::map<std::string, std::string> opened_;   // files that open_ found
  std::map<std::string, std::string> written_;  // by the script: cat > name <<EOF
  std::deque<Tokens> texts_;                    // scripts in strings
  std::optional<int> line_of_text_;             // of the command that holds what is read
  std::vector<Value> launcher_;                 // in front of it
  std::set<std::string> needs_;                 // of the conditions that were not known
  std::set<std::string> taint_needs_;           // of the branch around what is read
  std::set<std::string> noted_;
};

}  // namespace meshplan::planner::shell
