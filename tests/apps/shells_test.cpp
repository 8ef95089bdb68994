// What shells and `man` are given.
#include "tests/apps/program_fixture.h"

namespace tessera {
namespace {

class Shells : public ProgramTest {
 protected:
  // Status and output of a program of the system; no value where it is not installed.
  std::optional<ProgramResult> run_system(const std::string& program, const Words& words) {
    if (std::system(cat("command -v ", program, " >/dev/null").c_str()) != 0) return std::nullopt;
    return run({}, [&] {
      Words all = Words{program} + words;
      std::vector<char*> argv;
      for (std::string& word : all) argv.push_back(word.data());
      argv.push_back(nullptr);
      ::execvp(argv[0], argv.data());
      ::_exit(127);
    });
  }
  void print_into(const std::string& file, const Words& words) {
    ProgramResult result = run(words);
    EXPECT_EQ(result.status, 0) << result.err;
    write(file, result.out);
  }
};

TEST_F(Shells, BashCompletes) {
  print_into("tessera.bash", {"completion", "bash"});
  write("try.bash", R"(source tessera.bash
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _tessera; echo "${COMPREPLY[*]}"
)");
  struct Case {
    Words words;
    const char* completed;
  };
  for (const Case& c :
       {Case{{"tr"}, "train"}, Case{{"train", "--num_l"}, "--num_layers"},
        Case{{"train", "--dtype", ""}, "f32 bf16 f16"},
        Case{{"train", "--dtype", "=", "b"}, "bf16"}, Case{{"run", "--nn"}, "--nnodes --nnode"},
        Case{{"run", "--nproc_per_node", "2", "train", "--num_l"}, "--num_layers"},
        Case{{"slurm", "sub"}, "submit"}, Case{{"slurm", "render", "--save"}, "--save_margin"},
        Case{{"k8s", "render", "--kind", "job", "train", "--num_l"}, "--num_layers"},
        Case{{"train", "--dataset", "fi"}, ""}}) {
    auto result = run_system("bash", Words{"try.bash", "tessera"} + c.words);
    ASSERT_TRUE(result);
    EXPECT_EQ(result->out, cat(c.completed, "\n")) << join(c.words, " ") << result->err;
  }
}

TEST_F(Shells, OthersReadWhatTheyAreGiven) {
  struct Case {
    const char *shell, *file;
  };
  for (const Case& c : {Case{"bash", "b"}, Case{"zsh", "z"}, Case{"fish", "f"}}) {
    print_into(c.file, {"completion", c.shell});
    expect_contains(read_file(path(c.file)), "save_margin");
    auto result = run_system(c.shell, {"-n", c.file});
    if (result) {
      EXPECT_EQ(result->status, 0) << result->err;
      EXPECT_EQ(result->err, "");
    }
  }
  if (auto listed = run_system("fish", {"-c", "source f; complete -C 'tessera train --num_l'"})) {
    expect_contains(listed->out, "--num_layers\tdecoder layers");
  }
}

TEST_F(Shells, TheManualHasEveryCommandAndNoFault) {
  print_into("tessera.1", {"manual"});
  std::string page = read_file(path("tessera.1"));
  for (const char* text : {"\\fBcheckpoint\\fR ls|show", "\\fB\\-\\-num_layers\\fR",
                           ".SH OPTIONS OF slurm", "\\fB\\-\\-nnodes\\fR, \\fB\\-\\-nnode\\fR"})
    expect_contains(page, text);
  if (auto result = run_system("groff", {"-ww", "-man", "-Tutf8", "-z", "tessera.1"})) {
    EXPECT_EQ(result->status, 0);
    EXPECT_EQ(result->err, "");
  }
}

// The words behind a command's name stand in its help, as `tessera data prepare`.
TEST_F(Shells, NoActionOfACommandIsForgotten) {
  print_into("tessera.bash", {"completion", "bash"});
  std::string script = read_file(path("tessera.bash"));
  for (std::string command : {"checkpoint", "data", "tokenizer", "slurm", "k8s", "bench"}) {
    std::string help = run({command, "--help"}).out, begin = cat("tessera ", command, " ");
    size_t line = script.find(cat("\n    ", command, ") words="));
    ASSERT_NE(line, std::string::npos) << command;
    std::string words = script.substr(line, script.find(" options=", line) - line);
    int found = 0;
    for (size_t at = 0; (at = help.find(begin, at)) != std::string::npos; at += begin.size()) {
      size_t end = help.find_first_not_of("abcdefghijklmnopqrstuvwxyz", at + begin.size());
      std::string action = help.substr(at + begin.size(), end - at - begin.size());
      if (action.empty()) continue;
      EXPECT_TRUE(words.find(action) != std::string::npos) << begin << action;
      ++found;
    }
    EXPECT_GT(found, 0) << command;
  }
}

TEST_F(Shells, Refusals) {
  for (const Words& words :
       {Words{"completion"}, Words{"completion", "tcsh"}, Words{"manual", "x"}})
    EXPECT_EQ(run(words).status, 2);
}

}  // namespace
}  // namespace tessera
