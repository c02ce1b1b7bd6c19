// Expected words are those that GNU bash 5.2 passes on for the same text.
#include "shell/script.hpp"

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "core/error.hpp"

namespace meshplan::planner::shell {
namespace {

using Environment = std::map<std::string, std::string>;

Script read(const std::string& text, const Environment& environment = {}) {
  return read_script({{"run.sh", text}}, "run.sh", environment);
}

/// The words of the last command, as bash's printf '<%s>' would show them.
std::string words(const std::string& text, const Environment& environment = {}) {
  const Script script = read(text, environment);
  std::string shown;
  if (!script.commands.empty())
    for (const Value& word : script.commands.back().words) shown += "<" + word.text + ">";
  return shown;
}

/// Why a word is not known.
std::vector<std::string> whys(const Value& value) {
  std::vector<std::string> all;
  for (const Unknown& each : value.unknown) all.push_back(each.why);
  return all;
}

std::string refusal(const std::string& text) {
  try {
    read(text);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("words are split, joined over lines and stripped of comments", "[planner][shell]") {
  CHECK(words("prog a  b \\\n  c # d\n") == "<prog><a><b><c>");
  CHECK(words("prog a\\\nb") == "<prog><ab>");
  CHECK(words("prog 'a b' \"c d\"e f\\ g ''") == "<prog><a b><c de><f g><>");
  CHECK(words("prog a#b 2>&1 >log <in; true") == "<prog><a#b>");
  CHECK(words("prog --f=\"x y\" 'it'\"'\"'s'") == "<prog><--f=x y><it's>");
  CHECK(words("prog \"a\\\"b\\$c\\d\"") == "<prog><a\"b$c\\d>");
  CHECK(words("prog a\r\n") == "<prog><a>");
}

TEST_CASE("variables keep blanks in quotes and split outside", "[planner][shell]") {
  CHECK(words("A='1  2'; prog $A \"$A\" x${A}y") == "<prog><1><2><1  2><x1><2y>");
  CHECK(words("A=8\nB=$A$A; prog ${B}") == "<prog><88>");
  CHECK(words("A=; prog $A \"$A\" b") == "<prog><><b>");
  CHECK(words("A=1; A+=2; export B=$A C=3; prog $A $B $C") == "<prog><12><12><3>");
  CHECK(words("ARGS=\" \\\n  --a 1 \\\n  --b \"; prog $ARGS") == "<prog><--a><1><--b>");
}

TEST_CASE("defaults stand where a variable is not set, or empty", "[planner][shell]") {
  CHECK(words("prog ${A:-8} ${A-9} ${A:+x} ${A:-\"p q\"}") == "<prog><8><9><p q>");
  CHECK(words("A=1; prog ${A:-8} ${A:+x}") == "<prog><1><x>");
  CHECK(words("A=; prog ${A:-8} ${A-9}z") == "<prog><8><z>");
  CHECK(words(": ${A:=5}; prog $A") == "<prog><5>");
  CHECK(words("prog ${TP:-1}", {{"TP", "4"}}) == "<prog><4>");
  CHECK(words("B=2; prog ${A:-${B:-3}}") == "<prog><2>");
}

TEST_CASE("arrays give one word an item", "[planner][shell]") {
  CHECK(words("A=(--x 1 # why\n  --y '2 3')\nprog \"${A[@]}\" ${A[@]}") ==
        "<prog><--x><1><--y><2 3><--x><1><--y><2><3>");
  CHECK(words("A=(a); A+=(b c); B=(\"${A[@]}\" d); prog \"${B[@]}\" ${#B[@]}") ==
        "<prog><a><b><c><d><4>");
  CHECK(words("A=(); prog \"${A[@]}\" x") == "<prog><x>");
  CHECK(words("A=(a b); prog \"x${A[@]}y\" \"${A[*]}\" ${A[1]} $A") == "<prog><xa><by><a b><b><a>");
  CHECK(words("A=(a b); A[1]=c; A[2]=d; prog ${A[@]}") == "<prog><a><c><d>");
}

TEST_CASE("arithmetic computes as a shell does", "[planner][shell]") {
  CHECK(words("G=8; N=16; prog $(($G*$N)) $((G*N/4)) $(( (1+2)*3 % 4 ))") == "<prog><128><32><1>");
  CHECK(words("prog $((2**10)) $((7/2)) $((-7/2)) $((1<2)) $((2>=3)) $((1?5:6))") ==
        "<prog><1024><3><-3><1><0><5>");
  CHECK(words("prog $((2**3**2)) $((10-2-3)) $((1+2*3))") == "<prog><512><5><7>");
  CHECK(refusal("prog $((1/0))") == "run.sh:1: it divides by zero");
  CHECK(refusal("\nprog $((9223372036854775807+1))") == "run.sh:2: + overflows 64 bits");
  CHECK(refusal("prog $((3**60))") == "run.sh:1: ** overflows 64 bits");
}

TEST_CASE("branches are taken by what is known", "[planner][shell]") {
  CHECK(words("T=fp8\nif [[ \"$T\" == \"fp8\" ]]; then A=1; else A=2; fi; prog $A") == "<prog><1>");
  CHECK(
      words("N=4\nif [ $N -gt 8 ]; then A=1; elif [ $N -ge 4 ]; then A=2; else A=3; fi\nprog $A") ==
      "<prog><2>");
  CHECK(words("M=7b; case $M in 13b) A=1;; 7*|8b) A=2 ;; *) A=3;; esac; prog $A") == "<prog><2>");
  CHECK(words("A=x; [ -n \"$A\" ] && A=y; [ -z \"$A\" ] && A=z; prog $A") == "<prog><y>");
  CHECK(words("A=x; [ $A = y ] || A=n; prog $A") == "<prog><n>");
  CHECK(words("A=1; if [[ $A == 1 && ! ( $A == 2 || $A == 3 ) ]]; then A=4; fi; prog $A") ==
        "<prog><4>");
  CHECK(words("f() { A=5; }\nf\nfunction g { A=$A$A; }\ng; prog $A") == "<prog><55>");
}

TEST_CASE("what cannot be known is named", "[planner][shell]") {
  const Script script = read("A=$(nproc)\nprog $1 \"${B}/x\" $A `hostname`");
  REQUIRE(script.commands.size() == 1);
  const auto& read_words = script.commands.front().words;
  REQUIRE(read_words.size() == 5);
  CHECK(whys(read_words[1]) == std::vector<std::string>{"1 is not set"});
  CHECK(read_words[2].text == "${B}/x");
  CHECK(whys(read_words[2]) == std::vector<std::string>{"B is not set"});
  CHECK(read_words[2].unknown.front().needs == std::set<std::string>{"B"});
  CHECK(whys(read_words[3]) == std::vector<std::string>{"$(nproc) is a command's output"});
  CHECK(whys(read_words[4]) == std::vector<std::string>{"`hostname` is a command's output"});
  CHECK(words("prog $1", {{"1", "here"}}) == "<prog><here>");
  const Script split = read("A=(\"--save ${DIR}/x --lr 1 --at $(date +%s)\"); prog ${A[@]}");
  const auto& fields = split.commands.front().words;
  REQUIRE(fields.size() == 7);
  CHECK(fields[2].text == "${DIR}/x");
  CHECK(whys(fields[2]) == std::vector<std::string>{"DIR is not set"});
  CHECK(fields[4] == Value{"1", {}});
  CHECK(fields[6].text == "$(date +%s)");
  const Script counted = read("N=$((NODES*8)); prog $N");
  CHECK(whys(counted.commands.front().words[1]) == std::vector<std::string>{"NODES is not set"});
}

TEST_CASE("branches that need the machine are left out and listed", "[planner][shell]") {
  const Script script = read(
      "A=1\n"
      "if [ -f /etc/x ]; then\n  A=2\nfi\n"
      "if command -v nvidia-smi; then A=3; else A=4; fi\n"
      "if [ -n \"$KEY\" ]; then A=5; fi\n"
      "for i in 1 2; do B=$i; done\n"
      "while [ $# -gt 0 ]; do C=$1; shift; done\n"
      "if [ -z \"$1\" ]; then echo usage; exit 1; fi\n"
      "prog $A $B ${C:-none}\n");
  REQUIRE(script.commands.size() == 2);
  CHECK(script.commands.front().words.front().text == "-v");
  const auto& read_words = script.commands.back().words;
  CHECK(read_words[1].text == "4");
  CHECK(read_words[2].text == "2");
  CHECK(read_words[3].text == "none");
  CHECK(script.assumptions ==
        std::vector<std::string>{
            "run.sh:2: a branch of this 'if' is left out: its condition is not known",
            "run.sh:5: a branch of this 'if' is left out: its condition is not known",
            "run.sh:6: KEY is not set: taken as empty", "run.sh:9: 1 is not set: taken as empty",
            "run.sh:9: 'exit' in a branch is passed over: what it checks is taken to hold"});
}

TEST_CASE("loops run where their words are known, else what they set is not", "[planner][shell]") {
  CHECK(words("A=; for i in 1 2 3; do A+=$i; done; prog $A $i") == "<prog><123><3>");
  CHECK(words("A=; for i in 1 2 3; do if [ $i = 2 ]; then continue; fi; A+=$i; done; prog $A") ==
        "<prog><13>");
  CHECK(words("A=; for i in 1 2 3; do if [ $i = 2 ]; then break; fi; A+=$i; done; prog $A") ==
        "<prog><1>");
  CHECK(words("N=3; A=; while [ $N -gt 0 ]; do A+=$N; N=$((N-1)); done; prog $A") == "<prog><321>");
  CHECK(words("for i in $(seq 2); do A+=$i; done; prog $A") == "<prog><12>");
  CHECK(words("for i in; do A=1; done; prog ${A:-none}") == "<prog><none>");
  const Script unknown = read("for i in $X; do A=$i; done; prog $A");
  CHECK(whys(unknown.commands.front().words[1]) == std::vector<std::string>{"A is set in a loop"});
  CHECK(refusal("while true; do A=1; done; prog $A") == "accepted");
  CHECK(refusal("while true; do while true; do A=1; done; done")
            .ends_with("its variables grow beyond 2 MiB of text"));
}

TEST_CASE("arguments are given, counted, shifted and passed on", "[planner][shell]") {
  const Environment three{{"1", "a"}, {"2", "b c"}, {"3", "d"}};
  CHECK(words("prog $# \"$@\" $3 ${2}", three) == "<prog><3><a><b c><d><d><b><c>");
  CHECK(words("shift; prog $# $1; ", three) == "<prog><2><b><c>");
  CHECK(words("shift 2; prog $# $1 \"$2\"", three) == "<prog><1><d><$2>");
  CHECK(words("while [[ $# -gt 0 ]]; do case $1 in --tp) TP=$2; shift 2;; *) shift;; esac; done\n"
              "prog $TP",
              {{"1", "x"}, {"2", "--tp"}, {"3", "8"}}) == "<prog><8>");
  CHECK(words("set -- p q; prog $2 $#") == "<prog><q><2>");
  CHECK(words("f() { A=\"$1-$2-$#\"; }; f x; prog $A $1", three) == "<prog><x--1><a>");
  const Script script = read("SIZE=$2\nif [ $SIZE = 7B ]; then L=32; fi\nprog $L ${4}");
  CHECK(script.argument_names == std::map<std::string, std::string>{{"2", "SIZE"}});
  CHECK(script.choices.at("2") == std::vector<std::string>{"7B"});
  CHECK(script.last_argument == 4);
}

TEST_CASE("what a branch sets is unknown where its condition needs an argument",
          "[planner][shell]") {
  const Script script = read(
      "SIZE=$1\nA=(--x 1)\nB=1\nC=1\n"
      "if [ $SIZE = 7B ]; then B=2; A+=(--bf16); elif [ $SIZE = 8B ]; then B=3; else B=4; fi\n"
      "case $SIZE in 7B) D=1;; *) D=2;; esac\n"
      "[ $SIZE = 7B ] && E=\" --swiglu\"\n"
      "if [ -f x ]; then C=2; fi\n"
      "prog $B $C ${A[@]} $D $E\n");
  const auto& all = script.commands.front().words;
  REQUIRE(all.size() == 8);
  const std::set<std::string> first{"1"};
  CHECK(all[1].unknown.front().needs == first);
  CHECK(all[1].unknown.front().why == "B depends on what is not known");
  CHECK(all[2] == Value{"1", {}});  // a file's test leaves its branch out, and says so
  CHECK(all[3].text == "--x");
  CHECK(all[4].text == "1");
  CHECK(all[5].unknown.front().flags == std::set<std::string>{"--bf16"});
  CHECK(all[6].unknown.front().needs == first);
  CHECK(all[7].unknown.front().flags == std::set<std::string>{"--swiglu"});
  CHECK(script.choices.at("1") == std::vector<std::string>{"7B", "8B"});
  // One test that is false decides, whatever the other needs.
  CHECK(words("T=1; A=1; if [ $1x = y ] && [ $T -gt 1 ]; then A=2; fi; prog $A") == "<prog><1>");
}

TEST_CASE("commands that need no machine are worked out", "[planner][shell]") {
  CHECK(words("prog $(basename /a/b.sh .sh) $(dirname /a/b.sh) `basename x/y`") ==
        "<prog><b></a><y>");
  CHECK(words("prog $(echo 2*3 | bc) $(expr 7 + 1) $(seq 2 4) $(echo a b)") ==
        "<prog><6><8><2><3><4><a><b>");
  CHECK(words("D=$(cd $(dirname $0) && pwd); prog $D $0") == "<prog><.><run.sh>");
  CHECK(words("F=a/b.tar.gz; prog ${F##*/} ${F%.gz} ${F%%.*} ${F#a} ${F/b/c} ${F:2:1}") ==
        "<prog><b.tar.gz><a/b.tar><a/b></b.tar.gz><a/c.tar.gz><b>");
  CHECK(words("A=aB; N=A; prog ${A^^} ${A,,} ${!N}") == "<prog><AB><ab><aB>");
  const Script unknown = read("prog $(basename $1) $(nproc) $(echo 1.5*2 | bc)");
  const auto& all = unknown.commands.front().words;
  CHECK(all[1].unknown.front().needs == std::set<std::string>{"1"});
  CHECK_FALSE(all[2].known());
  CHECK_FALSE(all[3].known());
}

TEST_CASE("scripts in strings, here-documents and files are read, too", "[planner][shell]") {
  CHECK(words("C=\"prog --a '1 2' \\$B\"; B=3; eval $C") == "<prog><--a><1 2><3>");
  CHECK(words("srun -N 2 bash -c 'A=4; prog $A'") == "<srun><-N><2><bash><prog><4>");
  CHECK(words("T=5; sbatch <<EOF\n#SBATCH -N 2\nprog \"$T\" \\$T\nEOF\n") ==
        "<sbatch><prog><5><5>");
  CHECK(words("cat > job.sh <<'EOF'\nprog $1\nEOF\nsbatch job.sh\n").starts_with("<sbatch><prog>"));
  const Script script = read_script({{"a.sh", "bash sub/b.sh 7"}}, "a.sh", {},
                                    [](const std::string& path) -> std::optional<std::string> {
                                      if (path != "sub/b.sh") return std::nullopt;
                                      return "prog $1";
                                    });
  REQUIRE(script.commands.size() == 1);
  CHECK(script.commands.front().words.back().text == "7");
  CHECK(words("prog <<< word x") == "<prog><x>");
  CHECK(shell_words("a 'b c' d\\ e") == std::vector<std::string>{"a", "b c", "d e"});
  CHECK_THROWS_AS(shell_words("a | b"), ConfigError);
}

TEST_CASE("here-documents are passed over, directives of Slurm kept", "[planner][shell]") {
  const Script script = read(
      "#!/bin/bash\n#SBATCH --nodes=4 --gpus-per-node=8  # a comment\n#SBATCH -J name\n"
      "cat > x <<'EOF'\nA=1 \"unterminated\nEOF\nprog <<-E a\n\tb\n\tE\nother\n");
  CHECK(script.directives ==
        std::vector<std::string>{"--nodes=4", "--gpus-per-node=8", "-J", "name"});
  REQUIRE(script.commands.size() == 2);
  CHECK(script.commands[0].words.size() == 2);
  CHECK(script.commands[1].words.front().text == "other");
  CHECK(script.commands[1].line == 10);
}

TEST_CASE("files that a script sources are read where they are given", "[planner][shell]") {
  const std::map<std::string, std::string> files{
      {"conf/run.sh", "source $(dirname $0)/model.sh\n. other.sh\nprog $A"},
      {"conf/model.sh", "A=7"}};
  const Script script = read_script(files, "conf/run.sh", {});
  CHECK(script.commands.front().words[1].text == "7");
  CHECK(script.assumptions ==
        std::vector<std::string>{"conf/run.sh:2: other.sh is not read: what it sets is not known"});
  CHECK_THROWS_WITH(read_script({{"a.sh", "source b.sh"}, {"b.sh", "source a.sh"}}, "a.sh", {}),
                    Catch::Contains("nest deeper than 64 levels"));
}

TEST_CASE("what is no script is refused with its place", "[planner][shell]") {
  CHECK(refusal("a\nprog 'open") == "run.sh:2: unterminated quote '");
  CHECK(refusal("prog $(a") == "run.sh:1: unterminated: expected )");
  CHECK(refusal("A=(1 2") == "run.sh:1: array A: expected ')'");
  CHECK(refusal("if true; then a") == "run.sh:1: expected 'fi', got ''");
  CHECK(refusal("fi") == "run.sh:1: 'fi' without its beginning");
  CHECK(refusal("case x in a) b") == "run.sh:1: expected 'esac'");
}

TEST_CASE("a hostile script is bounded in time and memory", "[planner][shell]") {
  std::string doubling = "A=x\n";
  for (int i = 0; i < 64; ++i) doubling += "A=$A$A\n";
  CHECK(refusal(doubling).ends_with("its variables grow beyond 2 MiB of text"));
  std::string arrays = "A=(1 2)\n";
  for (int i = 0; i < 64; ++i) arrays += "A=(\"${A[@]}\" \"${A[@]}\")\n";
  CHECK(refusal(arrays).ends_with("its variables grow beyond 2 MiB of text"));
  CHECK(refusal("f() { f; f; }\nf").ends_with("nest deeper than 64 levels"));
  CHECK(refusal("A='$((A))'; A=A; prog $((A))").ends_with("nest deeper than 64 levels"));
  std::string nested;
  for (int i = 0; i < 100000; ++i) nested += "${A:-";
  CHECK(refusal(nested) == "run.sh:1: quotes and substitutions nest too deep");
  CHECK(refusal(std::string(100000, '(')).find("run.sh") == 0);
  std::string braces;
  for (int i = 0; i < 100000; ++i) braces += "{ ";
  CHECK(refusal(braces) == "run.sh:1: it nests deeper than 64 levels");
  CHECK(refusal("A[999999999]=1; prog $A") == "accepted");
  std::string calls = "f0() { A=1; }\n";
  for (int i = 1; i < 40; ++i) calls += fmt::format("f{0}() {{ f{1}; f{1}; }}\n", i, i - 1);
  CHECK(refusal(calls + "f39").ends_with("its variables grow beyond 2 MiB of text"));
}

}  // namespace meshplan::planner::shell
